//! The face for asyncio: every call starts at once and returns an operation.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::append::{Appending, Patience};
use crate::astream::AsyncStream;
use crate::awriter::AsyncWriter;
use crate::batches::AsyncBatches;
use crate::bridge::{Here, Operation};
use crate::calls::{Key, StreamChange};
use crate::client::reduce;
use crate::core::{Core, Limits, Retry, Settings};
use crate::cursor::{self, AsyncCursor};
use crate::keyed::{self, AsyncKeyed};
use crate::pen::WriterArguments;
use crate::read::Wanted;
use crate::verb::Verb;
use crate::verbs::{self, FetchBounds};
use crate::{arguments, sending};

type Started<'py> = PyResult<Bound<'py, Operation>>;

/// A connection to a service, for asyncio: ``async with connect(...) as client`` or ``await connect(...)``.
///
/// >>> async def main():
/// ...     async with sbp.aio.connect(server.address) as client:
/// ...         orders = await client.create_stream("orders")
/// ...         await asyncio.gather(*(orders.append(b"%d" % number) for number in range(100)))
/// ...         return (await orders.positions()).latest
/// >>> asyncio.run(main())
/// 100
#[pyclass(frozen, module = "sbp_native", name = "AsyncClient")]
pub(crate) struct AsyncClient {
    core: Arc<Core>,
}

/// A client that connects when it is awaited or entered.
#[pyfunction]
#[pyo3(signature = (
    servers = None, *, timeout = 30.0, client_id = None, heartbeat_interval = None, max_in_flight_bytes = None,
    max_in_flight_calls = None, max_pinned_bytes = None, max_attempts = None, retry_backoff = None, wait = None
))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
pub(crate) fn aio_connect(
    py: Python<'_>,
    servers: Option<&Bound<'_, PyAny>>,
    timeout: f64,
    client_id: Option<String>,
    heartbeat_interval: Option<f64>,
    max_in_flight_bytes: Option<usize>,
    max_in_flight_calls: Option<usize>,
    max_pinned_bytes: Option<usize>,
    max_attempts: Option<u32>,
    retry_backoff: Option<f64>,
    wait: Option<f64>,
) -> PyResult<AsyncClient> {
    let settings = Settings {
        servers: arguments::servers(servers)?,
        timeout,
        client_id,
        heartbeat_interval,
        limits: Limits {
            in_flight_bytes: max_in_flight_bytes,
            in_flight_calls: max_in_flight_calls,
            pinned_bytes: max_pinned_bytes,
        },
        retry: Retry {
            max_attempts,
            backoff: retry_backoff,
            wait,
        },
    };
    Ok(AsyncClient {
        core: Core::new(py, settings)?,
    })
}

#[pymethods]
impl AsyncClient {
    /// The addresses it was given.
    #[getter]
    fn servers(&self) -> &str {
        &self.core.settings.servers
    }

    /// Creates a stream; with ``schema``, one that takes Arrow data of that schema only.
    ///
    /// ``retention`` is how long records are kept (a timedelta, or seconds), ``retention_bytes`` how many bytes;
    /// without them, all are. ``replicas`` is how many servers hold each record (1). ``properties`` are notes of yours.
    ///
    /// Raises ``AlreadyExistsError``; with ``exist_ok`` only if the stream has other settings.
    #[pyo3(signature = (name, *, schema = None, retention = None, retention_bytes = None, replicas = None, properties = None, exist_ok = false, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn create_stream<'py>(
        &self,
        py: Python<'py>,
        name: String,
        schema: Option<&Bound<'py, PyAny>>,
        retention: Option<&Bound<'py, PyAny>>,
        retention_bytes: Option<&Bound<'py, PyAny>>,
        replicas: Option<i8>,
        properties: Option<&Bound<'py, PyDict>>,
        exist_ok: bool,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let wanted = StreamChange {
            replicas,
            ..arguments::change(Some(name), schema, retention, retention_bytes, properties)?
        };
        verbs::create(py, &self.core, wanted, exist_ok, timeout, AsyncStream::object)?.spawn(py)
    }

    /// The stream with this name or id. Raises ``StreamNotFoundError``.
    #[pyo3(signature = (key, *, timeout = None))]
    fn stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> Started<'py> {
        verbs::find(py, &self.core, key, timeout, AsyncStream::object)?.spawn(py)
    }

    /// All streams, by id.
    #[pyo3(signature = (*, timeout = None))]
    fn list_streams<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::list(py, &self.core, timeout)?.spawn(py)
    }

    /// A stream's settings as they are now. Raises ``StreamNotFoundError``.
    #[pyo3(signature = (key, *, timeout = None))]
    fn describe_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> Started<'py> {
        verbs::describe(py, &self.core, key, timeout)?.spawn(py)
    }

    /// Changes a stream's settings; what is not given stays. Returns them all.
    ///
    /// ``name`` renames the stream, ``schema`` adds nullable columns, ``properties`` replaces all of them.
    /// ``retention="forever"`` and ``retention_bytes="unlimited"`` keep everything.
    ///
    /// Raises ``StreamNotFoundError``, ``AlreadyExistsError``, ``SchemaMismatchError``.
    #[pyo3(signature = (key, *, name = None, schema = None, retention = None, retention_bytes = None, properties = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn update_stream<'py>(
        &self,
        py: Python<'py>,
        key: Key,
        name: Option<String>,
        schema: Option<&Bound<'py, PyAny>>,
        retention: Option<&Bound<'py, PyAny>>,
        retention_bytes: Option<&Bound<'py, PyAny>>,
        properties: Option<&Bound<'py, PyDict>>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let wanted = arguments::change(name, schema, retention, retention_bytes, properties)?;
        verbs::update(py, &self.core, key, wanted, timeout)?.spawn(py)
    }

    /// Deletes a stream with all its records. Raises ``StreamNotFoundError``.
    #[pyo3(signature = (key, *, timeout = None))]
    fn delete_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> Started<'py> {
        verbs::delete(py, &self.core, key, timeout)?.spawn(py)
    }

    /// Deletes the records before a place. Returns the offset that the stream begins at now.
    ///
    /// A place at or below the start changes nothing; one beyond the end raises ``OffsetOutOfRangeError``.
    #[pyo3(signature = (key, before, *, timeout = None))]
    fn trim<'py>(&self, py: Python<'py>, key: Key, before: &Bound<'py, PyAny>, timeout: Option<f64>) -> Started<'py> {
        verbs::trim(py, &self.core, key, before, timeout)?.spawn(py)
    }

    /// Ends the stream's open range. Returns the next one, which takes the appends from now on.
    #[pyo3(signature = (key, *, timeout = None))]
    fn seal<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> Started<'py> {
        verbs::seal(py, &self.core, key, timeout)?.spawn(py)
    }

    /// A stream's ranges, in their order.
    #[pyo3(signature = (key, *, timeout = None))]
    fn describe_ranges<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> Started<'py> {
        verbs::ranges(py, &self.core, key, timeout)?.spawn(py)
    }

    /// Appends one batch to a stream; see :meth:`Stream.append`.
    #[pyo3(signature = (stream, data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn append<'py>(
        &self,
        py: Python<'py>,
        stream: Key,
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
        sending::start(py, &self.core, stream, &appending, timeout, Patience::Wait)
    }

    /// As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send.
    #[pyo3(signature = (stream, data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn try_append<'py>(
        &self,
        py: Python<'py>,
        stream: Key,
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
        sending::start(py, &self.core, stream, &appending, timeout, Patience::Fail)
    }

    /// Appends one batch to each of several streams, in one frame: ``{stream: data}``.
    ///
    /// Each stream's batch is stored or refused for itself: the exception's ``acks`` tell which were stored.
    #[pyo3(signature = (batches, *, timestamp = None, compression = None, timeout = None))]
    fn append_all<'py>(
        &self,
        py: Python<'py>,
        batches: &Bound<'py, PyAny>,
        timestamp: Option<&Bound<'py, PyAny>>,
        compression: Option<&str>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let how = arguments::how(timestamp, None, compression)?;
        sending::start_all(py, &self.core, batches, how, timeout)
    }

    /// A writer: gathers records into batches, and stores each exactly once and in order.
    ///
    /// A batch is sent when it has ``batch_bytes`` or its first record is ``linger`` seconds old. At most
    /// ``max_in_flight`` batches (up to 64) are on their way; then ``append`` waits. ``timeout`` bounds each batch, all
    /// attempts included, in seconds, and the opening of a writer with a ``writer_id``.
    ///
    /// A writer with a ``writer_id`` (a UUID, or a name of your own) is the same one through all its lives, and the
    /// number of a record is its place in the writer's input. Opening it takes the next ``epoch``: an instance that is
    /// still open elsewhere stores nothing more and gets ``WriterFencedError``. Then it goes on where the one before
    /// stopped: give it your input from ``next_sequence`` on, and each record is stored exactly once. Behind a batch
    /// that is refused, or whose fate stays unknown, it refuses everything until it is opened again. What ``append``
    /// itself refuses, because it is too large or no record, gets no number, and the writer goes on.
    ///
    /// Give an ``epoch`` only if you have a number of your own that says which instance is the newest one: it is used
    /// as it is, and shuts out lower ones when its first batch is stored. With ``idempotent=False`` a batch whose fate
    /// is unknown is not sent again.
    ///
    /// ``on_delivery`` is called once for each batch that was stored or has failed, on the loop's thread.
    /// Without it, the first failure is raised by the next call of the writer.
    #[pyo3(signature = (
        stream, *, batch_bytes = 262_144, linger = 0.005, compression = None, idempotent = true, writer_id = None,
        epoch = None, max_in_flight = 64, on_delivery = None, timeout = 120.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn writer(
        &self,
        py: Python<'_>,
        stream: Key,
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
        AsyncWriter::new(&self.core, stream, &arguments, on_delivery)
    }

    /// Reads once from ``offset`` on: at most ``max_bytes``, though at least one batch where there is one.
    ///
    /// With ``min_bytes`` and ``max_wait`` (seconds) the server waits for so much, and so long at most. An empty list
    /// means that nothing was there.
    ///
    /// Raises ``OffsetOutOfRangeError``.
    #[pyo3(signature = (stream, offset, *, max_bytes = 4_194_304, min_bytes = 0, max_wait = 0.0, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        stream: Key,
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
        verbs::fetch(py, &self.core, stream, offset, bounds, timeout)?.spawn(py)
    }

    /// The batches of one stream or several, one stream after the other; see :meth:`Stream.read`.
    #[pyo3(
        signature = (streams, start = None, end = None, *, timeout = None),
        text_signature = "($self, streams, start='earliest', end='latest', *, timeout=None)"
    )]
    fn read(
        &self,
        py: Python<'_>,
        streams: &Bound<'_, PyAny>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<AsyncBatches> {
        AsyncBatches::new(py, &self.core, Wanted::spans(streams, start, end)?, timeout)
    }

    /// Batches of one stream or several as they arrive, through one FETCH; see :meth:`Stream.tail`.
    #[pyo3(
        signature = (streams, *, start = None, timeout = None),
        text_signature = "($self, streams, *, start='latest', timeout=None)"
    )]
    fn tail(
        &self,
        py: Python<'_>,
        streams: &Bound<'_, PyAny>,
        start: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<AsyncBatches> {
        AsyncBatches::new(py, &self.core, Wanted::tail(streams, start)?, timeout)
    }

    /// What the streams hold now, by name; of all streams without an argument.
    #[pyo3(signature = (streams = None, *, timeout = None))]
    fn positions<'py>(
        &self,
        py: Python<'py>,
        streams: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        verbs::positions(py, &self.core, streams, timeout)?.spawn(py)
    }

    /// For each stream the offset of its first record that is as new as ``time``; its end where none is.
    #[pyo3(signature = (streams, time, *, timeout = None))]
    fn offsets_for_time<'py>(
        &self,
        py: Python<'py>,
        streams: &Bound<'py, PyAny>,
        time: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        verbs::offsets_for_time(py, &self.core, streams, time, timeout)?.spawn(py)
    }

    /// The cursor of this name, as its last commit left it, or a new one.
    ///
    /// ``start`` is where streams begin that were never committed under this name. Streams that were, and are not
    /// listed, keep their places. Commits are kept in the stream ``_sbp/cursors/<name>``; deleting that stream
    /// forgets the cursor.
    ///
    /// Raises ``StreamNotFoundError``, ``InvalidRequestError`` for a name that cannot be one (1 to 242 of the
    /// characters ``A-Z a-z 0-9 . _ / -``), ``DataCorruptedError`` if that stream holds something else,
    /// ``OffsetOutOfRangeError`` for a ``start`` beyond the end of a stream that was not committed before.
    #[pyo3(
        signature = (name, streams, *, start = None, timeout = None),
        text_signature = "($self, name, streams, *, start='earliest', timeout=None)"
    )]
    fn cursor<'py>(
        &self,
        py: Python<'py>,
        name: String,
        streams: &Bound<'py, PyAny>,
        start: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        cursor::open(py, &self.core, name, streams, start, timeout, AsyncCursor::object)?.spawn(py)
    }

    /// The streams ``name-0`` to ``name-<n-1>``, made where they are missing, with records placed by key.
    ///
    /// How many they are is remembered with them; without ``streams`` they must be there. Raises
    /// ``AlreadyExistsError`` when they are not so many, or one of them was made for something else, and
    /// ``StreamNotFoundError``.
    #[pyo3(signature = (name, streams = None, *, timeout = None))]
    fn keyed<'py>(&self, py: Python<'py>, name: String, streams: Option<u32>, timeout: Option<f64>) -> Started<'py> {
        keyed::open(py, &self.core, name, streams, timeout, AsyncKeyed::object)?.spawn(py)
    }

    /// The servers that place streams.
    #[pyo3(signature = (*, timeout = None))]
    fn cluster<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::cluster(py, &self.core, timeout)?.spawn(py)
    }

    /// The time of a round trip to the server, in seconds.
    #[pyo3(signature = (*, timeout = None))]
    fn ping<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        verbs::ping(py, &self.core, timeout)?.spawn(py)
    }

    /// Counters since the client was made: those of :meth:`Client.stats`, and those of the running loop.
    ///
    /// Of the loop: ``wakeups`` by I/O threads, ``completions`` that they brought, and ``operations`` on their way.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.core.stats(py)?;
        let (wakeups, completions, operations) = Here::now(py)?.bridge().counts();
        figures.set_item("wakeups", wakeups)?;
        figures.set_item("completions", completions)?;
        figures.set_item("operations", operations)?;
        Ok(figures)
    }

    /// Ends the connection, once what was sent is answered or five seconds are over; then it is in doubt.
    fn close<'py>(&self, py: Python<'py>) -> Started<'py> {
        let here = Here::now(py)?;
        match self.core.close() {
            Some(client) => here.spawn(
                async move {
                    client.close().await;
                    Ok(())
                },
                |py, ()| Ok(py.None()),
            ),
            None => here.ready(Ok(py.None())),
        }
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> Started<'py> {
        Self::__aenter__(slf)
    }

    fn __aenter__<'py>(slf: Bound<'py, Self>) -> Started<'py> {
        let py = slf.py();
        let core = Arc::clone(&slf.get().core);
        let client = core.client(py)?.clone();
        // Another object of the same client: a reference to this one must not travel through the I/O thread.
        Here::now(py)?.spawn(async move { Ok(client.connect(None).await?) }, move |py, ()| {
            Ok(Py::new(py, Self { core })?.into_any())
        })
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> Started<'py> {
        self.close(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        reduce(py, &self.core, "aio_connect")
    }

    fn __repr__(&self) -> String {
        format!("<sbp_native.AsyncClient of {}>", self.core.settings.servers)
    }
}
