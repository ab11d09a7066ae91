//! The thread that changes the metadata.
//!
//! The thread never waits for a range server: requests and the answers of range servers arrive in one queue. What can
//! be decided is collected and made durable together; then the range servers are told, then the requesters.

mod copying;
mod deposed;
mod letting_go;
mod lost;
mod orders;
mod promise;
mod shared_seal;
#[cfg(test)]
mod tests;
mod tombstones;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sbp_locks::{Mutex, RwLock};
use sbp_log::Clock;
use sbp_messages::{ErrorCode, RangeId};
use sbp_replication::Term;
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId, StreamId};

use self::letting_go::LettingGo;
use self::shared_seal::SharedSeal;
use self::watch::Timer;
use super::apply::{Command, apply};
use super::avoided::Avoided;
use super::choose::Candidate;
use super::copies::{Copies, Copy, CopyCounts};
use super::effects::{Effects, Order, Outcome};
use super::operations::{OperationId, Operations};
use super::range_servers::{AbandonedEnd, RangeServer, RangeServers, reach};
use super::registry::Registry;
use super::request::{MetadataJob, Task};
use super::seal::{SealFor, SealPlan, SealWish, check_successor, plan_seal};
use super::state::{Change, PlacementState};
use super::store::{CommitError, PlacementStore};
use super::trim::{TrimPlan, plan_trim};
use super::update::range_with_other_numbers;
use super::upkeep::Upkeep;
use crate::config::ClusterTimes;
use crate::failure::Health;
use crate::range::FencedEnd;
use crate::refusal::{Done, Refusal};

/// The most events to handle before the decided changes are made durable.
const EVENTS_AT_ONCE: usize = 1_024;
/// How long range servers that are known have to report to a placement driver that has started, before it decides without
/// them.
const REPORTING: Duration = Duration::from_secs(3);
/// How long a server that shuts down waits for answers of range servers.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts of a placement driver.
#[derive(Debug)]
pub(crate) struct DriverParts {
    /// The term in which it leads, which its orders carry.
    pub(crate) term: Term,
    pub(crate) state: PlacementState,
    pub(crate) store: Box<dyn PlacementStore>,
    pub(crate) range_servers: Arc<dyn RangeServers>,
    /// The range server in the same process, which is always up.
    pub(crate) always_up: Option<ServerId>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) times: ClusterTimes,
}

/// The events that the metadata thread handles.
pub(super) enum Event {
    /// A request of a connection, or of the server itself.
    Job(MetadataJob),
    /// A range server has answered a seal.
    Sealed(OperationId, Result<Offset, Refusal>),
    /// A server that holds a range with others has said where its copy ends.
    Voted(OperationId, ServerId, Result<FencedEnd, Refusal>),
    /// The first server has sent the second one what that lacked of a range up to its end.
    WrittenBack(OperationId, ServerId, ServerId, Position, Result<(), Refusal>),
    /// A range server has told the confirmed end of a range that is to be trimmed.
    End(OperationId, Result<Offset, Refusal>),
    /// A range server has carried out an order about a stream, or refused it.
    Told(Option<OperationId>, ServerId, StreamId, Result<(), Refusal>),
    /// A range server has deleted a stream, or refused to; whether it has nothing of it any more.
    Deleted(Option<OperationId>, ServerId, StreamId, Result<bool, Refusal>),
    /// A range server was asked to remove what it has of these ranges: those of which it still has something.
    LetGo(ServerId, Vec<RangeKey>, Result<Vec<RangeKey>, Refusal>),
    /// A range server has sent a HEARTBEAT: orders that did not reach it are sent again.
    Settle(ServerId),
    /// The last connection of a range server is gone.
    Lost(ServerId),
    /// A range server without connections was dialled: whether that was refused.
    Knocked(ServerId, Result<bool, Refusal>),
    /// A range server that was never heard was asked: whether it answered.
    Answered(ServerId, Result<bool, Refusal>),
    /// A server may have been silent for too long.
    Look,
    /// The seal of a range that nobody asked for has ended, well or not.
    UpkeepEnded(RangeKey),
    /// A server was sent what it lacked of a sealed range, or not.
    Copied(Copy, Result<(), Refusal>),
    /// A range server has said that it lacks some of these sealed ranges, which have these epochs.
    Lacks(ServerId, Vec<(RangeKey, Epoch)>),
    /// It is written down that a server has a copy of a sealed range, or all of it; or that failed.
    CopyNoted(Copy, Result<(), Refusal>),
    /// Something is due.
    Timer(Timer),
    /// It is time to check which tombstones can be removed.
    Sweep,
    /// Another placement driver leads, or nobody: what is under way is given up.
    Deposed,
    /// The server is shutting down.
    Stop,
}

/// The answer that an operation waits for.
enum AwaitedStep {
    /// A range server's answer to a seal.
    Seal {
        /// The end that the requester expects, if any.
        expected: Option<Offset>,
        key: RangeKey,
        open_next: bool,
        server: ServerId,
    },
    /// The servers of a range that several hold.
    SharedSeal(Box<SharedSeal>),
    /// The confirmed end of the open range.
    TrimEnd {
        stream: StreamId,
        start: Offset,
        server: ServerId,
    },
    /// The answers of range servers to orders. These servers have not answered about these streams; then `outcome` is the
    /// result.
    Orders {
        missing: Vec<(ServerId, StreamId)>,
        outcome: Outcome,
    },
}

/// Changes that are decided and not durable yet.
#[derive(Default)]
struct Staged {
    changes: Vec<Change>,
    operations: Vec<StagedOperation>,
    /// Refusals that were decided after these changes and may be due to them. They are told after the changes are
    /// visible, so that a requester can see the reason.
    refused: Vec<(Option<OperationId>, Refusal)>,
}

struct StagedOperation {
    id: Option<OperationId>,
    orders: Vec<Order>,
    outcome: Outcome,
    /// The range that the operation ends. If its end does not become durable, the range server is told.
    sealed: Option<SealedRange>,
}

/// A range that its server has sealed and whose end is not durable here yet.
#[derive(Clone, Copy)]
struct SealedRange {
    server: ServerId,
    key: RangeKey,
}

pub(super) struct Worker {
    events: mpsc::Sender<Event>,
    /// The durable state, which other threads read.
    published: Arc<RwLock<PlacementState>>,
    /// The durable state with the staged changes applied.
    state: PlacementState,
    staged: Staged,
    registry: Arc<Mutex<Registry>>,
    store: Box<dyn PlacementStore>,
    range_servers: Arc<dyn RangeServers>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    operations: Operations,
    waiting: HashMap<OperationId, AwaitedStep>,
    /// The range server in the same process. Its deletions are in the transactions of the placement driver.
    here: Option<ServerId>,
    /// Streams about which a range server could not be given an order, by server.
    owed: BTreeMap<ServerId, BTreeSet<StreamId>>,
    /// The orders to delete a stream that are under way.
    deleting: BTreeSet<(ServerId, StreamId)>,
    letting_go: LettingGo,
    last_sweep: Instant,
    /// What is due when.
    timers: Vec<(Instant, Timer)>,
    /// When the next server may have been silent for too long.
    next_look: Option<Instant>,
    upkeep: Upkeep,
    copies: Copies,
    /// What other threads are told of them.
    copy_counts: Arc<CopyCounts>,
    avoided: Avoided,
    /// Requests that came before the range servers they need had the time to report.
    early: Vec<(OperationId, Task)>,
    /// Until when range servers have the time to report to a placement driver that has started.
    reported_by: Instant,
    /// Whether nothing may be changed any more, because another placement driver may.
    is_deposed: bool,
}

impl Worker {
    pub(super) fn new(
        parts: DriverParts,
        published: Arc<RwLock<PlacementState>>,
        registry: Arc<Mutex<Registry>>,
        copy_counts: Arc<CopyCounts>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let DriverParts {
            term: _,
            state,
            store,
            range_servers,
            clock,
            health,
            times,
            always_up,
        } = parts;
        let now = Instant::now();
        let reported_by = now + REPORTING;
        // Their connections may have gone while another placement driver led.
        let in_doubt = registry.lock().all_in_doubt(now);
        let mut timers: Vec<_> = in_doubt.into_iter().map(|id| (now, Timer::Knock(id))).collect();
        timers.push((now, Timer::AskUnheard));
        timers.push((reported_by, Timer::Reported));
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
            here: always_up,
            owed: BTreeMap::new(),
            deleting: BTreeSet::new(),
            letting_go: LettingGo::default(),
            last_sweep: now,
            timers,
            next_look: Some(now),
            upkeep: Upkeep::new(times.renew_after),
            copies: Copies::new(times.replace_after),
            copy_counts,
            avoided: Avoided::default(),
            early: Vec::new(),
            reported_by,
            is_deposed: false,
        }
    }

    /// Handles events until the server shuts down.
    pub(super) fn run(mut self, inbox: &mpsc::Receiver<Event>) {
        loop {
            let event = inbox.recv_timeout(self.until_timer());
            // Before anybody is judged by how long nothing was heard of him.
            self.registry.lock().go_on(Instant::now());
            match event {
                Ok(Event::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(event) => {
                    if self.handle_all(event, inbox) {
                        break;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if self.fire_timers(inbox) {
                break;
            }
            if self.sweep_is_due() && self.handle_all(Event::Sweep, inbox) {
                break;
            }
        }
        self.end(inbox);
    }

    /// Finishes the operations that have begun.
    fn end(mut self, inbox: &mpsc::Receiver<Event>) {
        if self.is_deposed {
            return self.leave(inbox);
        }
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
        let refusal = Refusal::new(
            ErrorCode::SHUTTING_DOWN,
            "the server shut down before the request was carried out",
        );
        self.operations.give_up(&refusal);
    }

    /// Handles this event and those that are queued behind it. Returns true when the server shuts down.
    fn handle_all(&mut self, first: Event, inbox: &mpsc::Receiver<Event>) -> bool {
        let mut stop = false;
        let more = std::iter::from_fn(|| inbox.try_recv().ok());
        for event in std::iter::once(first).chain(more).take(EVENTS_AT_ONCE) {
            stop |= self.handle(event);
        }
        // An operation that ends lets the next one of its stream begin.
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
            Event::Deposed => {
                self.give_up();
                return true;
            }
            Event::Stop => return true,
            event if self.is_deposed => self.turn_away(event),
            Event::Job(job) => self.admit(job),
            Event::Sealed(id, end) => self.handle_sealed(id, end),
            Event::Voted(id, server, voted) => self.handle_voted(id, server, voted),
            Event::WrittenBack(id, source, to, end, done) => self.handle_written_back(id, source, to, end, done),
            Event::Timer(timer) => self.handle_timer(timer),
            Event::End(id, end) => self.handle_end(id, end),
            Event::Told(id, server, stream, result) => self.handle_told(id, server, stream, result),
            Event::Deleted(id, server, stream, deleted) => self.handle_deleted(id, server, stream, deleted),
            Event::LetGo(server, keys, left) => self.handle_let_go(server, &keys, left),
            Event::Settle(server) => {
                self.settle(server);
                self.look();
                self.start_early();
            }
            Event::Lost(server) => self.knock(server),
            Event::Knocked(server, is_refused) => self.handle_knocked(server, is_refused),
            Event::Answered(server, answers) => self.handle_answered(server, &answers),
            Event::Look => self.look(),
            Event::UpkeepEnded(key) => self.upkeep_ended(key),
            Event::Copied(copy, sent) => self.handle_copied(copy, sent),
            Event::Lacks(server, ranges) => self.handle_lacks(server, &ranges),
            Event::CopyNoted(copy, noted) => self.copy_noted(copy, &noted),
            Event::Sweep => self.sweep(),
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
            done(Err(Refusal::expired()));
        } else {
            self.operations.admit(done, request.into_tasks());
        }
    }

    /// Starts an operation.
    fn start(&mut self, id: OperationId, task: Task) {
        if self.is_early(&task) {
            return self.early.push((id, task));
        }
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
            Task::Seal { wish, target } => self.seal(id, target, &wish),
        }
    }

    /// Begins to seal a range.
    fn seal(&mut self, id: OperationId, target: RangeId, wish: &SealWish) {
        let open_next = wish.on_behalf == SealFor::PlacementDriver;
        self.avoided.note(target.stream_id, &wish.avoid, Instant::now());
        match plan_seal(&self.state, target, wish.on_behalf) {
            Err(refusal) => self.operations.finish(id, Err(refusal)),
            Ok(SealPlan::Done(range)) => self.operations.finish(id, Ok(Outcome::Range(range))),
            Ok(SealPlan::SealShared(range)) => {
                let expected = target.end_offset;
                self.seal_shared(id, &range, expected, wish);
            }
            Ok(SealPlan::OpenNext(key)) => self.stage(Some(id), Command::OpenNext(key), None),
            Ok(SealPlan::Seal { server, key, .. }) if wish.force => {
                let message = match self.reach(server) {
                    Ok(_) => format!(
                        "range server {server} alone has range {key}, and is up: it can be sealed without force"
                    ),
                    Err(_) => format!(
                        "range server {server} alone has range {key}: without it nothing of the range is left, and it cannot be \
                         ended by force; start that server again, or delete the stream"
                    ),
                };
                self.operations.finish(id, Err(Refusal::invalid(message)));
            }
            Ok(SealPlan::Seal { server, key, epoch }) => {
                if open_next && let Err(refusal) = check_successor(&self.state, &self.candidates_for(key.stream), key) {
                    return self.operations.finish(id, Err(refusal));
                }
                let waiting = AwaitedStep::Seal {
                    expected: target.end_offset,
                    key,
                    open_next,
                    server,
                };
                self.waiting.insert(id, waiting);
                let done = self.promise(move |end| Event::Sealed(id, end));
                match self.reach(server) {
                    Ok(range_server) => range_server.seal(key, epoch, target.end_offset, done),
                    Err(refusal) => done(Err(refusal)),
                }
            }
        }
    }

    fn ask_end(&mut self, id: OperationId, server: ServerId, key: RangeKey, start: Offset) {
        let stream = key.stream;
        self.waiting.insert(id, AwaitedStep::TrimEnd { stream, start, server });
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
        let Some(AwaitedStep::TrimEnd { stream, start, .. }) = self.waiting.remove(&id) else {
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
        let Some(AwaitedStep::Seal {
            expected,
            key,
            open_next,
            server,
        }) = self.waiting.remove(&id)
        else {
            return;
        };
        let sealed = SealedRange { server, key };
        let checked = end.and_then(|end| match Refusal::check_end(key, end, expected) {
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

    /// Decides a command, and stages its changes.
    fn stage(&mut self, id: Option<OperationId>, command: Command, sealed: Option<SealedRange>) {
        let mut decided = self.decide(command.clone());
        if let Ok(effects) = &decided
            && !self.staged.changes.is_empty()
            && !self.store.has_room(&self.staged.changes, &effects.changes)
        {
            self.flush();
            if self.is_deposed {
                return;
            }
            // What was staged may not have become durable, and then it was not what this was decided on.
            decided = self.decide(command);
        }
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

    /// The range servers that are up. Those that are to be emptied are avoided.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = self.registry.lock().candidates(Instant::now());
        for candidate in &mut candidates {
            candidate.avoided = self.state.is_draining(candidate.id);
        }
        candidates
    }

    /// The same for the next range of a stream, which may be better without others too.
    fn candidates_for(&self, stream: StreamId) -> Vec<Candidate> {
        let mut candidates = self.candidates();
        for candidate in &mut candidates {
            candidate.avoided |= self.avoided.has(stream, candidate.id, Instant::now());
        }
        candidates
    }

    fn decide(&self, command: Command) -> Result<Effects, Refusal> {
        let candidates = match &command {
            Command::CreateStream(..) => {
                // A server that has failed takes no appends, so a new stream on it would be useless.
                if let Some(failure) = self.health.failure() {
                    return Err(Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, failure.to_string()));
                }
                self.candidates()
            }
            Command::UpdateStream(_) | Command::DeleteStream(_) | Command::CreateRange(_) => self.candidates(),
            Command::FinishSeal { key, .. } | Command::OpenNext(key) => self.candidates_for(key.stream),
            Command::FinishSharedSeal(end) => self.candidates_for(end.key.stream),
            _ => Vec::new(),
        };
        apply(&self.state, &candidates, command, self.clock.now())
    }

    /// Makes the staged changes durable and visible, and gives the orders to range servers.
    fn flush(&mut self) {
        let Staged {
            changes,
            operations,
            refused,
        } = std::mem::take(&mut self.staged);
        if let Err((refusal, end)) = self.commit(&changes) {
            if self.is_deposed {
                return self.give_up();
            }
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
                self.tell_where(server.id);
            }
        }
        for operation in operations {
            self.give_orders(operation);
        }
        for (id, refusal) in refused {
            self.finish(id, Err(refusal));
        }
    }

    /// Makes the changes durable. An error says also what is known about the ends of ranges among them.
    fn commit(&mut self, changes: &[Change]) -> Result<(), (Refusal, AbandonedEnd)> {
        if changes.is_empty() {
            return Ok(());
        }
        self.store.commit(changes).map_err(|error| match error {
            CommitError::DiskFull => {
                let refusal = Refusal::new(ErrorCode::INSUFFICIENT_STORAGE, error.to_string());
                (refusal, AbandonedEnd::NotStored)
            }
            CommitError::Refused(reason) => (Refusal::invalid(reason), AbandonedEnd::NotStored),
            CommitError::Deposed(reason) => {
                self.is_deposed = true;
                let refusal = Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, reason);
                (refusal, AbandonedEnd::Unknown)
            }
            CommitError::Failed(reason) => {
                // The changes may or may not be on the disk; the next start reads which.
                self.health.fail("the metadata store", reason.clone());
                let refusal = Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, reason);
                (refusal, AbandonedEnd::Unknown)
            }
        })
    }

    /// An operation is carried out, as far as its own changes go. Other numbers of replicas are those of the next range, which
    /// is opened before it is answered.
    fn complete(&mut self, id: Option<OperationId>, outcome: Outcome) {
        if let (Some(id), Outcome::Stream(stream)) = (id, &outcome)
            && let Some(target) = range_with_other_numbers(&self.state, stream.id)
        {
            self.operations.answer_instead(id, Ok(outcome));
            return self.seal(id, target, &SealFor::PlacementDriver.into());
        }
        self.finish(id, Ok(outcome));
    }

    fn finish(&mut self, id: Option<OperationId>, result: Result<Outcome, Refusal>) {
        if let Some(id) = id {
            self.operations.finish(id, result);
        }
    }

    /// Tells a range server that the end of a range that it has sealed did not become durable.
    fn abandon(&self, sealed: SealedRange, end: AbandonedEnd) {
        if let Some(range_server) = self.range_servers.server(sealed.server) {
            range_server.abandon_seal(sealed.key, end);
        }
    }

    fn reach(&self, server: ServerId) -> Result<Arc<dyn RangeServer>, Refusal> {
        reach(&*self.range_servers, &self.registry, server)
    }
}
