//! What the Python objects of one client share: the client of the Rust core, its settings, and what it knows of streams.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyResourceWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_client::{AppendsInFlight, Client, ClientConfig, ReadFrom};
use sbp_locks::Mutex;
use sbp_messages::Stream;
use sbp_types::StreamId;

use crate::errors;
use crate::interpreter::warnings::warn;
use crate::owner::{self, Owner};
use crate::process::fork::{self, Generation, Holder};
use crate::process::owned::Owned;
use crate::process::runtime;
use crate::requests::{Described, Failure, Key};
use crate::time::{duration, seconds};
use crate::tls::Tls;
use crate::token::Token;

/// What clients of this process have on their way, also those that are gone. Only locked while attached.
static UNANSWERED: Mutex<Vec<Unanswered>> = Mutex::new(Vec::new());

/// The appends of one client that have no answer.
struct Unanswered {
    core: Weak<ClientCore>,
    made_by: Generation,
    servers: String,
    appends: AppendsInFlight,
}

/// One client of the core, in the process that made it. It holds no Python object, so that I/O threads may drop it.
pub(crate) struct ClientCore {
    client: Owned<Client>,
    /// Descriptions read before. Only locked while attached to the interpreter.
    described: Mutex<HashMap<StreamId, Arc<Described>>>,
    /// Bytes of received batches that had to be copied in user space.
    pub(crate) copied: Arc<AtomicU64>,
    /// What it was made with, to make another one of: pickles carry this and nothing else.
    pub(crate) settings: Settings,
}

/// What a client is told when it is made: the keywords of `connect`. `None`: the client's defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `host:port`, several separated by commas.
    pub(crate) servers: String,
    /// What calls may take that are not given a time of their own, in seconds.
    pub(crate) timeout: f64,
    /// What the client calls itself to the server.
    pub(crate) client_id: Option<String>,
    /// Seconds between two signs of life.
    pub(crate) heartbeat_interval: Option<f64>,
    /// Bytes of appends on their way.
    pub(crate) max_in_flight_bytes: Option<usize>,
    /// Calls on their way.
    pub(crate) max_in_flight_calls: Option<usize>,
    /// Bytes of received frames that batches and payloads keep in memory.
    pub(crate) max_pinned_bytes: Option<usize>,
    /// Attempts after which a call gives up even when time is left.
    pub(crate) max_attempts: Option<u32>,
    /// The first bound of the waiting time between two attempts, in seconds.
    pub(crate) retry_backoff: Option<f64>,
    /// How long a service that was never reached is waited for, in seconds.
    pub(crate) wait: Option<f64>,
    /// TLS with the servers.
    pub(crate) tls: Option<Tls>,
    /// What says who the client is, to servers that ask.
    pub(crate) token: Option<Token>,
    /// Sends the token without TLS too.
    pub(crate) token_in_clear: bool,
    /// Which of the servers that hold a range are read from: its primary, or any.
    pub(crate) read_from: ReadFrom,
}

impl Settings {
    /// The defaults, for these servers.
    pub(crate) fn new(servers: &str, timeout: f64) -> Self {
        Self {
            servers: servers.to_owned(),
            timeout,
            ..Self::default()
        }
    }

    /// As the keywords of `connect`.
    pub(crate) fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        keywords.set_item("timeout", self.timeout)?;
        keywords.set_item("client_id", &self.client_id)?;
        keywords.set_item("heartbeat_interval", self.heartbeat_interval)?;
        keywords.set_item("max_in_flight_bytes", self.max_in_flight_bytes)?;
        keywords.set_item("max_in_flight_calls", self.max_in_flight_calls)?;
        keywords.set_item("max_pinned_bytes", self.max_pinned_bytes)?;
        keywords.set_item("max_attempts", self.max_attempts)?;
        keywords.set_item("retry_backoff", self.retry_backoff)?;
        keywords.set_item("wait", self.wait)?;
        keywords.set_item("tls", self.tls.clone())?;
        keywords.set_item("token_in_clear", self.token_in_clear)?;
        if self.read_from == ReadFrom::Any {
            keywords.set_item("read_from", "any")?;
        }
        keywords.set_item("token", self.token.as_ref().map(Token::pickled).transpose()?)?;
        Ok(keywords)
    }
}

impl ClientCore {
    /// A client that is not connected yet.
    pub(crate) fn new(py: Python<'_>, settings: Settings) -> PyResult<Arc<Self>> {
        let tls = settings.tls.as_ref().map(Tls::client);
        // Outside of the interpreter lock: files are read, the machine's own list of authorities among them.
        let config = py.detach(|| ClientConfig::with_tls(&settings.servers, tls));
        let mut config = config.map_err(|error| errors::invalid(py, &error.to_string()))?;
        config.token_in_clear = settings.token_in_clear;
        config.read_from = settings.read_from;
        config.token = settings.token.as_ref().map(Token::source);
        config.timeout = seconds(settings.timeout)?;
        config.connect_timeout = config.connect_timeout.min(config.timeout);
        if let Some(id) = &settings.client_id {
            config.client_id.clone_from(id);
        }
        if let Some(interval) = settings.heartbeat_interval {
            config.heartbeat_interval = seconds(interval)?;
        }
        if let Some(bytes) = settings.max_in_flight_bytes {
            config.send_credit = bytes.max(1);
        }
        if let Some(calls) = settings.max_in_flight_calls {
            config.max_calls = calls.max(1);
        }
        if let Some(bytes) = settings.max_pinned_bytes {
            config.max_pinned_bytes = bytes;
        }
        if let Some(attempts) = settings.max_attempts {
            config.retry.max_attempts = attempts.max(1);
        }
        if let Some(bound) = settings.retry_backoff {
            config.retry.backoff_min = seconds(bound)?;
            config.retry.backoff_max = config.retry.backoff_max.max(config.retry.backoff_min);
        }
        if let Some(wait) = settings.wait {
            config.retry.first_connect_wait = Duration::try_from_secs_f64(wait)
                .map_err(|_| PyValueError::new_err(format!("wait is seconds, 0 or more and finite, not {wait}")))?;
        }
        let core = Arc::new(Self {
            client: Owned::new("client", Client::new(config, runtime::handle(py)?)),
            described: Mutex::new(HashMap::new()),
            copied: Arc::default(),
            settings,
        });
        fork::register(py, &core);
        core.note_unanswered();
        Ok(core)
    }

    /// The client, for one call.
    ///
    /// # Errors
    ///
    /// `ForkedClientError` in a child of the process that made it; `ClosedError` after `close`.
    pub(crate) fn client(&self, py: Python<'_>) -> PyResult<&Client> {
        self.client.get(py)
    }

    /// Makes a call and waits for it: `work` is done by the I/O thread, over Rust data only.
    pub(crate) fn block<T, E, F>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        work: impl FnOnce(Client, Option<Duration>) -> F,
    ) -> PyResult<T>
    where
        T: Send + 'static,
        E: Into<Failure> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        owner::block(py, self, timeout, work)
    }

    /// Whether this process made the client.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.client.made_by().is_current()
    }

    /// A stream, if the client knows it without asking.
    pub(crate) fn known(&self, py: Python<'_>, key: &Key) -> PyResult<Option<Arc<Described>>> {
        let client = self.client(py)?;
        if let Key::Known(stream) = key {
            let same = client.check_same(&stream.stream);
            same.map_err(|error| errors::from_client(py, error, None))?;
        }
        let known = match key {
            // A stream without a schema never gets one. The columns of others may have been described again since.
            Key::Known(stream) => {
                let grown = |known: &Arc<Stream>| known.schema != stream.stream.schema;
                match client.known_stream_id(stream.stream.stream_id).filter(grown) {
                    Some(known) if stream.schema.is_some() => Some(known),
                    _ => return Ok(Some(Arc::clone(stream))),
                }
            }
            Key::Name(name) => client.known_stream(name),
            Key::Id(id) => client.known_stream_id(*id),
        };
        let Some(known) = known else {
            return Ok(None);
        };
        let id = known.stream_id;
        let mut described = self.described.lock();
        match described.get(&id) {
            Some(read) if Arc::ptr_eq(&read.stream, &known) && read.is_gone() => {
                client.forget_stream(id);
                described.remove(&id);
                Ok(None)
            }
            Some(read) if Arc::ptr_eq(&read.stream, &known) => Ok(Some(Arc::clone(read))),
            _ => {
                let read = Described::new(known).map_err(|error| errors::corrupt(py, &error.to_string()))?;
                described.insert(id, Arc::clone(&read));
                Ok(Some(read))
            }
        }
    }

    /// As [`Self::known`], for a caller that has the time to ask: not where a connection was lost or made since, for the
    /// server may have lost its data.
    pub(crate) fn current(&self, py: Python<'_>, key: &Key) -> PyResult<Option<Arc<Described>>> {
        let client = self.client(py)?;
        let known = self.known(py, key)?;
        Ok(known.filter(|stream| stream.stream.identity.is_none() || client.is_current(stream.stream.stream_id)))
    }

    /// As [`Self::known`], for a caller that does not wait: where it would be time to ask, that is done beside the call.
    pub(crate) fn known_now(&self, py: Python<'_>, key: &Key) -> PyResult<Option<Arc<Described>>> {
        let known = self.known(py, key)?;
        if let Some(stream) = &known {
            self.client(py)?.confirm_beside(&stream.stream);
        }
        Ok(known)
    }

    /// Streams, if `one` finds all of them.
    pub(crate) fn all<'py>(
        &self,
        py: Python<'py>,
        keys: &[Key],
        one: impl Fn(&Self, Python<'py>, &Key) -> PyResult<Option<Arc<Described>>>,
    ) -> PyResult<Option<Vec<Arc<Described>>>> {
        keys.iter().map(|key| one(self, py, key)).collect()
    }

    /// The client, for a flush: without questions.
    pub(crate) fn unchecked_client(&self) -> Option<&Client> {
        self.client.unchecked()
    }

    /// Refuses further calls. The client to close the connection of, if this was the first time, in its own process.
    pub(crate) fn close(&self) -> Option<Client> {
        self.client.close()
    }

    /// When a call that starts now gives up.
    pub(crate) fn deadline(&self, client: &Client, timeout: Option<f64>) -> PyResult<Instant> {
        Ok(client.deadline(duration(timeout)?))
    }

    /// Has the exit hook look after this client's appends.
    fn note_unanswered(self: &Arc<Self>) {
        let Some(client) = self.client.unchecked() else {
            return;
        };
        let mut unanswered = UNANSWERED.lock();
        unanswered.retain(Unanswered::is_open);
        unanswered.push(Unanswered {
            core: Arc::downgrade(self),
            made_by: self.client.made_by(),
            servers: self.settings.servers.clone(),
            appends: client.appends_in_flight(),
        });
    }

    /// Counters, as a dict.
    pub(crate) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.client(py)?.stats();
        let figures = PyDict::new(py);
        figures.set_item("calls", stats.calls)?;
        figures.set_item("answers", stats.answers)?;
        figures.set_item("in_flight", stats.in_flight)?;
        figures.set_item("bytes_in_flight", stats.bytes_in_flight)?;
        figures.set_item("bytes_out", stats.bytes_out)?;
        figures.set_item("bytes_in", stats.bytes_in)?;
        let copied = self.copied.load(Ordering::Relaxed) + stats.bytes_unpinned;
        figures.set_item("bytes_copied", copied)?;
        figures.set_item("bytes_pinned", stats.bytes_pinned)?;
        figures.set_item("connections", stats.connections)?;
        figures.set_item("reads", stats.reads)?;
        figures.set_item("writes", stats.writes)?;
        figures.set_item("io_wakeups", stats.wakeups)?;
        let trips = stats.round_trips;
        figures.set_item("round_trips", trips.count)?;
        figures.set_item("rtt_p50", trips.p50.as_secs_f64())?;
        figures.set_item("rtt_p90", trips.p90.as_secs_f64())?;
        figures.set_item("rtt_p99", trips.p99.as_secs_f64())?;
        figures.set_item("rtt_max", trips.max.as_secs_f64())?;
        Ok(figures)
    }
}

impl Holder for ClientCore {
    fn descriptors(&self) -> Vec<RawFd> {
        self.client.inherited().map(Client::descriptors).unwrap_or_default()
    }
}

impl Owner for ClientCore {
    type Client = Client;

    fn owned(&self) -> &Owned<Client> {
        &self.client
    }
}

impl Unanswered {
    /// Whether there is, or may yet be, something to tell.
    fn is_open(&self) -> bool {
        self.made_by.is_current() && (self.core.strong_count() > 0 || self.appends.count() > 0)
    }

    /// Warns, if there are any.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        let appends = self.appends.count();
        if appends == 0 || !self.made_by.is_current() {
            return Ok(());
        }
        let message = format!(
            "{appends} appends to {} have no answer yet at exit, they may be stored or lost: await them, or close the \
             client",
            self.servers
        );
        warn::<PyResourceWarning>(py, &message)
    }
}

/// Warns of clients with appends whose fate is not known, but for those in `told`. For the exit hook only.
pub(crate) fn warn_in_flight(py: Python<'_>, told: &[*const ClientCore]) -> PyResult<()> {
    let unanswered = std::mem::take(&mut *UNANSWERED.lock());
    unanswered
        .iter()
        .filter(|of| !told.contains(&of.core.as_ptr()))
        .try_for_each(|of| of.warn(py))
}
