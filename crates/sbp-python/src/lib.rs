//! The extension module `sbp_native._native`: the Rust client and server as Python sees them. No protocol, no policy.
//!
//! What is particular to Python lives here: how threads of ours and the interpreter stay apart
//! ([`interpreter::attach`]), one runtime per process and what a fork does to it ([`process::runtime`],
//! [`process::fork`]), how results come back to an event loop ([`bridge`]) or to a blocked thread
//! ([`process::blocking`]), how memory crosses without copies ([`memory`]), and which exception an error becomes
//! ([`errors`]). The classes are thin: they turn arguments into owned Rust values, start one call, and turn its result
//! back.
//!
//! Three rules hold everywhere. I/O threads never attach to the interpreter, and never hold or drop a Python object.
//! Process-wide locks are taken by attached threads only and never held across a release of the interpreter lock, so
//! that a fork never copies one locked. No lock is held while Python code may run.

mod api;
mod append;
mod arguments;
mod bridge;
mod call;
mod client_core;
mod errors;
mod interpreter;
mod memory;
mod owner;
mod pravega;
mod process;
mod read;
mod requests;
mod results;
mod seastar;
mod service;
mod spark;
mod tank;
mod time;
mod tls;
mod token;
mod writer;

use pyo3::prelude::*;

/// Where the docstrings of the classes come from (`stub_docs`): a change there has this crate compiled anew.
const _: &str = include_str!("../../../python/sbp_native/_native.pyi");

/// The extension module. Importing it starts nothing.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::main_interpreter::check(module.py())?;
    sbp_record::make_shared();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<results::ack::Ack>()?;
    module.add_class::<api::batches::AsyncBatches>()?;
    module.add_class::<api::client::AsyncClient>()?;
    module.add_class::<api::stream::AsyncStream>()?;
    module.add_class::<writer::asyncio::AsyncWriter>()?;
    module.add_class::<results::batch::Batch>()?;
    module.add_class::<results::record::Record>()?;
    module.add_class::<spark::batch_appender::BatchAppender>()?;
    module.add_class::<bridge::Bridge>()?;
    module.add_class::<bridge::Operation>()?;
    module.add_class::<memory::buffer::Payload>()?;
    module.add_class::<api::client::Client>()?;
    module.add_class::<results::cluster::ClusterInfo>()?;
    module.add_class::<results::histogram::Histogram>()?;
    module.add_class::<results::cluster::ClusterMember>()?;
    module.add_class::<results::cluster::RangeInfo>()?;
    module.add_class::<results::cluster::RangeServerInfo>()?;
    module.add_class::<api::cursor::AsyncCursor>()?;
    module.add_class::<api::cursor::Cursor>()?;
    module.add_class::<results::stream_info::Positions>()?;
    module.add_class::<results::stream_info::StreamInfo>()?;
    module.add_class::<api::keyed::AsyncKeyed>()?;
    module.add_class::<api::keyed::Keyed>()?;
    module.add_class::<service::proxy::HeldFrame>()?;
    module.add_class::<service::proxy::HeldFrames>()?;
    module.add_class::<service::proxy::Proxy>()?;
    module.add_class::<service::proxy::ProxyRule>()?;
    module.add_class::<arguments::relative_position::Relative>()?;
    module.add_class::<service::server::Server>()?;
    module.add_class::<tls::Tls>()?;
    module.add_class::<spark::span_reader::SpanReader>()?;
    module.add_class::<api::batches::Batches>()?;
    module.add_class::<api::stream::Stream>()?;
    module.add_class::<results::delivery::DeliveryReport>()?;
    module.add_class::<writer::blocking::Writer>()?;
    module.add_function(wrap_pyfunction!(api::client::aio_connect, module)?)?;
    module.add_function(wrap_pyfunction!(process::runtime::io_threads_attach, module)?)?;
    module.add_function(wrap_pyfunction!(process::runtime::io_threads_drop, module)?)?;
    module.add_function(wrap_pyfunction!(service::cli::run_cli, module)?)?;
    module.add_function(wrap_pyfunction!(api::client::connect, module)?)?;
    module.add_class::<spark::peer_spans::PeerSpanReader>()?;
    module.add_function(wrap_pyfunction!(spark::digest::digest_rows, module)?)?;
    module.add_function(wrap_pyfunction!(errors::error_codes, module)?)?;
    module.add_function(wrap_pyfunction!(process::fork::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(process::fork::stop_all, module)?)?;
    module.add_function(wrap_pyfunction!(spark::stream_queries::stream_bounds, module)?)?;
    module.add_function(wrap_pyfunction!(spark::stream_queries::stream_list, module)?)?;
    module.add_function(wrap_pyfunction!(spark::stream_queries::stream_offsets_at, module)?)?;
    module.add_function(wrap_pyfunction!(process::runtime::shut_down, module)?)?;
    pravega::register(module)?;
    tank::register(module)?;
    seastar::register(module)?;
    module.add_function(wrap_pyfunction!(writer::core::warn_unflushed, module)?)?;
    module.add_function(wrap_pyfunction!(spark::varints::pack_varints, module)?)?;
    module.add_function(wrap_pyfunction!(spark::varints::unpack_varints, module)?)?;
    Ok(())
}
