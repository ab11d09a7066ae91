//! One stream, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::api::pair::blocking_and_asyncio;
use crate::append::input::AppendInput;
use crate::append::prepared::BackpressurePolicy;
use crate::arguments;
use crate::call::stream_calls::{self, FetchBounds};
use crate::client_core::ClientCore;
use crate::read::source::ReadRequest;
use crate::requests::{self, Described, Key};
use crate::results::stream_info::StreamInfo;

/// One stream: what `Stream` and `AsyncStream` share.
struct StreamHandle {
    core: Arc<ClientCore>,
    described: Arc<Described>,
}

impl StreamHandle {
    /// What the server said of it, with the columns that were added since as far as the client knows.
    fn newest(&self) -> Arc<Described> {
        let client = self.core.unchecked_client();
        let newest = client.and_then(|client| requests::newest(client, &self.described).ok());
        newest.unwrap_or_else(|| Arc::clone(&self.described))
    }

    fn key(&self) -> Key {
        Key::Known(Arc::clone(&self.described))
    }

    fn repr(&self, class: &str) -> String {
        let (name, id) = (&self.described.name, self.described.stream.stream_id);
        format!("<sbp_native.{class} {name:?} (id {id})>")
    }
}

/// One stream, for blocking code.
#[pyclass(frozen, module = "sbp_native", name = "Stream")]
pub(crate) struct Stream(StreamHandle);

impl Stream {
    /// The object of a stream.
    pub(crate) fn object(py: Python<'_>, core: Arc<ClientCore>, described: Arc<Described>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self(StreamHandle { core, described }))?.into_any())
    }

    /// The stream as arguments of calls name it.
    pub(crate) fn key(&self) -> Key {
        self.0.key()
    }
}

/// One stream, for asyncio. The calls are those of :class:`Stream`.
#[pyclass(frozen, module = "sbp_native", name = "AsyncStream")]
pub(crate) struct AsyncStream(StreamHandle);

impl AsyncStream {
    /// The object of a stream.
    pub(crate) fn object(py: Python<'_>, core: Arc<ClientCore>, described: Arc<Described>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self(StreamHandle { core, described }))?.into_any())
    }

    /// The stream as arguments of calls name it.
    pub(crate) fn key(&self) -> Key {
        self.0.key()
    }
}

blocking_and_asyncio! {
    impl Stream and AsyncStream {
        #[getter]
        /// Its number.
        fn id(&self) -> i64 {
            self.0.described.stream.stream_id.0
        }

        #[getter]
        /// Its name.
        fn name(&self) -> &str {
            &self.0.described.name
        }

        #[getter]
        /// What tells it from every other stream: 32 hexadecimal digits; see :attr:`StreamInfo.identity`.
        fn identity(&self) -> Option<String> {
            self.0.described.identity()
        }

        #[getter]
        /// Its schema; ``None`` for a stream of plain records. Imports pyarrow.
        fn schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
            self.0.newest().pyarrow_schema(py)
        }

        #[getter]
        /// The stream as the server described it.
        fn info(&self) -> StreamInfo {
            StreamInfo(self.0.newest())
        }

        #[pyo3(signature = (data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        blocking {
            /// Appends one batch, and returns when it is stored.
            ///
            /// ``data`` is one record as bytes, several as a list of bytes, or the rows of Arrow data: a table, a record batch
            /// or a data frame of any library. These have the stream's columns, or for a stream without a schema ``value`` and
            /// perhaps ``key``, ``timestamp`` and ``headers``; a column by itself is values. Large ``bytes`` and views of them
            /// are not copied; what can be written to is.
            ///
            /// ``key`` and ``headers`` belong to the one record; for a list of records they are lists as well. ``timestamp`` is
            /// the time of the records; without it, now. With ``expected_offset`` the batch is stored only if its first record
            /// gets that offset. ``timeout`` is in seconds; without it, the client's.
            ///
            /// Raises ``RejectedError`` (nothing was written) or ``IndeterminateError`` (perhaps); with ``expected_offset``,
            /// ``PreconditionFailedError`` when another append came first.
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> ack = orders.append([b"first", b"second"])
            /// >>> ack.base_offset, ack.last_offset
            /// (0, 1)
            /// >>> orders.append(b"third", expected_offset=1)
            /// Traceback (most recent call last):
            /// ...
            /// sbp_native.errors.PreconditionFailedError: ...
        }
        asyncio {
            /// Appends one batch; see :meth:`Stream.append`.
        }
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
        ) -> api::Returned<'py> {
            let options = arguments::append_options(timestamp, expected_offset, compression)?;
            let input = AppendInput {
                data,
                key,
                headers,
                options,
            };
            api::append(py, &self.0.core, self.0.key(), &input, timeout, BackpressurePolicy::Wait)
        }

        #[pyo3(signature = (data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        /// As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send.
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
        ) -> api::Returned<'py> {
            let options = arguments::append_options(timestamp, expected_offset, compression)?;
            let input = AppendInput {
                data,
                key,
                headers,
                options,
            };
            api::append(py, &self.0.core, self.0.key(), &input, timeout, BackpressurePolicy::Fail)
        }

        #[pyo3(signature = (offset, *, max_bytes = 4_194_304, min_bytes = 0, max_wait = 0.0, timeout = None))]
        /// Reads once from ``offset`` on; see :meth:`Client.fetch`.
        fn fetch<'py>(
            &self,
            py: Python<'py>,
            offset: &Bound<'py, PyAny>,
            max_bytes: i64,
            min_bytes: i64,
            max_wait: f64,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let bounds = FetchBounds {
                max_bytes,
                min_bytes,
                max_wait,
            };
            api::run(py, stream_calls::fetch(py, &self.0.core, self.0.key(), offset, bounds, timeout)?)
        }

        #[pyo3(
            signature = (start = None, end = None, *, timeout = None),
            text_signature = "($self, start='earliest', end='latest', *, timeout=None)"
        )]
        /// The batches from ``start`` up to ``end`` as it is now. ``timeout`` is for each step, in seconds.
        ///
        blocking {
            /// A bound that is a time is one for each record's own time: the read gives exactly the records from ``start`` up
            /// to but without ``end``, in the order of their offsets, among those that the stream holds now. An older record
            /// may stand behind a newer one, so that a read with a time as its end goes through to the end of the stream; give
            /// an offset to read less. A batch that lies partly inside comes as the runs of its records that do.
            ///
            /// A step that fails ends nothing: the next one goes on behind the last batch that was handed out.
            ///
            /// Raises ``OffsetOutOfRangeError`` for an offset beyond the end, ``InvalidRequestError`` for an end before the
            /// start.
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> ack = orders.append([b"first", b"second"])
            /// >>> [record.value for batch in orders.read() for record in batch.records()]
            /// [b'first', b'second']
        }
        asyncio {
            /// Raises ``OffsetOutOfRangeError``.
        }
        fn read(
            &self,
            py: Python<'_>,
            start: Option<&Bound<'_, PyAny>>,
            end: Option<&Bound<'_, PyAny>>,
            timeout: Option<f64>,
        ) -> PyResult<api::Batches> {
            api::Batches::new(py, &self.0.core, ReadRequest::span(self.0.key(), start, end)?, timeout)
        }

        #[pyo3(
            signature = (start = None, *, timeout = None),
            text_signature = "($self, start='latest', *, timeout=None)"
        )]
        /// Batches from ``start`` on, for ever: each step waits for the next one, at most ``timeout`` seconds.
        ///
        /// A tail outlasts every outage of the server. After an error, a ``timeout`` that passed included, the next step
        /// goes on where the error came: nothing is left out, and the tail does not end before it is closed.
        fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<api::Batches> {
            api::Batches::new(py, &self.0.core, ReadRequest::tail_of(self.0.key(), start)?, timeout)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// What the stream holds now.
        fn positions<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::positions_of(py, &self.0.core, &self.0.described, timeout)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// The stream's settings as they are now.
        fn describe<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::describe(py, &self.0.core, self.0.key(), timeout)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// The stream's ranges, in their order.
        fn describe_ranges<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::ranges(py, &self.0.core, self.0.key(), timeout)?)
        }

        #[pyo3(signature = (*, name = None, schema = None, retention = None, retention_bytes = None, properties = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        /// Changes the stream's settings; see :meth:`Client.update_stream`.
        fn update<'py>(
            &self,
            py: Python<'py>,
            name: Option<String>,
            schema: Option<&Bound<'py, PyAny>>,
            retention: Option<&Bound<'py, PyAny>>,
            retention_bytes: Option<&Bound<'py, PyAny>>,
            properties: Option<&Bound<'py, PyDict>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let wanted = arguments::change(name, schema, retention, retention_bytes, properties)?;
            api::run(py, stream_calls::update(py, &self.0.core, self.0.key(), wanted, timeout)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// Deletes the stream with all its records.
        fn delete<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::delete(py, &self.0.core, self.0.key(), timeout)?)
        }

        #[pyo3(signature = (before, *, timeout = None))]
        /// Deletes the records before a place; see :meth:`Client.trim`.
        fn trim<'py>(&self, py: Python<'py>, before: &Bound<'py, PyAny>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::trim(py, &self.0.core, self.0.key(), before, timeout)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// Ends the open range; see :meth:`Client.seal`.
        fn seal<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::seal(py, &self.0.core, self.0.key(), timeout)?)
        }

        fn __repr__(&self) -> String {
            self.0.repr(Self::NAME)
        }
    }

    writer {
        /// A writer of this stream; see :meth:`Client.writer`.
        fn writer<'py>(&self, py: Python<'py>) () options -> PyResult<api::Writer> {
            api::Writer::open(py, &self.0.core, self.0.key(), &options)
        }
    }
}
