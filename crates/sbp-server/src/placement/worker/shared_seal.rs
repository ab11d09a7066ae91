//! Seals of ranges that several servers hold: votes, what is written back, the end and the next servers.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, RangeId};
use sbp_replication::{Quorum, ReplicatedRange, Rules, SealJob, SealStep, Sealed};
use sbp_types::{Offset, Position, RangeKey, ServerId};
use smallvec::SmallVec;

use super::{AwaitedStep, Event, Worker};
use crate::placement::apply::Command;
use crate::placement::operations::OperationId;
use crate::placement::records::RangeRecord;
use crate::placement::request::{Outcomes, Request};
use crate::placement::seal::SealFor;
use crate::placement::shared_end::SharedEnd;
use crate::range::{FencedEnd, SWEEP};
use crate::refusal::Refusal;

/// How long a seal waits for the votes of further servers once there are enough.
pub(super) const FURTHER_VOTES: Duration = Duration::from_millis(200);

/// The seal of a range that several servers hold.
pub(super) struct SharedSeal {
    key: RangeKey,
    job: SealJob,
    /// The end that the requester expects, if any.
    expected: Option<Offset>,
    open_next: bool,
    /// Servers that have not answered.
    asked: SmallVec<[ServerId; 3]>,
    /// When it is decided without the servers that have not voted.
    decide_at: Option<Instant>,
    /// Why servers did not vote, or did not write back.
    refusals: Vec<(ServerId, Refusal)>,
    /// How often the seal began anew.
    rounds: u32,
}

/// A seal begins anew so often before it is given up: the requester asks again.
const MOST_ROUNDS: u32 = 3;

/// The range as its servers know it; `None` if its numbers cannot be.
fn replicated(range: &RangeRecord) -> Option<ReplicatedRange> {
    let acks = usize::try_from(range.ack_count).ok()?;
    Some(ReplicatedRange {
        key: range.key,
        epoch: range.epoch,
        start: range.start_offset,
        servers: range.servers.iter().copied().collect(),
        quorum: Quorum::new(range.servers.len(), acks)?,
    })
}

impl Worker {
    /// Begins to seal a range that several servers hold.
    pub(super) fn seal_shared(
        &mut self,
        id: OperationId,
        range: &Arc<RangeRecord>,
        expected: Option<Offset>,
        open_next: bool,
    ) {
        let Some(known) = replicated(range) else {
            let message = format!("range {} has impossible numbers of servers", range.key);
            return self
                .operations
                .finish(id, Err(Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, message)));
        };
        let seal = SharedSeal {
            key: range.key,
            job: SealJob::new(Arc::new(known), Rules::default()),
            expected,
            open_next,
            asked: SmallVec::new(),
            decide_at: None,
            refusals: Vec::new(),
            rounds: 0,
        };
        self.waiting.insert(id, AwaitedStep::SharedSeal(Box::new(seal)));
        self.ask_for_votes(id);
    }

    /// How long to wait for an event: until the next seal is to be decided, if one waits.
    pub(super) fn until_timer(&self) -> Duration {
        let next = self.timers.iter().map(|(at, _)| *at).min();
        let left = next.map(|at| at.saturating_duration_since(Instant::now()));
        left.unwrap_or(SWEEP).min(SWEEP)
    }

    /// Decides the seals that are due. Returns true when the server shuts down.
    pub(super) fn fire_timers(&mut self, inbox: &mpsc::Receiver<Event>) -> bool {
        let now = Instant::now();
        let due: Vec<_> = self.timers.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().any(|(_, id)| self.handle_all(Event::Timer(id), inbox))
    }

    /// Seals the open ranges of several servers whose primary is gone, so that the others go on. What cannot be sealed now is
    /// tried again when a server reports.
    pub(super) fn seal_lost(&mut self) {
        let now = Instant::now();
        let lost: Vec<ServerId> = {
            let registry = self.registry.lock();
            let servers = self.state.servers().map(|server| server.id);
            let has_ranges = servers.filter(|server| self.state.open_ranges_on(*server) > 0);
            has_ranges.filter(|server| !registry.is_up(*server, now)).collect()
        };
        if lost.is_empty() {
            return;
        }
        let is_lost = |range: &&Arc<RangeRecord>| {
            let primary = range.appends_go_to().filter(|_| range.servers.len() > 1);
            primary.is_some_and(|primary| lost.contains(&primary)) && !self.lost.contains(&range.key)
        };
        let ranges: Vec<_> = self
            .state
            .ranges_after(None)
            .filter(is_lost)
            .map(|range| (range.key, range.epoch))
            .collect();
        for (key, epoch) in ranges {
            self.lost.insert(key);
            let events = self.events.clone();
            let done = Box::new(move |sealed: Result<Outcomes, Refusal>| {
                let refusals = sealed.iter().flatten().filter_map(|sealed| sealed.as_ref().err());
                for refusal in refusals.chain(sealed.as_ref().err()) {
                    tracing::warn!(range = %key, message = refusal.message, "a range whose primary is gone is not sealed yet");
                }
                // The receiver has ended if the server is shutting down.
                let _stopped = events.send(Event::LostSealed(key));
            });
            let target = RangeId {
                stream_id: key.stream,
                range_index: Some(key.range),
                epoch: Some(epoch),
                end_offset: None,
            };
            let request = Request::SealRanges(SealFor::PlacementDriver, vec![Ok(target)]);
            self.operations.admit(done, request.into_tasks());
        }
    }

    fn shared_seal(&mut self, id: OperationId) -> Option<&mut SharedSeal> {
        match self.waiting.get_mut(&id) {
            Some(AwaitedStep::SharedSeal(seal)) => Some(seal),
            _ => None,
        }
    }

    fn ask_for_votes(&mut self, id: OperationId) {
        let Some(seal) = self.shared_seal(id) else { return };
        let range = Arc::clone(seal.job.range());
        seal.asked = range.servers.clone();
        seal.refusals.clear();
        seal.decide_at = None;
        for server in range.servers.iter().copied() {
            let done = self.promise(move |voted| Event::Voted(id, server, voted));
            match self.reach(server) {
                Ok(range_server) => range_server.fence(range.key, range.epoch, done),
                Err(refusal) => done(Err(refusal)),
            }
        }
    }

    /// A fenced server has said where its copy ends, or why it does not.
    pub(super) fn handle_voted(&mut self, id: OperationId, server: ServerId, voted: Result<FencedEnd, Refusal>) {
        let Some(seal) = self.shared_seal(id) else { return };
        seal.asked.retain(|asked| *asked != server);
        match voted {
            Ok(end) => seal.job.vote(server, end.vote),
            Err(refusal) => seal.refusals.push((server, refusal)),
        }
        if seal.asked.is_empty() {
            self.decide_shared(id);
        } else if seal.job.can_decide() && seal.decide_at.is_none() {
            let at = Instant::now() + FURTHER_VOTES;
            seal.decide_at = Some(at);
            self.timers.push((at, id));
        }
    }

    /// It is time to decide a seal without the servers that have not voted.
    pub(super) fn handle_timer(&mut self, id: OperationId) {
        let is_due = |seal: &mut SharedSeal| seal.decide_at.is_some_and(|at| at <= Instant::now());
        if self.shared_seal(id).is_some_and(is_due) {
            self.decide_shared(id);
        }
    }

    fn decide_shared(&mut self, id: OperationId) {
        let Some(seal) = self.shared_seal(id) else { return };
        seal.asked.clear();
        seal.decide_at = None;
        if !seal.job.can_decide() {
            let refusal = seal.too_few();
            self.waiting.remove(&id);
            return self.operations.finish(id, Err(refusal));
        }
        seal.job.decide();
        self.step_shared(id);
    }

    fn step_shared(&mut self, id: OperationId) {
        let Some(seal) = self.shared_seal(id) else { return };
        let (key, epoch) = (seal.key, seal.job.range().epoch);
        match seal.job.step() {
            SealStep::Vote => self.ask_for_votes(id),
            SealStep::Again => {
                seal.rounds += 1;
                if seal.rounds > MOST_ROUNDS {
                    let refusal = seal.too_few();
                    self.waiting.remove(&id);
                    return self.operations.finish(id, Err(refusal));
                }
                seal.job = SealJob::new(Arc::clone(seal.job.range()), Rules::default());
                self.ask_for_votes(id);
            }
            SealStep::WriteBack { source, to, end } => {
                let (away, to): (SmallVec<[ServerId; 3]>, SmallVec<[ServerId; 3]>) =
                    to.into_iter().partition(|server| self.reach(*server).is_err());
                let Some(seal) = self.shared_seal(id) else { return };
                if !away.is_empty() {
                    away.into_iter().for_each(|server| seal.job.away(server));
                    return self.step_shared(id);
                }
                let done = {
                    let to = to.clone();
                    self.promise(move |done| Event::WrittenBack(id, source, to, end, done))
                };
                match self.reach(source) {
                    Ok(range_server) => range_server.write_back(key, epoch, &to, end, done),
                    Err(refusal) => done(Err(refusal)),
                }
            }
            SealStep::Store(sealed) => self.store_shared(id, sealed),
        }
    }

    /// A server has sent what others lacked, or could not.
    pub(super) fn handle_written_back(
        &mut self,
        id: OperationId,
        source: ServerId,
        to: SmallVec<[ServerId; 3]>,
        end: Position,
        done: Result<(), Refusal>,
    ) {
        let Some(seal) = self.shared_seal(id) else { return };
        match done {
            Ok(()) => {
                for server in to {
                    seal.job.written_back(server);
                }
            }
            Err(refusal) => {
                tracing::warn!(range = %seal.key, %source, %end, message = refusal.message, "what servers lack of a range is not written back");
                seal.refusals.push((source, refusal));
                // Which of them is away is not known: the source if it does not answer, else those that it sends to.
                if self.reach(source).is_err() {
                    if let Some(seal) = self.shared_seal(id) {
                        seal.job.away(source);
                    }
                } else if let Some(seal) = self.shared_seal(id) {
                    to.into_iter().for_each(|server| seal.job.away(server));
                }
            }
        }
        self.step_shared(id);
    }

    /// The end is decided: it is stored together with the next range.
    fn store_shared(&mut self, id: OperationId, sealed: Sealed) {
        let Some(AwaitedStep::SharedSeal(seal)) = self.waiting.remove(&id) else {
            return;
        };
        let knows_writers = sealed.knows_writers();
        let Sealed { end, complete, .. } = sealed;
        if let Err(refusal) = Refusal::check_end(seal.key, end.offset, seal.expected) {
            return self.operations.finish(id, Err(refusal));
        }
        let command = Command::FinishSharedSeal(SharedEnd {
            key: seal.key,
            end,
            complete: complete.into_iter().collect(),
            knows_writers,
            open_next: seal.open_next,
        });
        self.stage(Some(id), command, None);
    }
}

impl SharedSeal {
    fn too_few(&self) -> Refusal {
        let whys: Vec<_> = self
            .refusals
            .iter()
            .map(|(server, refusal)| format!("server {server}: {}", refusal.message))
            .collect();
        Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "too few of the servers of range {} say where their copies end ({}); it is sealed when more of them are there",
                self.key,
                whys.join("; ")
            ),
        )
    }
}
