//! `append` of the project's Rust client as a Python coroutine, written as the guide of `pyo3-async-runtimes` shows:
//! what users would have without a bridge of our own.

use bytes::Bytes;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3_async_runtimes::tokio::{future_into_py, get_runtime, init};
use sbp_client::{AppendOptions, ClientConfig};
use sbp_types::StreamId;

/// A client with one verb.
#[pyclass(frozen)]
struct Client {
    client: sbp_client::Client,
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Client {
    #[new]
    fn new(servers: &str) -> PyResult<Self> {
        // One I/O thread, as the project's own bridge has.
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all();
        init(builder);
        let config = ClientConfig::new(servers).map_err(failed)?;
        let client = sbp_client::Client::new(config, get_runtime().handle().clone());
        Ok(Self { client })
    }

    /// Appends one record; the offset it got.
    fn append<'py>(&self, py: Python<'py>, stream: i64, record: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let client = self.client.clone();
        let record = Bytes::copy_from_slice(record);
        future_into_py(py, async move {
            let ack = client
                .append(StreamId(stream), record, &AppendOptions::default())
                .await
                .map_err(failed)?;
            Ok(ack.base_offset.0)
        })
    }
}

#[pymodule]
fn stock_bridge(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Client>()
}
