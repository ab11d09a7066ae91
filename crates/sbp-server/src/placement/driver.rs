//! The placement driver around its pure half: the thread that makes changes durable, and everybody's view of them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use sbp_locks::{Mutex, RwLock};
use sbp_log::Clock;
use sbp_types::ServerId;

use super::choose::Load;
use super::range_servers::RangeServers;
use super::registry::Registry;
use super::request::MetadataJob;
use super::state::PlacementState;
use super::worker::{Event, Worker};
use crate::failure::Health;
use crate::meta::MetadataStore;
use crate::range::{HeldRange, Phase, RangeServer, RangeState};

/// The range server in this process.
#[derive(Clone, Debug)]
pub(crate) struct LocalRanges {
    pub(crate) id: ServerId,
    pub(crate) ranges: Arc<RangeServer>,
}

/// What a placement driver is made of.
#[derive(Debug)]
pub(crate) struct DriverParts {
    pub(crate) state: PlacementState,
    pub(crate) store: Box<dyn MetadataStore>,
    /// Its metadata is in the same store, and changes in the same transactions.
    pub(crate) local: Option<LocalRanges>,
    pub(crate) others: Arc<dyn RangeServers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
}

/// The placement driver: anybody may look, one thread changes.
pub(crate) struct PlacementDriver {
    state: Arc<RwLock<PlacementState>>,
    registry: Arc<Mutex<Registry>>,
    others: Arc<dyn RangeServers>,
    events: Mutex<Option<mpsc::Sender<Event>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for PlacementDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementDriver").finish_non_exhaustive()
    }
}

impl PlacementDriver {
    /// Starts the thread. Operations of one stream are done in the order in which they are [submitted](Self::submit).
    pub(crate) fn start(parts: DriverParts) -> io::Result<Self> {
        for server in parts.state.servers() {
            parts.others.locate(server.id, &server.address);
        }
        let state = Arc::new(RwLock::new(parts.state.clone()));
        let own = parts.local.as_ref().map(|local| local.id);
        let registry = Arc::new(Mutex::new(Registry::new(own)));
        let (sender, inbox) = mpsc::channel();
        let others = Arc::clone(&parts.others);
        let worker = Worker::new(parts, Arc::clone(&state), Arc::clone(&registry), sender.clone());
        let thread = std::thread::Builder::new()
            .name("sbp-metadata".to_owned())
            .spawn(move || worker.run(&inbox))?;
        Ok(Self {
            state,
            registry,
            others,
            events: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The metadata as it is durable. Held for moments only.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&PlacementState) -> R) -> R {
        look(&self.state.read())
    }

    /// Queues a request. False, with nothing done, when the server is going down.
    pub(crate) fn submit(&self, job: MetadataJob) -> bool {
        self.send(Event::Job(job))
    }

    /// A range server said that it is there.
    pub(crate) fn heard(&self, server: ServerId, connection: i64) {
        self.registry.lock().heard(server, connection, Instant::now());
        self.send(Event::Settle(server));
    }

    /// A range server said how it does.
    pub(crate) fn report(&self, server: ServerId, load: Load) {
        self.registry.lock().report(server, load, Instant::now());
    }

    /// A connection over which a range server was heard is gone.
    pub(crate) fn closed(&self, server: ServerId, connection: i64) {
        self.registry.lock().closed(server, connection);
    }

    /// The range servers in other processes.
    pub(crate) fn others(&self) -> &Arc<dyn RangeServers> {
        &self.others
    }

    /// Whether the range server is up, as far as the placement driver knows.
    pub(crate) fn is_up(&self, server: ServerId) -> bool {
        self.registry.lock().is_up(server, Instant::now())
    }

    /// Looks for deleted streams that can be forgotten, as is done now and then.
    #[cfg(test)]
    pub(crate) fn sweep(&self) {
        self.send(Event::Sweep);
    }

    /// Ends the thread, after what was submitted is done; what waits for another server is given up after a while.
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

impl HeldRange {
    /// The range without records.
    pub(crate) fn fresh(&self) -> RangeState {
        RangeState {
            index: self.key.range,
            epoch: self.epoch,
            start: self.start,
            next: self.start,
            confirmed: self.start,
            phase: if self.end.is_some() { Phase::Sealed } else { Phase::Open },
            generation: 0,
        }
    }
}
