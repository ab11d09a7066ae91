//! The placement driver around its pure half: the thread that makes changes durable, and the state that all threads
//! read.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use sbp_locks::{Mutex, RwLock};
use sbp_messages::{RangeServer as RangeServerName, RangeServerStatus, ServerState};
use sbp_types::ServerId;

use super::choose::ServerLoad;
use super::range_servers::{RangeServer, RangeServers, reach};
use super::registry::Registry;
use super::request::MetadataJob;
use super::state::PlacementState;
use super::worker::{DriverParts, Event, Worker};
use crate::refusal::Refusal;

/// The placement driver. Any thread may read its state; one thread changes it.
pub(crate) struct PlacementDriver {
    state: Arc<RwLock<PlacementState>>,
    registry: Arc<Mutex<Registry>>,
    range_servers: Arc<dyn RangeServers>,
    events: Mutex<Option<mpsc::Sender<Event>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for PlacementDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementDriver").finish_non_exhaustive()
    }
}

impl PlacementDriver {
    /// Starts the thread. Operations on one stream are done in the order in which they are [submitted](Self::submit).
    pub(crate) fn start(parts: DriverParts) -> io::Result<Self> {
        for server in parts.state.servers() {
            parts.range_servers.locate(server.id, &server.address);
        }
        let state = Arc::new(RwLock::new(parts.state.clone()));
        let registry = Registry::new(parts.always_up, parts.times.silence, Instant::now());
        let registry = Arc::new(Mutex::new(registry));
        let (sender, inbox) = mpsc::channel();
        let range_servers = Arc::clone(&parts.range_servers);
        let worker = Worker::new(parts, Arc::clone(&state), Arc::clone(&registry), sender.clone());
        let thread = std::thread::Builder::new()
            .name("sbp-metadata".to_owned())
            .spawn(move || worker.run(&inbox))?;
        Ok(Self {
            state,
            registry,
            range_servers,
            events: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Gives `look` the durable metadata, under a lock that must be held for moments only.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&PlacementState) -> R) -> R {
        look(&self.state.read())
    }

    /// Queues a request. Returns false, and does nothing, when the server is shutting down.
    pub(crate) fn submit(&self, job: MetadataJob) -> bool {
        self.send(Event::Job(job))
    }

    /// Notes a HEARTBEAT of a range server.
    pub(crate) fn heard(&self, server: ServerId, connection: i64, replicates: bool) {
        let is_new = self
            .registry
            .lock()
            .heard(server, connection, replicates, Instant::now());
        if is_new {
            tracing::info!(%server, "a range server is up");
        }
        self.send(Event::Settle(server));
    }

    /// Notes the load that a range server has reported.
    pub(crate) fn report(&self, server: ServerId, load: ServerLoad) {
        self.registry.lock().report(server, load, Instant::now());
    }

    /// Notes that a connection to a range server has closed.
    pub(crate) fn closed(&self, server: ServerId, connection: i64) {
        if self.registry.lock().closed(server, connection) {
            self.send(Event::Lost(server));
        }
    }

    /// Whether the range server is up, and the load that it last reported.
    pub(crate) fn presence(&self, server: ServerId) -> (bool, ServerLoad) {
        let registry = self.registry.lock();
        (registry.is_up(server, Instant::now()), registry.load(server))
    }

    /// The range servers as this placement driver sees them: `own`, the one in the same process, and those that said where
    /// they are.
    pub(crate) fn range_server_statuses(&self, own: Option<RangeServerName>) -> Vec<RangeServerStatus> {
        let state = self.state.read();
        let registry = self.registry.lock();
        let now = Instant::now();
        let own_id = own.as_ref().map(|own| own.server_id);
        let others = state.servers().filter(|record| Some(record.id) != own_id);
        let others = others.map(|record| RangeServerName {
            server_id: record.id,
            advertise_addr: record.address.clone(),
            ..RangeServerName::default()
        });
        let status = |server: RangeServerName| {
            let id = server.server_id;
            let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
            let silence = registry.silence(id, now).map(|silence| silence.as_millis());
            RangeServerStatus {
                range_server: Some(server),
                state: ServerState::IN_USE,
                is_up: registry.is_up(id, now),
                silent_ms: silence.map_or(-1, |millis| i64::try_from(millis).unwrap_or(i64::MAX)),
                open_range_cnt: count(state.open_ranges_on(id)),
                missing_replica_cnt: count(state.ranges_lacking_replicas_on(id)),
            }
        };
        own.into_iter().chain(others).map(status).collect()
    }

    /// The range server, if it is up and its address is known.
    pub(crate) fn range_server(&self, server: ServerId) -> Result<Arc<dyn RangeServer>, Refusal> {
        reach(&*self.range_servers, &self.registry, server)
    }

    /// Checks now which deleted streams can be forgotten, instead of waiting for the next regular check.
    #[cfg(test)]
    pub(crate) fn sweep(&self) {
        self.send(Event::Sweep);
    }

    /// Ends the thread once what was submitted is done. Answers of range servers are waited for only for a limited
    /// time.
    pub(crate) fn stop(&self) {
        if let Some(events) = self.events.lock().take() {
            let _ended = events.send(Event::Stop);
        }
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the metadata thread panicked");
        }
    }

    fn send(&self, event: Event) -> bool {
        let events = self.events.lock();
        events.as_ref().is_some_and(|events| events.send(event).is_ok())
    }
}
