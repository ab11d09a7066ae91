//! Pravega: write events, read streams, and ask what there is.

mod arguments;
pub(crate) mod client;
mod core;
pub(crate) mod results;
pub(crate) mod spans;
pub(crate) mod writer;

use pyo3::prelude::*;

/// Adds what Python sees of it.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client::AsyncPravega>()?;
    module.add_class::<client::Pravega>()?;
    module.add_class::<results::SegmentInfo>()?;
    module.add_class::<writer::AsyncPravegaWriter>()?;
    module.add_class::<writer::PravegaWriter>()?;
    module.add_function(wrap_pyfunction!(client::pravega_aio_connect, module)?)?;
    module.add_function(wrap_pyfunction!(client::pravega_connect, module)?)?;
    module.add_function(wrap_pyfunction!(spans::pravega_bounds, module)?)?;
    module.add_function(wrap_pyfunction!(spans::pravega_event_end, module)?)?;
    module.add_function(wrap_pyfunction!(spans::pravega_segments, module)?)?;
    module.add_function(wrap_pyfunction!(spans::pravega_spans, module)?)?;
    Ok(())
}
