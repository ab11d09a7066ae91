//! The placement driver around its pure half: the thread that makes changes durable.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use sbp_frame::CallId;
use sbp_log::Clock;
use sbp_messages::ErrorCode;
use sbp_types::ServerId;

use super::apply::{Command, Effects, Reply, apply};
use super::state::{Change, PlacementState};
use crate::connection::{ConnectionCommand, Port};
use crate::failure::Health;
use crate::meta::{MetadataChange, MetadataError, MetadataStore};
use crate::range::{HeldRange, Phase, RangeHub, RangeState};
use crate::refusal::Refusal;

/// A change somebody asks for, and where the answer goes.
#[derive(Debug)]
pub(crate) struct MetadataJob {
    pub(crate) port: Arc<Port>,
    pub(crate) call: CallId,
    /// When it is no longer worth starting.
    pub(crate) deadline: Instant,
    pub(crate) command: Command,
}

/// The placement driver: anybody may look, one thread changes.
#[derive(Debug)]
pub(crate) struct PlacementDriver {
    state: Arc<RwLock<PlacementState>>,
    jobs: Mutex<Option<mpsc::Sender<MetadataJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl PlacementDriver {
    /// Starts the thread. Changes are applied in the order in which they are [submitted](Self::submit).
    pub(crate) fn start(
        state: PlacementState,
        store: Box<dyn MetadataStore>,
        hub: Arc<RangeHub>,
        server_id: ServerId,
        clock: Arc<dyn Clock>,
        health: Arc<Health>,
    ) -> io::Result<Self> {
        let state = Arc::new(RwLock::new(state));
        let (sender, jobs) = mpsc::channel::<MetadataJob>();
        let mut worker = Worker {
            state: Arc::clone(&state),
            store,
            hub,
            server_id,
            clock,
            health,
        };
        let thread = std::thread::Builder::new()
            .name("sbp-metadata".to_owned())
            .spawn(move || {
                for job in jobs {
                    worker.handle_job(job);
                }
            })?;
        Ok(Self {
            state,
            jobs: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The metadata as it is durable. Held for moments only.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&PlacementState) -> R) -> R {
        look(&self.state.read())
    }

    /// Queues a change; its answer goes to the job's connection. False when the server is going down.
    pub(crate) fn submit(&self, job: MetadataJob) -> bool {
        self.jobs.lock().as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Ends the thread, after what was submitted is done.
    pub(crate) fn stop(&self) {
        drop(self.jobs.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the metadata thread panicked");
        }
    }
}

struct Worker {
    state: Arc<RwLock<PlacementState>>,
    store: Box<dyn MetadataStore>,
    hub: Arc<RangeHub>,
    server_id: ServerId,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
}

impl Worker {
    fn handle_job(&mut self, job: MetadataJob) {
        let MetadataJob {
            port,
            call,
            deadline,
            command,
        } = job;
        let answer = if Instant::now() >= deadline {
            Err(Refusal::new(
                ErrorCode::REQUEST_TIMEOUT,
                "the time was up before the request was started",
            ))
        } else {
            self.change(command)
        };
        // A connection that is gone does not undo what is durable.
        let _gone = port.mailbox.post(ConnectionCommand::Changed { call, answer });
    }

    fn change(&mut self, command: Command) -> Result<Reply, Refusal> {
        let now = self.clock.now();
        let effects = apply(&self.state.read(), &[self.server_id], command, now);
        let Effects { changes, reply } = effects;
        if changes.is_empty() {
            return Ok(reply);
        }
        if let Some(failure) = self.health.failure() {
            return Err(Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, failure.to_string()));
        }
        let held: Vec<_> = changes.iter().filter_map(|change| self.held_here(change)).collect();
        let durable: Vec<_> = changes
            .iter()
            .cloned()
            .map(MetadataChange::Placement)
            .chain(held.iter().copied().map(MetadataChange::Hold))
            .collect();
        match self.store.commit(&durable) {
            Ok(()) => {}
            Err(error @ MetadataError::DiskFull) => {
                return Err(Refusal::new(ErrorCode::INSUFFICIENT_STORAGE, error.to_string()));
            }
            Err(error) => {
                // Nobody knows what the disk holds now; a restart reads it.
                self.health.fail("the metadata store", error.to_string());
                return Err(Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, error.to_string()));
            }
        }
        let mut state = self.state.write();
        for change in changes {
            state.install(change);
        }
        for held in held {
            let facts = state
                .stream(held.key.stream)
                .map(|stream| stream.facts())
                .unwrap_or_default();
            self.hub.open(held.key.stream, facts, held.fresh());
        }
        Ok(reply)
    }

    /// The range server's part of a change: a new range that it is to hold.
    fn held_here(&self, change: &Change) -> Option<HeldRange> {
        match change {
            Change::PutRange(range) if range.servers.contains(&self.server_id) => Some(HeldRange {
                key: range.key,
                epoch: range.epoch,
                start: range.start_offset,
                end: range.end_offset,
            }),
            _ => None,
        }
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
