//! The thread that changes the metadata.
//!
//! It never waits for a range server: requests and the answers of range servers arrive in one queue. What can be decided
//! is gathered and made durable together, then the range servers are told, then the callers.

mod orders;
mod promise;
#[cfg(test)]
mod tests;
mod tombstones;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sbp_locks::{Mutex, RwLock};
use sbp_log::Clock;
use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::apply::{Command, apply};
use super::effects::{Effects, Order, Outcome};
use super::operations::{OperationId, Operations};
use super::range_servers::{AbandonedEnd, RangeServer, RangeServers, reach};
use super::registry::Registry;
use super::request::{MetadataJob, Task};
use super::seal::{SealFor, SealPlan, SealTarget, check_end, plan_seal};
use super::state::{Change, PlacementState};
use super::store::{CommitError, PlacementStore};
use super::trim::{TrimPlan, plan_trim};
use crate::failure::Health;
use crate::range::SWEEP;
use crate::refusal::{Done, Refusal};

/// Events taken before what they came to is made durable.
const EVENTS_AT_ONCE: usize = 1_024;
/// How long a server that goes down waits for answers of range servers.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What a placement driver is made of.
#[derive(Debug)]
pub(crate) struct DriverParts {
    pub(crate) state: PlacementState,
    pub(crate) store: Box<dyn PlacementStore>,
    pub(crate) range_servers: Arc<dyn RangeServers>,
    /// The range server that is up for as long as the placement driver is: that of the same process.
    pub(crate) always_up: Option<ServerId>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
}

/// What the metadata thread reacts to.
pub(super) enum Event {
    /// A request of a connection or of the server itself.
    Job(MetadataJob),
    /// A range server has sealed a range, or not.
    Sealed(OperationId, Result<Offset, Refusal>),
    /// A range server has told where readers stand.
    End(OperationId, Result<Offset, Refusal>),
    /// A range server has carried out an order about a stream, or not.
    Told(Option<OperationId>, ServerId, StreamId, Result<(), Refusal>),
    /// A range server has sent a HEARTBEAT: orders that did not reach it are sent again.
    Settle(ServerId),
    /// It is time to look for tombstones that can go.
    Sweep,
    /// The server goes down.
    Stop,
}

/// What an operation waits for.
enum Waiting {
    /// The end of a range.
    Seal {
        target: SealTarget,
        key: RangeKey,
        open_next: bool,
        server: ServerId,
    },
    /// The end of what readers see.
    TrimEnd { stream: StreamId, start: Offset },
    /// Range servers that are being told.
    Orders { missing: usize, outcome: Outcome },
}

/// What is decided and not durable yet.
#[derive(Default)]
struct Staged {
    changes: Vec<Change>,
    operations: Vec<StagedOperation>,
    /// What was refused because of them: told when everybody can see why.
    refused: Vec<(Option<OperationId>, Refusal)>,
}

struct StagedOperation {
    id: Option<OperationId>,
    orders: Vec<Order>,
    outcome: Outcome,
    /// The range that it ends, which may have to go on should the end not become durable.
    sealed: Option<SealedRange>,
}

/// A range that its server has sealed, while its end is not durable here.
#[derive(Clone, Copy)]
struct SealedRange {
    server: ServerId,
    key: RangeKey,
}

pub(super) struct Worker {
    events: mpsc::Sender<Event>,
    /// What is durable.
    published: Arc<RwLock<PlacementState>>,
    /// What is durable, and what is staged.
    state: PlacementState,
    staged: Staged,
    registry: Arc<Mutex<Registry>>,
    store: Box<dyn PlacementStore>,
    range_servers: Arc<dyn RangeServers>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    operations: Operations,
    waiting: HashMap<OperationId, Waiting>,
    /// Streams about which an order did not reach a range server.
    owed: BTreeMap<ServerId, BTreeSet<StreamId>>,
    last_sweep: Instant,
}

impl Worker {
    pub(super) fn new(
        parts: DriverParts,
        published: Arc<RwLock<PlacementState>>,
        registry: Arc<Mutex<Registry>>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let DriverParts {
            state,
            store,
            range_servers,
            clock,
            health,
            always_up: _,
        } = parts;
        Self {
            events,
            published,
            state,
            staged: Staged::default(),
            registry,
            store,
            range_servers,
            clock,
            health,
            operations: Operations::default(),
            waiting: HashMap::new(),
            owed: BTreeMap::new(),
            last_sweep: Instant::now(),
        }
    }

    /// Works until the server goes down.
    pub(super) fn run(mut self, inbox: &mpsc::Receiver<Event>) {
        loop {
            match inbox.recv_timeout(SWEEP) {
                Ok(Event::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(event) => {
                    if self.handle_all(event, inbox) {
                        break;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if self.sweep_is_due() && self.handle_all(Event::Sweep, inbox) {
                break;
            }
        }
        self.end(inbox);
    }

    /// Finishes what was begun.
    fn end(mut self, inbox: &mpsc::Receiver<Event>) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.operations.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            match inbox.recv_timeout(left) {
                Ok(event) => {
                    self.handle_all(event, inbox);
                }
                Err(_) => break,
            }
        }
        let refusal = Refusal::new(ErrorCode::SHUTTING_DOWN, "the server went down before this was done");
        self.operations.give_up(&refusal);
    }

    /// Handles this event and what came with it. True when the server goes down.
    fn handle_all(&mut self, first: Event, inbox: &mpsc::Receiver<Event>) -> bool {
        let mut stop = false;
        let more = std::iter::from_fn(|| inbox.try_recv().ok());
        for event in std::iter::once(first).chain(more).take(EVENTS_AT_ONCE) {
            stop |= self.handle(event);
        }
        // What ends lets others begin.
        loop {
            while let Some((id, task)) = self.operations.take_ready() {
                self.start(id, task);
            }
            if self.staged.operations.is_empty() {
                return stop;
            }
            self.flush();
        }
    }

    fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Job(job) => self.admit(job),
            Event::Sealed(id, end) => self.handle_sealed(id, end),
            Event::End(id, end) => self.handle_end(id, end),
            Event::Told(id, server, stream, result) => self.handle_told(id, server, stream, result),
            Event::Settle(server) => self.settle(server),
            Event::Sweep => self.sweep(),
            Event::Stop => return true,
        }
        false
    }

    fn admit(&mut self, job: MetadataJob) {
        let MetadataJob {
            done,
            deadline,
            request,
        } = job;
        if Instant::now() >= deadline {
            let message = "the time was up before the request was started";
            done(Err(Refusal::new(ErrorCode::REQUEST_TIMEOUT, message)));
        } else {
            self.operations.admit(done, request.into_tasks());
        }
    }

    /// Begins an operation whose turn it is.
    fn start(&mut self, id: OperationId, task: Task) {
        match task {
            Task::Apply(command) => self.stage(Some(id), command, None),
            Task::Trim { stream, start } => match plan_trim(&self.state, stream, start) {
                Err(refusal) => self.operations.finish(id, Err(refusal)),
                Ok(TrimPlan::Judge) => {
                    let end = None;
                    self.stage(Some(id), Command::TrimStream { stream, start, end }, None);
                }
                Ok(TrimPlan::AskEnd(server, key)) => self.ask_end(id, server, key, start),
            },
            Task::Seal { on_behalf, target } => match plan_seal(&self.state, target, on_behalf) {
                Err(refusal) => self.operations.finish(id, Err(refusal)),
                Ok(SealPlan::Done(range)) => self.operations.finish(id, Ok(Outcome::Range(range))),
                Ok(SealPlan::OpenNext(key)) => self.stage(Some(id), Command::OpenNext(key), None),
                Ok(SealPlan::Seal { server, key, epoch }) => {
                    let waiting = Waiting::Seal {
                        target,
                        key,
                        open_next: on_behalf == SealFor::PlacementDriver,
                        server,
                    };
                    self.waiting.insert(id, waiting);
                    let done = self.promise(move |end| Event::Sealed(id, end));
                    match self.reach(server) {
                        Ok(range_server) => range_server.seal(key, epoch, target.end, done),
                        Err(refusal) => done(Err(refusal)),
                    }
                }
            },
        }
    }

    fn ask_end(&mut self, id: OperationId, server: ServerId, key: RangeKey, start: Offset) {
        let stream = key.stream;
        self.waiting.insert(id, Waiting::TrimEnd { stream, start });
        let told = self.promise(move |end| Event::End(id, end));
        let range_server = match self.reach(server) {
            Ok(range_server) => range_server,
            Err(refusal) => return told(Err(refusal)),
        };
        let done: Done<Vec<Option<Offset>>> = Box::new(move |ends| {
            let end = ends.and_then(|ends| {
                let message = || format!("range server {server} does not hold range {key}");
                let end = ends.first().copied().flatten();
                end.ok_or_else(|| Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message()))
            });
            told(end);
        });
        range_server.next_offsets(vec![key], done);
    }

    fn handle_end(&mut self, id: OperationId, end: Result<Offset, Refusal>) {
        let Some(Waiting::TrimEnd { stream, start }) = self.waiting.remove(&id) else {
            return;
        };
        match end {
            Ok(end) => {
                let end = Some(end);
                self.stage(Some(id), Command::TrimStream { stream, start, end }, None);
            }
            Err(refusal) => self.operations.finish(id, Err(refusal)),
        }
    }

    fn handle_sealed(&mut self, id: OperationId, end: Result<Offset, Refusal>) {
        let Some(Waiting::Seal {
            target,
            key,
            open_next,
            server,
        }) = self.waiting.remove(&id)
        else {
            return;
        };
        let sealed = SealedRange { server, key };
        let checked = end.and_then(|end| match check_end(key, end, target.end) {
            Ok(()) => Ok(end),
            Err(refusal) => {
                self.abandon(sealed, AbandonedEnd::NotStored);
                Err(refusal)
            }
        });
        match checked {
            Ok(end) => self.stage(Some(id), Command::FinishSeal { key, end, open_next }, Some(sealed)),
            Err(refusal) => self.operations.finish(id, Err(refusal)),
        }
    }

    /// Decides, and keeps what is to become durable.
    fn stage(&mut self, id: Option<OperationId>, command: Command, sealed: Option<SealedRange>) {
        let decided = self.decide(command);
        match decided {
            Ok(Effects {
                changes,
                orders,
                outcome,
            }) => {
                for change in &changes {
                    self.state.install(change.clone());
                }
                self.staged.changes.extend(changes);
                self.staged.operations.push(StagedOperation {
                    id,
                    orders,
                    outcome,
                    sealed,
                });
            }
            Err(refusal) => {
                if let Some(sealed) = sealed {
                    self.abandon(sealed, AbandonedEnd::NotStored);
                }
                if self.staged.operations.is_empty() {
                    self.finish(id, Err(refusal));
                } else {
                    self.staged.refused.push((id, refusal));
                }
            }
        }
    }

    fn decide(&self, command: Command) -> Result<Effects, Refusal> {
        let candidates = match &command {
            Command::CreateStream(..) => {
                // Nothing could be appended to a new stream.
                if let Some(failure) = self.health.failure() {
                    return Err(Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, failure.to_string()));
                }
                self.registry.lock().candidates(Instant::now())
            }
            Command::UpdateStream(_) => self.registry.lock().candidates(Instant::now()),
            _ => Vec::new(),
        };
        apply(&self.state, &candidates, command, self.clock.now())
    }

    /// Makes durable what is staged, lets everybody see it, and tells the range servers.
    fn flush(&mut self) {
        let Staged {
            changes,
            operations,
            refused,
        } = std::mem::take(&mut self.staged);
        if let Err((refusal, end)) = self.commit(&changes) {
            self.state = self.published.read().clone();
            for (id, _) in refused {
                self.finish(id, Err(refusal.clone()));
            }
            for operation in operations {
                if let Some(sealed) = operation.sealed {
                    self.abandon(sealed, end);
                }
                self.finish(operation.id, Err(refusal.clone()));
            }
            return;
        }
        {
            let mut published = self.published.write();
            for change in &changes {
                published.install(change.clone());
            }
        }
        for change in changes {
            if let Change::PutServer(server) = change {
                self.range_servers.locate(server.id, &server.address);
            }
        }
        for operation in operations {
            self.give_orders(operation);
        }
        for (id, refusal) in refused {
            self.finish(id, Err(refusal));
        }
    }

    /// On an error says also what is known about the ends among the changes.
    fn commit(&mut self, changes: &[Change]) -> Result<(), (Refusal, AbandonedEnd)> {
        if changes.is_empty() {
            return Ok(());
        }
        self.store.commit(changes).map_err(|error| match error {
            CommitError::DiskFull => {
                let refusal = Refusal::new(ErrorCode::INSUFFICIENT_STORAGE, error.to_string());
                (refusal, AbandonedEnd::NotStored)
            }
            CommitError::Failed(reason) => {
                // The changes may or may not be on the disk; a restart finds out by reading it.
                self.health.fail("the metadata store", reason.clone());
                let refusal = Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, reason);
                (refusal, AbandonedEnd::Unknown)
            }
        })
    }

    fn finish(&mut self, id: Option<OperationId>, result: Result<Outcome, Refusal>) {
        if let Some(id) = id {
            self.operations.finish(id, result);
        }
    }

    /// The end of a range that its server has sealed is not durable.
    fn abandon(&self, sealed: SealedRange, end: AbandonedEnd) {
        if let Some(range_server) = self.range_servers.server(sealed.server) {
            range_server.abandon_seal(sealed.key, end);
        }
    }

    fn reach(&self, server: ServerId) -> Result<Arc<dyn RangeServer>, Refusal> {
        reach(&*self.range_servers, &self.registry, server)
    }
}
