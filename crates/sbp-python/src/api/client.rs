//! The client, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_python_macros::stub_docs;

use crate::api::cursor::{self, AsyncCursor, Cursor, CursorHolder};
use crate::api::keyed::{self, AsyncKeyed, Keyed, KeyedStreams};
use crate::api::pair::blocking_and_asyncio;
use crate::api::stream::{AsyncStream, Stream};
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

#[stub_docs]
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

#[stub_docs]
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
        fn servers(&self) -> &str {
            &self.core.settings.servers
        }

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
        ) -> api::Returned<'py> {
            let wanted = StreamChange {
                replicas,
                ..arguments::change(Some(name), schema, retention, retention_bytes, properties)?
            };
            api::run(py, stream_calls::create(py, &self.core, wanted, exist_ok, timeout, Self::STREAM)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::find(py, &self.core, key, timeout, Self::STREAM)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        fn list_streams<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::list(py, &self.core, timeout)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn describe_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::describe(py, &self.core, key, timeout)?)
        }

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
        ) -> api::Returned<'py> {
            let wanted = arguments::change(name, schema, retention, retention_bytes, properties)?;
            api::run(py, stream_calls::update(py, &self.core, key, wanted, timeout)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn delete_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::delete(py, &self.core, key, timeout)?)
        }

        #[pyo3(signature = (key, before, *, timeout = None))]
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
        fn seal<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::seal(py, &self.core, key, timeout)?)
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn describe_ranges<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::ranges(py, &self.core, key, timeout)?)
        }

        #[pyo3(signature = (batches, *, timestamp = None, compression = None, timeout = None))]
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
        fn positions<'py>(
            &self,
            py: Python<'py>,
            streams: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            api::run(py, stream_calls::positions(py, &self.core, streams, timeout)?)
        }

        #[pyo3(signature = (streams, time, *, timeout = None))]
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
        fn cluster<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::cluster(py, &self.core, timeout)?)
        }

        #[pyo3(signature = (*, timeout = None))]
        fn ping<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, stream_calls::ping(py, &self.core, timeout)?)
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.{} of {}>", Self::NAME, self.core.settings.servers)
        }
    }

    appends(&self, stream: Key) to (&self.core, stream)

    writer {
        fn writer<'py>(&self, py: Python<'py>) (stream: Key) options -> PyResult<api::Writer> {
            api::Writer::open(py, &self.core, stream, &options)
        }
    }

    impl Client {
        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.core.stats(py)
        }

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
        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            let figures = self.core.stats(py)?;
            let (wakeups, completions, operations) = RunningLoop::current(py)?.bridge().counts();
            figures.set_item("wakeups", wakeups)?;
            figures.set_item("completions", completions)?;
            figures.set_item("operations", operations)?;
            Ok(figures)
        }

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
