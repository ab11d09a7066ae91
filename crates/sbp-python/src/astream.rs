//! One stream, for asyncio.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::append::{Appending, Patience};
use crate::awriter::AsyncWriter;
use crate::batches::AsyncBatches;
use crate::bridge::Operation;
use crate::calls::{self, Key};
use crate::core::Core;
use crate::describe::{Described, StreamInfo};
use crate::pen::WriterArguments;
use crate::read::Wanted;
use crate::verb::Verb;
use crate::verbs::{self, FetchBounds};
use crate::{arguments, sending};

type Started<'py> = PyResult<Bound<'py, Operation>>;

/// One stream, for asyncio. The verbs are those of :class:`Stream`.
#[pyclass(frozen, module = "sbp_native", name = "AsyncStream")]
pub(crate) struct AsyncStream {
    core: Arc<Core>,
    described: Arc<Described>,
}

impl AsyncStream {
    /// The object of a stream.
    pub(crate) fn object(py: Python<'_>, core: Arc<Core>, described: Arc<Described>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self { core, described })?.into_any())
    }

    /// What the server said of it.
    pub(crate) fn described(&self) -> Arc<Described> {
        Arc::clone(&self.described)
    }

    /// The same, with the columns that were added since as far as the client knows.
    fn newest(&self) -> Arc<Described> {
        let client = self.core.unchecked_client();
        let newest = client.and_then(|client| calls::newest(client, &self.described).ok());
        newest.unwrap_or_else(|| self.described())
    }

    fn key(&self) -> Key {
        Key::Known(self.described())
    }
}

#[pymethods]
impl AsyncStream {
    /// Its number.
    #[getter]
    fn id(&self) -> i64 {
        self.described.stream.stream_id.0
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.described.name
    }

    /// What tells it from every other stream: 32 hexadecimal digits; see :attr:`StreamInfo.identity`.
    #[getter]
    fn identity(&self) -> Option<String> {
        self.described.identity()
    }

    /// Its schema; ``None`` for a stream of plain records. Imports pyarrow.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.newest().pyarrow_schema(py)
    }

    /// The stream as the server described it.
    #[getter]
    fn info(&self) -> StreamInfo {
        StreamInfo(self.newest())
    }

    /// Appends one batch; see :meth:`Stream.append`.
    #[pyo3(signature = (data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn append<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        expected_offset: Option<i64>,
        compression: Option<&str>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let how = arguments::how(timestamp, expected_offset, compression)?;
        let appending = Appending {
            data,
            key,
            headers,
            how,
        };
        sending::start(py, &self.core, self.key(), &appending, timeout, Patience::Wait)
    }

    /// As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send.
    #[pyo3(signature = (data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn try_append<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        expected_offset: Option<i64>,
        compression: Option<&str>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let how = arguments::how(timestamp, expected_offset, compression)?;
        let appending = Appending {
            data,
            key,
            headers,
            how,
        };
        sending::start(py, &self.core, self.key(), &appending, timeout, Patience::Fail)
    }

    /// A writer of this stream; see :meth:`Client.writer`.
    #[pyo3(signature = (
        *, batch_bytes = 262_144, linger = 0.005, compression = None, idempotent = true, writer_id = None,
        epoch = None, max_in_flight = 64, on_delivery = None, timeout = 120.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn writer(
        &self,
        py: Python<'_>,
        batch_bytes: usize,
        linger: f64,
        compression: Option<&str>,
        idempotent: bool,
        writer_id: Option<&Bound<'_, PyAny>>,
        epoch: Option<i64>,
        max_in_flight: usize,
        on_delivery: Option<Py<PyAny>>,
        timeout: f64,
    ) -> PyResult<AsyncWriter> {
        let arguments = WriterArguments {
            batch_bytes,
            linger,
            compression,
            idempotent,
            writer_id,
            epoch,
            max_in_flight,
            reports: on_delivery.is_some(),
            timeout,
        };
        self.core.client(py)?;
        AsyncWriter::new(&self.core, self.key(), &arguments, on_delivery)
    }

    /// Reads once from ``offset`` on; see :meth:`Client.fetch`.
    #[pyo3(signature = (offset, *, max_bytes = 4_194_304, min_bytes = 0, max_wait = 0.0, timeout = None))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        offset: &Bound<'py, PyAny>,
        max_bytes: i64,
        min_bytes: i64,
        max_wait: f64,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let bounds = FetchBounds {
            max_bytes,
            min_bytes,
            max_wait,
        };
        verbs::fetch(py, &self.core, self.key(), offset, bounds, timeout)?.spawn(py)
    }

    /// The batches from ``start`` up to ``end`` as it is now. ``timeout`` is for each step, in seconds.
    ///
    /// Raises ``OffsetOutOfRangeError``.
    #[pyo3(
        signature = (start = None, end = None, *, timeout = None),
        text_signature = "($self, start='earliest', end='latest', *, timeout=None)"
    )]
    fn read(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<AsyncBatches> {
        AsyncBatches::new(py, &self.core, Wanted::span(self.key(), start, end)?, timeout)
    }

    /// Batches from ``start`` on, for ever: each step waits for the next one, at most ``timeout`` seconds.
    ///
    /// A tail outlasts every outage of the server. After an error, a ``timeout`` that passed included, the next step
    /// goes on where the error came: nothing is left out, and the tail does not end before it is closed.
    #[pyo3(
        signature = (start = None, *, timeout = None),
        text_signature = "($self, start='latest', *, timeout=None)"
    )]
    fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<AsyncBatches> {
        AsyncBatches::new(py, &self.core, Wanted::tail_of(self.key(), start)?, timeout)
    }

    /// What the stream holds now.
    #[pyo3(signature = (*, timeout = None))]
    fn positions<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::positions_of(py, &self.core, &self.described, timeout)?.spawn(py)
    }

    /// The stream's settings as they are now.
    #[pyo3(signature = (*, timeout = None))]
    fn describe<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::describe(py, &self.core, self.key(), timeout)?.spawn(py)
    }

    /// The stream's ranges, in their order.
    #[pyo3(signature = (*, timeout = None))]
    fn describe_ranges<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::ranges(py, &self.core, self.key(), timeout)?.spawn(py)
    }

    /// Changes the stream's settings; see :meth:`Client.update_stream`.
    #[pyo3(signature = (*, name = None, schema = None, retention = None, retention_bytes = None, properties = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn update<'py>(
        &self,
        py: Python<'py>,
        name: Option<String>,
        schema: Option<&Bound<'py, PyAny>>,
        retention: Option<&Bound<'py, PyAny>>,
        retention_bytes: Option<&Bound<'py, PyAny>>,
        properties: Option<&Bound<'py, PyDict>>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let wanted = arguments::change(name, schema, retention, retention_bytes, properties)?;
        verbs::update(py, &self.core, self.key(), wanted, timeout)?.spawn(py)
    }

    /// Deletes the stream with all its records.
    #[pyo3(signature = (*, timeout = None))]
    fn delete<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::delete(py, &self.core, self.key(), timeout)?.spawn(py)
    }

    /// Deletes the records before a place; see :meth:`Client.trim`.
    #[pyo3(signature = (before, *, timeout = None))]
    fn trim<'py>(&self, py: Python<'py>, before: &Bound<'py, PyAny>, timeout: Option<f64>) -> Started<'py> {
        verbs::trim(py, &self.core, self.key(), before, timeout)?.spawn(py)
    }

    /// Ends the open range; see :meth:`Client.seal`.
    #[pyo3(signature = (*, timeout = None))]
    fn seal<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::seal(py, &self.core, self.key(), timeout)?.spawn(py)
    }

    fn __repr__(&self) -> String {
        format!(
            "<sbp_native.AsyncStream {:?} (id {})>",
            self.described.name, self.described.stream.stream_id
        )
    }
}
