//! The writer for blocking code.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::append::encode::NotEncoded;
use crate::append::input::AppendInput;
use crate::client_core::ClientCore;
use crate::process::blocking::block_on;
use crate::requests::Key;
use crate::writer::core::{UnknownColumns, WriterCore, WriterInput, abandon};
use crate::writer::delivery_callback::DeliveryCallback;
use crate::writer::options::{WriterArguments, uuid};
use crate::{arguments, errors};

/// Gathers records into batches and stores them in order, for blocking code; see :meth:`Client.writer`.
///
/// Threads may share it. Close it, or use it in a ``with`` statement: a writer that is dropped with records that are
/// not stored yet warns with a ``ResourceWarning`` that counts them. One that is open when the process ends is flushed
/// for at most five seconds, and a ``RuntimeWarning``, which is shown, counts the records that were not acknowledged.
#[pyclass(frozen, weakref, module = "sbp_native", name = "Writer")]
pub(crate) struct Writer {
    core: Arc<WriterCore>,
    on_delivery: DeliveryCallback,
}

impl Writer {
    /// Opens a writer.
    pub(crate) fn open(
        py: Python<'_>,
        core: &Arc<ClientCore>,
        key: Key,
        arguments: &WriterArguments<'_, '_>,
    ) -> PyResult<Self> {
        let core = WriterCore::new(core, key, arguments.options()?);
        let opened = block_on(py, Arc::clone(&core).open(core.client(py)?))?;
        opened.map_err(|failure| failure.into_python(py))?;
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

#[pymethods]
impl Writer {
    /// The stream's name.
    #[getter]
    fn stream(&self) -> String {
        self.core.stream()
    }

    /// The writer's name: the one given, or the one made up for it. ``None`` if it is not idempotent.
    #[getter]
    fn writer_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.core.writer(py)?.id().map(|id| uuid(py, id)).transpose()
    }

    /// The writer's epoch: which instance of it this is.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.core.writer(py)?.epoch())
    }

    /// The number of the next record: how many came before it, with a ``writer_id`` in all lives of the writer.
    #[getter]
    fn next_sequence(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.core.writer(py)?.next_sequence())
    }

    /// Records that were appended and whose fate is not known yet.
    #[getter]
    fn unflushed(&self) -> u64 {
        self.core.unfinished()
    }

    /// Takes one record, a list of them, or the rows of a table; returns the number of the last one.
    ///
    /// Waits only while ``max_in_flight`` batches are on their way. A list is taken whole or, where something is wrong
    /// with one of its records, not at all.
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
            input: AppendInput {
                data: value,
                key,
                headers,
                options: arguments::append_options(timestamp, None, None)?,
            },
            wait: &wait,
            describe: UnknownColumns::DescribeNow,
        };
        self.core.take(py, &given).map_err(NotEncoded::into_error)
    }

    /// Sends what is gathered and waits until everything appended so far is stored or has failed.
    ///
    /// Raises a ``TimeoutError`` if that takes longer than ``timeout`` seconds; nothing is given up by that.
    #[pyo3(signature = (*, timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.deliver(py)?;
        self.finish(py, timeout)
    }

    /// Takes no more records, and flushes. Again: does nothing.
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
