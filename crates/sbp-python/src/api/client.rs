//! The client, for blocking code and for asyncio.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{IntoPyObjectExt, PyClass};
use sbp_client::{KeyedOptions, Position};
use sbp_messages::{Range, ServerState};
use sbp_types::ServerId;

use crate::api::cursor::CursorHolder;
use crate::api::keyed::KeyedStreams;
use crate::api::pair::blocking_and_asyncio;
use crate::api::stream::StreamHandle;
use crate::append::keys_and_headers::EveryRecord;
use crate::append::prepared::BackpressurePolicy;
use crate::arguments::{self, position_or};
use crate::bridge::{Operation, RunningLoop};
use crate::client_core::{ClientCore, Settings};
use crate::process::blocking::block_on;
use crate::read::source::{self, ReadRequest};
use crate::requests::{self, Key, StreamChange};
use crate::results::cluster::KnownCluster;
use crate::results::histogram::of_client;
use crate::time::timestamp;
use crate::tls::Tls;
use crate::token::{self, Token};

impl Client {
    /// What it shares with its streams.
    pub(crate) fn core(&self) -> &Arc<ClientCore> {
        &self.0
    }

    fn connect(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        let core = ClientCore::new(py, settings)?;
        core.block(py, None, |client, _| async move { client.connect(None).await })?;
        Ok(Self(core))
    }
}

impl AsyncClient {
    fn connect(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        Ok(Self(ClientCore::new(py, settings)?))
    }
}

/// A function that makes a client of a class.
macro_rules! connect_function {
    ($(#[$attribute:meta])* $name:ident -> $class:ident) => {
        $(#[$attribute])*
        #[pyfunction]
        #[pyo3(signature = (
            servers = None, *, timeout = 30.0, client_id = None, heartbeat_interval = None, max_in_flight_bytes = None,
            max_in_flight_calls = None, max_pinned_bytes = None, max_attempts = None, retry_backoff = None, wait = None,
            tls = None, token = None, token_in_clear = None, read_from = "primary",
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
            tls: Option<Tls>,
            token: Option<Token>,
            token_in_clear: Option<bool>,
            read_from: &str,
        ) -> PyResult<$class> {
            // Who takes the servers from the environment takes how to talk to them from there.
            let tls = tls.or_else(|| if servers.is_none() { Tls::of_environment() } else { None });
            let token = token.or_else(|| if servers.is_none() { Token::of_environment() } else { None });
            let token_in_clear = token_in_clear.unwrap_or_else(|| servers.is_none() && token::environment_allows_clear());
            let settings = Settings {
                servers: arguments::servers(servers)?,
                timeout,
                client_id,
                heartbeat_interval,
                max_in_flight_bytes,
                max_in_flight_calls,
                max_pinned_bytes,
                max_attempts,
                retry_backoff,
                wait,
                tls,
                token,
                token_in_clear,
                read_from: arguments::read_from(read_from)?,
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
    struct Client and AsyncClient(Arc<ClientCore>);

    impl Client and AsyncClient {
        #[getter]
        fn servers(&self) -> &str {
            &self.0.settings.servers
        }

        #[pyo3(signature = (name, *, schema = None, retention = None, retention_bytes = None, replicas = None, acks = None, properties = None, exist_ok = false, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        fn create_stream<'py>(
            &self,
            py: Python<'py>,
            name: String,
            schema: Option<&Bound<'py, PyAny>>,
            retention: Option<&Bound<'py, PyAny>>,
            retention_bytes: Option<&Bound<'py, PyAny>>,
            replicas: Option<i8>,
            acks: Option<i8>,
            properties: Option<&Bound<'py, PyDict>>,
            exist_ok: bool,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let wanted = StreamChange {
                replicas,
                acks,
                ..arguments::change(Some(name), schema, retention, retention_bytes, properties)?
            };
            let core = Arc::clone(&self.0);
            api::run_into(
                py,
                &self.0,
                timeout,
                |client, timeout| async move { requests::create(&client, wanted, exist_ok, timeout).await },
                |py, described| api::Stream(StreamHandle { core, described }).into_py_any(py),
            )
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            let core = Arc::clone(&self.0);
            // As it is now, and not as it was when an append asked for it.
            api::run_into(
                py,
                &self.0,
                timeout,
                |client, timeout| async move { requests::describe(&client, &key, timeout).await },
                |py, described| api::Stream(StreamHandle { core, described }).into_py_any(py),
            )
        }

        #[pyo3(signature = (*, timeout = None))]
        fn list_streams<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move { requests::list(&client, timeout).await })
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn describe_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::describe(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (key, *, name = None, schema = None, retention = None, retention_bytes = None, replicas = None, acks = None, properties = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        fn update_stream<'py>(
            &self,
            py: Python<'py>,
            key: Key,
            name: Option<String>,
            schema: Option<&Bound<'py, PyAny>>,
            retention: Option<&Bound<'py, PyAny>>,
            retention_bytes: Option<&Bound<'py, PyAny>>,
            replicas: Option<i8>,
            acks: Option<i8>,
            properties: Option<&Bound<'py, PyDict>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let wanted = StreamChange {
                replicas,
                acks,
                ..arguments::change(name, schema, retention, retention_bytes, properties)?
            };
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::update(&client, &key, wanted, timeout).await
            })
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn delete_stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::delete(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (key, before, *, timeout = None))]
        fn trim<'py>(
            &self,
            py: Python<'py>,
            key: Key,
            before: &Bound<'py, PyAny>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let before = arguments::position(before)?;
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::trim(&client, &key, before, timeout).await
            })
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn seal<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::seal(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (key, *, timeout = None))]
        fn describe_ranges<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::ranges(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (batches, *, headers = None, timestamp = None, compression = None, timeout = None))]
        fn append_all<'py>(
            &self,
            py: Python<'py>,
            batches: &Bound<'py, PyAny>,
            headers: Option<&Bound<'py, PyAny>>,
            timestamp: Option<&Bound<'py, PyAny>>,
            compression: Option<&str>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let options = arguments::append_options(timestamp, None, compression)?;
            let headers = headers.map(EveryRecord::of).transpose()?;
            api::append_all(py, &self.0, (batches, headers.as_ref()), options, timeout)
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
            let wanted = arguments::fetch_request(offset, max_bytes, min_bytes, max_wait)?;
            let copied = Arc::clone(&self.0.copied);
            api::run(py, &self.0, timeout, |client, timeout| async move {
                source::fetch(&client, &stream, wanted, &copied, timeout).await
            })
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
            api::Batches::new(py, &self.0, ReadRequest::spans(streams, start, end)?, timeout, None)
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
            api::Batches::new(py, &self.0, ReadRequest::tail(streams, start)?, timeout, None)
        }

        #[pyo3(signature = (streams = None, *, timeout = None))]
        fn positions<'py>(
            &self,
            py: Python<'py>,
            streams: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let keys = streams.map(arguments::keys).transpose()?;
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::positions(&client, keys, timeout).await
            })
        }

        #[pyo3(signature = (streams, time, *, timeout = None))]
        fn offsets_for_time<'py>(
            &self,
            py: Python<'py>,
            streams: &Bound<'py, PyAny>,
            time: &Bound<'py, PyAny>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let (keys, time) = (arguments::keys(streams)?, timestamp(time)?);
            api::run(py, &self.0, timeout, |client, timeout| async move {
                requests::offsets_for_time(&client, &keys, time, timeout).await
            })
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
            let keys = arguments::keys(streams)?;
            let start = position_or(start, Position::Earliest)?;
            let core = Arc::clone(&self.0);
            api::run_into(
                py,
                &self.0,
                timeout,
                |client, timeout| CursorHolder::open(client, core, name, keys, start, timeout),
                |py, holder| api::Cursor(holder).into_py_any(py),
            )
        }

        #[pyo3(signature = (name, streams = None, *, replicas = None, acks = None, timeout = None))]
        fn keyed<'py>(
            &self,
            py: Python<'py>,
            name: String,
            streams: Option<u32>,
            replicas: Option<i8>,
            acks: Option<i8>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let core = Arc::clone(&self.0);
            let options = KeyedOptions {
                streams,
                replicas: replicas.unwrap_or(0),
                acks: acks.unwrap_or(0),
                timeout: None,
            };
            api::run_into(
                py,
                &self.0,
                timeout,
                |client, timeout| KeyedStreams::open(client, core, name, KeyedOptions { timeout, ..options }),
                |py, set| api::Keyed(set).into_py_any(py),
            )
        }

        #[pyo3(signature = (*, timeout = None))]
        fn cluster<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                let described = client.describe_cluster(timeout).await?;
                let id = client.features().and_then(|features| features.cluster);
                Ok(KnownCluster { id, described })
            })
        }

        #[pyo3(signature = (server_id, *, wait = None, timeout = None))]
        fn drain<'py>(
            &self,
            py: Python<'py>,
            server_id: i32,
            wait: Option<f64>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let of_seconds = |wait: f64| {
                let why = |_| PyValueError::new_err(format!("wait is seconds, 0 or more and finite, not {wait}"));
                Duration::try_from_secs_f64(wait).map_err(why)
            };
            let wait = wait.map(of_seconds).transpose()?;
            api::run(py, &self.0, timeout, move |client, timeout| async move {
                Ok(client.drain(ServerId(server_id), wait, timeout).await?)
            })
        }

        #[pyo3(signature = (server_id, *, timeout = None))]
        fn undrain<'py>(&self, py: Python<'py>, server_id: i32, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, move |client, timeout| async move {
                let server = ServerId(server_id);
                Ok(client.set_server_state(server, ServerState::IN_USE, timeout).await?)
            })
        }

        #[pyo3(signature = (*, most = 100, dry_run = false, timeout = None))]
        fn balance<'py>(
            &self,
            py: Python<'py>,
            most: u16,
            dry_run: bool,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            if !(1..=100).contains(&most) {
                return Err(PyValueError::new_err(format!("most is a number from 1 to 100, not {most}")));
            }
            api::run(py, &self.0, timeout, move |client, timeout| async move {
                let moves = client.moves_to_balance(usize::from(most), timeout).await?;
                if dry_run {
                    return Ok(moves.into_iter().map(|one| one.range).collect());
                }
                let (mut moved, mut failed): (Vec<Range>, _) = (Vec::new(), None);
                for (_, result) in client.make_moves(&moves, timeout).await? {
                    match result {
                        Ok(range) => moved.push(range),
                        Err(error) => failed = failed.or(Some(error)),
                    }
                }
                match failed.filter(|_| moved.is_empty()) {
                    Some(error) => Err(error.into()),
                    None => Ok(moved),
                }
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn ping<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move { Ok(client.ping(timeout).await?) })
        }

        fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            of_client(py, &self.0.client(py)?.metrics())
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.{} of {}>", Self::NAME, self.0.settings.servers)
        }
    }

    appends(&self, stream: Key) to (&self.0, stream)

    writer {
        fn writer<'py>(&self, py: Python<'py>) (stream: Key) options -> PyResult<api::Writer> {
            api::Writer::open(py, &self.0, stream, &options)
        }
    }

    impl Client {
        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.0.stats(py)
        }

        fn close(&self, py: Python<'_>) -> PyResult<()> {
            match self.0.close() {
                Some(client) => block_on(py, async move { client.close().await }),
                None => Ok(()),
            }
        }

        fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
            slf.get().0.client(slf.py())?;
            Ok(slf)
        }

        #[pyo3(signature = (*_exception))]
        fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.0, "connect")
        }
    }

    impl AsyncClient {
        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            let figures = self.0.stats(py)?;
            let (wakeups, completions, operations) = RunningLoop::current(py)?.bridge().counts();
            figures.set_item("wakeups", wakeups)?;
            figures.set_item("completions", completions)?;
            figures.set_item("operations", operations)?;
            Ok(figures)
        }

        fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let event_loop = RunningLoop::current(py)?;
            match self.0.close() {
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
            let core = Arc::clone(&slf.get().0);
            let client = core.client(py)?.clone();
            // Another object of the same client: a reference to this one must not travel through the I/O thread.
            RunningLoop::current(py)?.spawn(async move { Ok(client.connect(None).await?) }, move |py, ()| {
                Ok(Py::new(py, Self(core))?.into_any())
            })
        }

        #[pyo3(signature = (*_exception))]
        fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Operation>> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.0, "aio_connect")
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
