//! TANK brokers: produce, read, and ask what there is.

mod arguments;
pub(crate) mod broker;
pub(crate) mod results;
pub(crate) mod spans;

use pyo3::prelude::*;

/// Adds what Python sees of it.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<broker::AsyncBroker>()?;
    module.add_class::<broker::Broker>()?;
    module.add_class::<results::PartitionInfo>()?;
    module.add_class::<results::TopicInfo>()?;
    module.add_function(wrap_pyfunction!(broker::tank_aio_connect, module)?)?;
    module.add_function(wrap_pyfunction!(broker::tank_connect, module)?)?;
    module.add_function(wrap_pyfunction!(spans::tank_bounds, module)?)?;
    module.add_function(wrap_pyfunction!(spans::tank_numbers_at, module)?)?;
    module.add_function(wrap_pyfunction!(spans::tank_spans, module)?)?;
    Ok(())
}
