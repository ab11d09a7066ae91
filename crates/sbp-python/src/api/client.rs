//! The client, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::api::cursor::{self, AsyncCursor, Cursor, CursorHolder};
use crate::api::keyed::{self, AsyncKeyed, Keyed, KeyedStreams};
use crate::api::pair::blocking_and_asyncio;
use crate::api::stream::{AsyncStream, Stream};
use crate::append::input::AppendInput;
use crate::append::prepared::BackpressurePolicy;
use crate::bridge::{Operation, RunningLoop};
use crate::call::stream_calls::{self, FetchBounds, MakeStream};
use crate::client_core::{ClientCore, Limits, Retry, Settings};
use crate::process::blocking::block_on;
use crate::read::source::ReadRequest;
use crate::requests::{Key, StreamChange};
use crate::{arguments, errors};

/// Makes an object of a result, of the class for blocking code or of that for asyncio.
type Make<T> = fn(Python<'_>, T) -> PyResult<Py<PyAny>>;

/// A connection to a service, for blocking code. Threads may share it; a forked child needs its own.
#[pyclass(frozen, module = "sbp_native", name = "Client")]
pub(crate) struct Client {
    core: Arc<ClientCore>,
}

impl Client {
    const STREAM: MakeStream = Stream::object;
    const CURSOR: Make<CursorHolder> = Cursor::object;
    const KEYED: Make<KeyedStreams> = Keyed::object;

    /// What it shares with its streams.
    pub(crate) fn core(&self) -> &Arc<ClientCore> {
        &self.core
    }

    fn connect(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        let core = ClientCore::new(py, settings)?;
        let client = core.client(py)?.clone();
        let connected = block_on(py, async move { client.connect(None).await })?;
        connected.map_err(|error| errors::from_client(py, error, None))?;
        Ok(Self { core })
    }
}

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
    core: Arc<ClientCore>,
}

impl AsyncClient {
    const STREAM: MakeStream = AsyncStream::object;
    const CURSOR: Make<CursorHolder> = AsyncCursor::object;
    const KEYED: Make<KeyedStreams> = AsyncKeyed::object;

    fn connect(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        Ok(Self {
            core: ClientCore::new(py, settings)?,
        })
    }
}

/// A function that makes a client of a class.
macro_rules! connect_function {
    ($(#[$attribute:meta])* $name:ident -> $class:ident) => {
        $(#[$attribute])*
        #[pyfunction]
        #[pyo3(signature = (
            servers = None, *, timeout = 30.0, client_id = None, heartbeat_interval = None, max_in_flight_bytes = None,
            max_in_flight_calls = None, max_pinned_bytes = None, max_attempts = None, retry_backoff = None, wait = None
        ))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        pub(crate) fn $name(
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
        ) -> PyResult<$class> {
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
            $class::connect(py, settings)
        }
    };
}

connect_function! {
    /// Connects to the first of the servers that answers.
    connect -> Client
}

connect_function! {
    /// A client that connects when it is awaited or entered.
    aio_connect -> AsyncClient
}

blocking_and_asyncio! {
    impl Client and AsyncClient {
        #[getter]
        /// The addresses it was given.
        fn servers(&self) -> &str {
            &self.core.settings.servers
        }

        #[pyo3(signature = (name, *, schema = None, retention = None, retention_bytes = None, replicas = None, properties = None, exist_ok = false, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        /// Creates a stream; with ``schema``, one that takes Arrow data of that schema only.
        ///
        /// ``retention`` is how long records are kept (a timedelta, or seconds), ``retention_bytes`` how many bytes;
        /// without them, all are. ``replicas`` is how many servers hold each record (1). ``properties`` are notes of yours.
        ///
        /// Raises ``AlreadyExistsError``; with ``exist_ok`` only if the stream has other settings.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders", retention=timedelta(days=7), properties={"owner": "shop"})
            /// >>> orders.info.retention
            /// datetime.timedelta(days=7)
        }
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
        ) -> api::Returned<'py> {
            let wanted = StreamChange {
                replicas,
                ..arguments::change(Some(name), schema, retention, retention_bytes, properties)?
            };
            api::run(py, stream_calls::create(py, &self.core, wanted, exist_ok, timeout, Self::STREAM)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        /// The stream with this name or id. Raises ``StreamNotFoundError``.
        blocking {
            ///
            /// >>> client.create_stream("orders").id == client.stream("orders").id
            /// True
        }
        fn stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::find(py, &self.core, key, timeout, Self::STREAM)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// All streams, by id.
        blocking {
            ///
            /// >>> for name in ("orders", "payments"):
            /// ...     _ = client.create_stream(name)
            /// >>> [info.name for info in client.list_streams()]
            /// ['orders', 'payments']
        }
        fn list_streams<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::list(py, &self.core, timeout)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        /// A stream's settings as they are now. Raises ``StreamNotFoundError``.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders", properties={"owner": "shop"})
            /// >>> client.describe_stream("orders").properties
            /// {'owner': 'shop'}
        }
        fn describe_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::describe(py, &self.core, key, timeout)?)
        }

        #[pyo3(signature = (key, *, name = None, schema = None, retention = None, retention_bytes = None, properties = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        /// Changes a stream's settings; what is not given stays. Returns them all.
        ///
        /// ``name`` renames the stream, ``schema`` adds nullable columns, ``properties`` replaces all of them.
        /// ``retention="forever"`` and ``retention_bytes="unlimited"`` keep everything.
        ///
        /// Raises ``StreamNotFoundError``, ``AlreadyExistsError``, ``SchemaMismatchError``.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders", retention=3600)
            /// >>> client.update_stream("orders", retention="forever").retention is None
            /// True
        }
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
        ) -> api::Returned<'py> {
            let wanted = arguments::change(name, schema, retention, retention_bytes, properties)?;
            api::run(py, stream_calls::update(py, &self.core, key, wanted, timeout)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        /// Deletes a stream with all its records. Raises ``StreamNotFoundError``.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> client.delete_stream("orders")
            /// >>> client.list_streams()
            /// []
        }
        fn delete_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::delete(py, &self.core, key, timeout)?)
        }

        #[pyo3(signature = (key, before, *, timeout = None))]
        /// Deletes the records before a place. Returns the offset that the stream begins at now.
        ///
        /// A place at or below the start changes nothing; one beyond the end raises ``OffsetOutOfRangeError``.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> ack = orders.append([b"a", b"b", b"c"])
            /// >>> client.trim("orders", before="latest-1")
            /// 2
        }
        fn trim<'py>(
            &self,
            py: Python<'py>,
            key: Key,
            before: &Bound<'py, PyAny>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            api::run(py, stream_calls::trim(py, &self.core, key, before, timeout)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        /// Ends the stream's open range. Returns the next one, which takes the appends from now on.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> ack = orders.append([b"a", b"b"])
            /// >>> client.seal("orders").start_offset
            /// 2
        }
        fn seal<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::seal(py, &self.core, key, timeout)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        /// A stream's ranges, in their order.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> [(part.start_offset, part.end_offset) for part in client.describe_ranges("orders")]
            /// [(0, None)]
        }
        fn describe_ranges<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::ranges(py, &self.core, key, timeout)?)
        }

        #[pyo3(signature = (stream, data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        /// Appends one batch to a stream; see :meth:`Stream.append`.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> client.append("orders", b"one", key=b"customer-7", headers={"source": b"shop"}).base_offset
            /// 0
            /// >>> client.append("orders", [b"two", b"three"], compression="zstd").last_offset
            /// 2
        }
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
        ) -> api::Returned<'py> {
            let options = arguments::append_options(timestamp, expected_offset, compression)?;
            let input = AppendInput {
                data,
                key,
                headers,
                options,
            };
            api::append(py, &self.core, stream, &input, timeout, BackpressurePolicy::Wait)
        }

        #[pyo3(signature = (stream, data, *, key = None, headers = None, timestamp = None, expected_offset = None, compression = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        /// As :meth:`append`, but raises ``BackPressureError`` at once instead of waiting for room to send.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> try:
            /// ...     ack = client.try_append("orders", b"one")
            /// ... except sbp.BackPressureError:
            /// ...     print("busy")
        }
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
        ) -> api::Returned<'py> {
            let options = arguments::append_options(timestamp, expected_offset, compression)?;
            let input = AppendInput {
                data,
                key,
                headers,
                options,
            };
            api::append(py, &self.core, stream, &input, timeout, BackpressurePolicy::Fail)
        }

        #[pyo3(signature = (batches, *, timestamp = None, compression = None, timeout = None))]
        /// Appends one batch to each of several streams, in one frame: ``{stream: data}``.
        ///
        /// Each stream's batch is stored or refused for itself: the exception's ``acks`` tell which were stored.
        blocking {
            ///
            /// >>> for name in ("orders", "payments"):
            /// ...     _ = client.create_stream(name)
            /// >>> acks = client.append_all({"orders": [b"o1", b"o2"], "payments": b"p1"})
            /// >>> acks["orders"].last_offset, acks["payments"].last_offset
            /// (1, 0)
        }
        fn append_all<'py>(
            &self,
            py: Python<'py>,
            batches: &Bound<'py, PyAny>,
            timestamp: Option<&Bound<'py, PyAny>>,
            compression: Option<&str>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let options = arguments::append_options(timestamp, None, compression)?;
            api::append_all(py, &self.core, batches, options, timeout)
        }

        #[pyo3(signature = (stream, offset, *, max_bytes = 4_194_304, min_bytes = 0, max_wait = 0.0, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        /// Reads once from ``offset`` on: at most ``max_bytes``, though at least one batch where there is one.
        ///
        /// With ``min_bytes`` and ``max_wait`` (seconds) the server waits for so much, and so long at most. An empty list
        /// means that nothing was there.
        ///
        /// Raises ``OffsetOutOfRangeError``.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> ack = orders.append([b"one", b"two"])
            /// >>> [record.value for batch in client.fetch("orders", 1) for record in batch.records()]
            /// [b'two']
        }
        fn fetch<'py>(
            &self,
            py: Python<'py>,
            stream: Key,
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
            api::run(py, stream_calls::fetch(py, &self.core, stream, offset, bounds, timeout)?)
        }

        #[pyo3(
            signature = (streams, start = None, end = None, *, timeout = None),
            text_signature = "($self, streams, start='earliest', end='latest', *, timeout=None)"
        )]
        /// The batches of one stream or several, one stream after the other; see :meth:`Stream.read`.
        blocking {
            ///
            /// >>> for name in ("orders", "payments"):
            /// ...     _ = client.create_stream(name).append([b"1", b"2", b"3"])
            /// >>> [(batch.stream, len(batch)) for batch in client.read(["orders", "payments"], start="latest-2")]
            /// [('orders', 2), ('payments', 2)]
        }
        fn read(
            &self,
            py: Python<'_>,
            streams: &Bound<'_, PyAny>,
            start: Option<&Bound<'_, PyAny>>,
            end: Option<&Bound<'_, PyAny>>,
            timeout: Option<f64>,
        ) -> PyResult<api::Batches> {
            api::Batches::new(py, &self.core, ReadRequest::spans(streams, start, end)?, timeout)
        }

        #[pyo3(
            signature = (streams, *, start = None, timeout = None),
            text_signature = "($self, streams, *, start='latest', timeout=None)"
        )]
        /// Batches of one stream or several as they arrive, through one FETCH; see :meth:`Stream.tail`.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> with client.tail("orders", start="earliest", timeout=10) as tail:
            /// ...     ack = orders.append(b"one")
            /// ...     next(tail).base_offset
            /// 0
        }
        fn tail(
            &self,
            py: Python<'_>,
            streams: &Bound<'_, PyAny>,
            start: Option<&Bound<'_, PyAny>>,
            timeout: Option<f64>,
        ) -> PyResult<api::Batches> {
            api::Batches::new(py, &self.core, ReadRequest::tail(streams, start)?, timeout)
        }

        #[pyo3(signature = (streams = None, *, timeout = None))]
        /// What the streams hold now, by name; of all streams without an argument.
        blocking {
            ///
            /// >>> ack = client.create_stream("orders").append([b"one", b"two"])
            /// >>> client.positions(["orders"])
            /// {'orders': Positions(earliest=0, latest=2)}
        }
        fn positions<'py>(
            &self,
            py: Python<'py>,
            streams: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            api::run(py, stream_calls::positions(py, &self.core, streams, timeout)?)
        }

        #[pyo3(signature = (streams, time, *, timeout = None))]
        /// For each stream the offset of its first record that is as new as ``time``; its end where none is.
        blocking {
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> for hour in range(3):
            /// ...     ack = orders.append(b"order", timestamp=datetime(2026, 1, 1, hour, tzinfo=UTC))
            /// >>> client.offsets_for_time(["orders"], datetime(2026, 1, 1, 1, tzinfo=UTC))
            /// {'orders': 1}
        }
        fn offsets_for_time<'py>(
            &self,
            py: Python<'py>,
            streams: &Bound<'py, PyAny>,
            time: &Bound<'py, PyAny>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            api::run(py, stream_calls::offsets_for_time(py, &self.core, streams, time, timeout)?)
        }

        #[pyo3(
            signature = (name, streams, *, start = None, timeout = None),
            text_signature = "($self, name, streams, *, start='earliest', timeout=None)"
        )]
        /// The cursor of this name, as its last commit left it, or a new one.
        ///
        /// ``start`` is where streams begin that were never committed under this name. Streams that were, and are not
        /// listed, keep their places. Commits are kept in the stream ``_sbp/cursors/<name>``; deleting that stream
        /// forgets the cursor.
        ///
        /// Raises ``StreamNotFoundError``, ``InvalidRequestError`` for a name that cannot be one (1 to 242 of the
        /// characters ``A-Z a-z 0-9 . _ / -``), ``DataCorruptedError`` if that stream holds something else,
        /// ``OffsetOutOfRangeError`` for a ``start`` beyond the end of a stream that was not committed before.
        blocking {
            ///
            /// >>> ack = client.create_stream("orders").append([b"first", b"second"])
            /// >>> client.cursor("billing", "orders", start="latest").positions
            /// {'orders': 2}
        }
        fn cursor<'py>(
            &self,
            py: Python<'py>,
            name: String,
            streams: &Bound<'py, PyAny>,
            start: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            api::run(py, cursor::open(py, &self.core, name, streams, start, timeout, Self::CURSOR)?)
        }

        #[pyo3(signature = (name, streams = None, *, timeout = None))]
        /// The streams ``name-0`` to ``name-<n-1>``, made where they are missing, with records placed by key.
        ///
        /// How many they are is remembered with them; without ``streams`` they must be there. Raises
        /// ``AlreadyExistsError`` when they are not so many, or one of them was made for something else, and
        /// ``StreamNotFoundError``.
        blocking {
            ///
            /// >>> orders = client.keyed("orders", 4)
            /// >>> ack = orders.append("customer-7", b"one")
            /// >>> ack.stream == orders.stream_of("customer-7")
            /// True
        }
        fn keyed<'py>(
            &self,
            py: Python<'py>,
            name: String,
            streams: Option<u32>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            api::run(py, keyed::open(py, &self.core, name, streams, timeout, Self::KEYED)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// The servers that place streams.
        blocking {
            ///
            /// >>> client.cluster().leader.address == server.address
            /// True
        }
        fn cluster<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::cluster(py, &self.core, timeout)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        /// The time of a round trip to the server, in seconds.
        blocking {
            ///
            /// >>> client.ping() < 10
            /// True
        }
        fn ping<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::ping(py, &self.core, timeout)?)
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.{} of {}>", Self::NAME, self.core.settings.servers)
        }
    }

    writer {
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
        blocking {
            /// ``on_delivery`` is called once for each batch that was stored or has failed, by a thread that calls the writer.
            /// Without it, the first failure is raised by the next call of the writer.
            ///
            /// >>> orders = client.create_stream("orders")
            /// >>> reports = []
            /// >>> with client.writer("orders", compression="lz4", on_delivery=reports.append) as writer:
            /// ...     for number in range(10_000):
            /// ...         sequence = writer.append(b"order %d" % number)
            /// >>> sequence, reports[-1].last_sequence, orders.positions().latest
            /// (9999, 9999, 10000)
        }
        asyncio {
            /// ``on_delivery`` is called once for each batch that was stored or has failed, on the loop's thread.
            /// Without it, the first failure is raised by the next call of the writer.
        }
        fn writer<'py>(&self, py: Python<'py>) (stream: Key) options -> PyResult<api::Writer> {
            api::Writer::open(py, &self.core, stream, &options)
        }
    }

    impl Client {
        /// Counters since the client was made.
        ///
        /// Calls: ``calls`` and ``answers``, ``in_flight`` (started and not over) with ``bytes_in_flight``; bytes:
        /// ``bytes_out``, ``bytes_in``, ``bytes_copied`` (received ones that had to be copied) and ``bytes_pinned`` (that
        /// views keep in memory now); system calls: ``reads`` and ``writes``; ``connections`` made, ``io_wakeups`` of their
        /// tasks; ``round_trips`` measured, in seconds: ``rtt_p50``, ``rtt_p90``, ``rtt_p99`` (at most a sixteenth above
        /// the truth) and ``rtt_max``.
        ///
        /// >>> client.stats()["connections"]
        /// 1
        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.core.stats(py)
        }

        /// Ends the connection, once what was sent is answered or five seconds are over; then it is in doubt.
        ///
        /// Again: does nothing.
        ///
        /// >>> client.close()
        /// >>> client.ping()
        /// Traceback (most recent call last):
        /// ...
        /// sbp_native.errors.ClosedError: ...
        fn close(&self, py: Python<'_>) -> PyResult<()> {
            match self.core.close() {
                Some(client) => block_on(py, async move { client.close().await }),
                None => Ok(()),
            }
        }

        fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
            slf.get().core.client(slf.py())?;
            Ok(slf)
        }

        #[pyo3(signature = (*_exception))]
        fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.core, "connect")
        }
    }

    impl AsyncClient {
        /// Counters since the client was made: those of :meth:`Client.stats`, and those of the running loop.
        ///
        /// Of the loop: ``wakeups`` by I/O threads, ``completions`` that they brought, and ``operations`` on their way.
        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            let figures = self.core.stats(py)?;
            let (wakeups, completions, operations) = RunningLoop::current(py)?.bridge().counts();
            figures.set_item("wakeups", wakeups)?;
            figures.set_item("completions", completions)?;
            figures.set_item("operations", operations)?;
            Ok(figures)
        }

        /// Ends the connection, once what was sent is answered or five seconds are over; then it is in doubt.
        fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let event_loop = RunningLoop::current(py)?;
            match self.core.close() {
                Some(client) => event_loop.spawn(
                    async move {
                        client.close().await;
                        Ok(())
                    },
                    |py, ()| Ok(py.None()),
                ),
                None => event_loop.ready(Ok(py.None())),
            }
        }

        fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            Self::__aenter__(slf)
        }

        fn __aenter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            let py = slf.py();
            let core = Arc::clone(&slf.get().core);
            let client = core.client(py)?.clone();
            // Another object of the same client: a reference to this one must not travel through the I/O thread.
            RunningLoop::current(py)?.spawn(async move { Ok(client.connect(None).await?) }, move |py, ()| {
                Ok(Py::new(py, Self { core })?.into_any())
            })
        }

        #[pyo3(signature = (*_exception))]
        fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Operation>> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.core, "aio_connect")
        }
    }
}

/// A pickle of a client is what it was made with.
fn reduce<'py>(py: Python<'py>, core: &ClientCore, maker: &str) -> PyResult<Bound<'py, PyAny>> {
    let keywords = core.settings.keywords(py)?;
    let partial = py.import("functools")?.getattr("partial")?;
    let maker = partial.call((py.import("sbp_native._native")?.getattr(maker)?,), Some(&keywords))?;
    Ok((maker, (&core.settings.servers,)).into_pyobject(py)?.into_any())
}
