//! The extension module `sbp_native._native`: the Rust client and server as Python sees them. No protocol, no policy.
//!
//! What is particular to Python lives here: how threads of ours and the interpreter stay apart ([`attach`]), one runtime
//! per process and what a fork does to it ([`runtime`], [`fork`]), how results come back to an event loop ([`bridge`])
//! or to a blocked thread ([`blocking`]), how memory crosses without copies ([`buffer`], [`arrow`]), and which exception
//! an error becomes ([`errors`]). The classes are thin: they turn arguments into owned Rust values, start one call, and
//! turn its result back.
//!
//! Three rules hold everywhere. I/O threads never attach to the interpreter, and never hold or drop a Python object.
//! Process-wide locks are taken by attached threads only and never held across a release of the interpreter lock, so
//! that a fork never copies one locked. No lock is held while Python code may run.

mod ack;
mod aclient;
mod append;
mod arguments;
mod arrow;
mod astream;
mod attach;
mod awriter;
mod awriter_queue;
mod batch;
mod batch_appender;
mod batches;
mod beside;
mod blocking;
mod bridge;
mod buffer;
mod calls;
mod classes;
mod cli;
mod client;
mod cluster;
mod core;
mod cursor;
mod delivery;
mod describe;
mod digest;
mod encode;
mod errors;
mod fork;
mod heads;
mod html;
mod imports;
mod interpreter;
mod kept;
mod keyed;
mod logging;
mod pen;
mod proxy;
mod read;
mod record;
mod record_batches;
mod relative;
mod repeats;
mod rows;
mod runtime;
mod scratch;
mod sending;
mod server;
mod span_reader;
mod step;
mod stream;
mod typed_rows;
mod varints;
mod verb;
mod verbs;
mod weight;
mod writer;
mod writer_names;

use pyo3::prelude::*;

/// The extension module. Importing it starts nothing.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::check(module.py())?;
    sbp_record::make_shared();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<ack::Ack>()?;
    module.add_class::<batches::AsyncBatches>()?;
    module.add_class::<aclient::AsyncClient>()?;
    module.add_class::<astream::AsyncStream>()?;
    module.add_class::<awriter::AsyncWriter>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<record::Record>()?;
    module.add_class::<batch_appender::BatchAppender>()?;
    module.add_class::<bridge::Bridge>()?;
    module.add_class::<bridge::Operation>()?;
    module.add_class::<buffer::Payload>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<cluster::ClusterInfo>()?;
    module.add_class::<cluster::ClusterMember>()?;
    module.add_class::<cluster::RangeInfo>()?;
    module.add_class::<cursor::AsyncCursor>()?;
    module.add_class::<cursor::Cursor>()?;
    module.add_class::<describe::Positions>()?;
    module.add_class::<describe::StreamInfo>()?;
    module.add_class::<keyed::AsyncKeyed>()?;
    module.add_class::<keyed::Keyed>()?;
    module.add_class::<proxy::HeldFrame>()?;
    module.add_class::<proxy::HeldFrames>()?;
    module.add_class::<proxy::Proxy>()?;
    module.add_class::<proxy::ProxyRule>()?;
    module.add_class::<relative::Relative>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<span_reader::SpanReader>()?;
    module.add_class::<batches::Batches>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<delivery::DeliveryReport>()?;
    module.add_class::<writer::Writer>()?;
    module.add_function(wrap_pyfunction!(aclient::aio_connect, module)?)?;
    module.add_function(wrap_pyfunction!(attach::io_threads_attach, module)?)?;
    module.add_function(wrap_pyfunction!(attach::io_threads_drop, module)?)?;
    module.add_function(wrap_pyfunction!(cli::run_cli, module)?)?;
    module.add_function(wrap_pyfunction!(client::connect, module)?)?;
    module.add_function(wrap_pyfunction!(digest::digest_rows, module)?)?;
    module.add_function(wrap_pyfunction!(errors::error_classes, module)?)?;
    module.add_function(wrap_pyfunction!(errors::error_codes, module)?)?;
    module.add_function(wrap_pyfunction!(fork::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(fork::stop_all, module)?)?;
    module.add_function(wrap_pyfunction!(heads::stream_bounds, module)?)?;
    module.add_function(wrap_pyfunction!(heads::stream_list, module)?)?;
    module.add_function(wrap_pyfunction!(heads::stream_offsets_at, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::shut_down, module)?)?;
    module.add_function(wrap_pyfunction!(pen::warn_unflushed, module)?)?;
    module.add_function(wrap_pyfunction!(varints::pack_varints, module)?)?;
    module.add_function(wrap_pyfunction!(varints::unpack_varints, module)?)?;
    Ok(())
}
