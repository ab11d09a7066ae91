//! The writer for blocking code.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use sbp_python_macros::stub_docs;

use crate::append::encode::NotEncoded;
use crate::client_core::ClientCore;
use crate::process::blocking::block_on;
use crate::requests::Key;
use crate::writer::core::{UnknownColumns, WriterCore, WriterInput, abandon};
use crate::writer::delivery_callback::DeliveryCallback;
use crate::writer::options::{WriterArguments, uuid};
use crate::{arguments, errors};

#[stub_docs]
#[pyclass(frozen, weakref, module = "sbp_native", name = "Writer")]
pub(crate) struct Writer {
    core: Arc<WriterCore>,
    on_delivery: DeliveryCallback,
}

impl Writer {
    /// Opens a writer.
    pub(crate) fn open(
        py: Python<'_>,
        client: &Arc<ClientCore>,
        key: Key,
        arguments: &WriterArguments<'_, '_>,
    ) -> PyResult<Self> {
        let core = WriterCore::new(client, key, arguments.options()?);
        client.block(py, None, |client, _| Arc::clone(&core).open(client))?;
        Ok(Self {
            core,
            on_delivery: DeliveryCallback::new(arguments.callback(py)),
        })
    }

    /// Tells what became of batches, or raises the first failure if there is nobody to tell.
    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        if !self.core.writer(py)?.has_deliveries() {
            return Ok(());
        }
        self.on_delivery.deliver(py, &self.core)
    }

    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let flushed = block_on(py, self.core.flush(py, timeout)?)?;
        self.deliver(py)?;
        if flushed {
            Ok(())
        } else {
            Err(errors::not_flushed(py, self.core.unfinished()))
        }
    }
}

#[stub_docs]
#[pymethods]
impl Writer {
    #[getter]
    fn stream(&self) -> String {
        self.core.stream()
    }

    #[getter]
    fn writer_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.core.writer(py)?.id().map(|id| uuid(py, id)).transpose()
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.core.writer(py)?.epoch())
    }

    #[getter]
    fn next_sequence(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.core.writer(py)?.next_sequence())
    }

    #[getter]
    fn unflushed(&self) -> u64 {
        self.core.unfinished()
    }

    #[pyo3(signature = (value, *, key = None, headers = None, timestamp = None))]
    fn append<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<i64> {
        self.deliver(py)?;
        let writer = self.core.writer(py)?;
        let wait = |py: Python<'_>| {
            while !writer.has_room() {
                let waiting = writer.clone();
                block_on(py, async move { waiting.room().await })?;
            }
            Ok(())
        };
        wait(py)?;
        let given = WriterInput {
            input: arguments::append_input((value, key, headers), timestamp, None, None)?,
            wait: &wait,
            describe: UnknownColumns::DescribeNow,
        };
        self.core.take(py, &given).map_err(NotEncoded::into_error)
    }

    #[pyo3(signature = (*, timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.deliver(py)?;
        self.finish(py, timeout)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.core.end(py)? {
            return self.finish(py, None);
        }
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!(
            "<sbp_native.Writer of {:?}, {} records unflushed>",
            self.core.stream(),
            self.core.unfinished()
        )
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.on_delivery.traverse(&visit)
    }

    fn __clear__(&self) {
        self.on_delivery.clear();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        abandon(&self.core);
    }
}
