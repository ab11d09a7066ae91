//! Seals of ranges that several servers hold: votes, what is written back, the end and the next servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::ErrorCode;
use sbp_replication::{Quorum, ReplicatedRange, Rules, SealJob, SealStep, Sealed};
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId};
use smallvec::SmallVec;

use super::watch::Timer;
use super::{AwaitedStep, Event, Worker};
use crate::placement::apply::Command;
use crate::placement::operations::OperationId;
use crate::placement::range_servers::reach;
use crate::placement::records::RangeRecord;
use crate::placement::seal::{SealFor, SealWish};
use crate::placement::shared_end::SharedEnd;
use crate::range::FencedEnd;
use crate::refusal::Refusal;

/// Offsets that are told to people.
fn shown(spans: &[(Offset, Offset)]) -> String {
    const MOST: usize = 8;
    let shown = spans.iter().take(MOST).map(|(from, to)| match to.0 - from.0 {
        0 => format!("entries without offsets in front of {from}"),
        1 => format!("offset {from}"),
        _ => format!("offsets {from} to {}", to.0 - 1),
    });
    let more = spans.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("and {more} more"));
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// How long a seal waits for the votes of further servers once there are enough.
pub(super) const FURTHER_VOTES: Duration = Duration::from_millis(200);

/// The seal of a range that several servers hold.
pub(super) struct SharedSeal {
    key: RangeKey,
    job: SealJob,
    /// Records before it are trimmed. One job of a stream is under way at a time, so no trim comes while the seal is.
    trimmed: Offset,
    /// The end that the requester expects, if any.
    expected: Option<Offset>,
    open_next: bool,
    /// Whether too few votes suffice too.
    force: bool,
    /// Records before the end that no server which has voted can read: it was ended by force.
    lost: Vec<(Offset, Offset)>,
    /// What the servers that voted know to be confirmed.
    confirmed: Option<Position>,
    /// Servers whose votes are waited for; none once it is decided.
    asked: SmallVec<[ServerId; 3]>,
    /// Whether the votes are counted. What comes later changes nothing.
    is_decided: bool,
    /// When it is decided without the servers that have not voted.
    decide_at: Option<Instant>,
    /// What is being written back.
    writing: SmallVec<[Writing; 3]>,
    /// Why servers did not vote, or did not write back.
    refusals: Vec<(ServerId, Refusal)>,
    /// How often the seal began anew.
    rounds: u32,
}

/// What a server lacks of a range up to its end is being sent to it.
struct Writing {
    source: ServerId,
    to: ServerId,
    end: Position,
    /// How often that was ordered.
    times: u32,
}

/// A seal begins anew so often before it is given up: the requester asks again.
const MOST_ROUNDS: u32 = 3;

/// So many calls may pass until a server that can be reached has what is written back to it.
const MOST_WAITS: u32 = 60;

/// The range as its servers know it; `None` if its numbers cannot be.
fn replicated(range: &RangeRecord) -> Option<ReplicatedRange> {
    let acks = usize::try_from(range.ack_count).ok()?;
    Some(ReplicatedRange {
        key: range.key,
        epoch: range.epoch,
        start: range.opened_offset,
        servers: range.servers.iter().copied().collect(),
        quorum: Quorum::new(range.servers.len(), acks)?,
    })
}

/// The seal of a range of which records before `trimmed` are gone.
fn seal_job(range: &Arc<ReplicatedRange>, trimmed: Offset) -> SealJob {
    let mut job = SealJob::new(Arc::clone(range), Rules::default());
    job.trimmed(trimmed);
    job
}

impl Worker {
    /// Begins to seal a range that several servers hold.
    pub(super) fn seal_shared(
        &mut self,
        id: OperationId,
        range: &Arc<RangeRecord>,
        expected: Option<Offset>,
        wish: &SealWish,
    ) {
        let Some(known) = replicated(range) else {
            let message = format!("range {} has impossible numbers of servers", range.key);
            return self
                .operations
                .finish(id, Err(Refusal::new(ErrorCode::PD_INTERNAL_SERVER_ERROR, message)));
        };
        let seal = SharedSeal {
            key: range.key,
            job: seal_job(&Arc::new(known), range.start_offset),
            trimmed: range.start_offset,
            expected,
            open_next: wish.on_behalf == SealFor::PlacementDriver,
            force: wish.force,
            lost: Vec::new(),
            confirmed: None,
            asked: SmallVec::new(),
            is_decided: false,
            decide_at: None,
            writing: SmallVec::new(),
            refusals: Vec::new(),
            rounds: 0,
        };
        self.waiting.insert(id, AwaitedStep::SharedSeal(Box::new(seal)));
        self.ask_for_votes(id);
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
        seal.is_decided = false;
        seal.decide_at = None;
        seal.writing.clear();
        // A fence that cannot lead to an end only stops the range.
        let needed = range.quorum.votes(Rules::default());
        let force = seal.force;
        let reachable = range
            .servers
            .iter()
            .filter(|server| self.reach(**server).is_ok())
            .count();
        let suffice = if force { 1 } else { needed };
        if reachable < suffice {
            return self.give_up_seal(id, &format!("{needed} of them have to, and {reachable} are up"));
        }
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
        let Some(seal) = self.shared_seal(id).filter(|seal| !seal.is_decided) else {
            return;
        };
        seal.asked.retain(|asked| *asked != server);
        match voted {
            Ok(end) => {
                seal.confirmed = seal.confirmed.max(Some(end.confirmed));
                let spans = end.damaged.into_iter();
                let spans = spans.map(|(from, to)| (Position::start(from), Position::start(to)));
                seal.job.cannot_read(server, spans);
                seal.job.vote(server, end.vote);
            }
            Err(refusal) => seal.refusals.push((server, refusal)),
        }
        if seal.asked.is_empty() {
            self.decide_shared(id);
        } else if seal.job.can_decide() && seal.decide_at.is_none() {
            let at = Instant::now() + FURTHER_VOTES;
            seal.decide_at = Some(at);
            self.timers.push((at, Timer::Seal(id)));
        }
    }

    /// It is time to decide a seal without the servers that have not voted.
    pub(super) fn decide_in_time(&mut self, id: OperationId) {
        let is_due = |seal: &mut SharedSeal| {
            let is_time = seal.decide_at.is_some_and(|at| at <= Instant::now());
            !seal.is_decided && is_time && seal.job.can_decide()
        };
        if self.shared_seal(id).is_some_and(is_due) {
            self.decide_shared(id);
        }
    }

    fn decide_shared(&mut self, id: OperationId) {
        let (range_servers, registry) = (Arc::clone(&self.range_servers), Arc::clone(&self.registry));
        let Some(seal) = self.shared_seal(id) else { return };
        seal.asked.clear();
        seal.decide_at = None;
        if seal.job.can_decide() {
            seal.is_decided = true;
            seal.job.decide();
            if seal.force {
                let refusal = seal.needs_no_force();
                self.operations.answer_instead(id, Err(refusal));
            }
            return self.step_shared(id);
        }
        // Who is there and only did not answer may have more.
        let has_not_answered = |(server, refusal): &&(ServerId, Refusal)| {
            refusal.code == ErrorCode::PD_NO_AVAILABLE_RS && reach(&*range_servers, &registry, *server).is_ok()
        };
        if let Some((server, _)) = seal.refusals.iter().find(has_not_answered).filter(|_| seal.force) {
            let why = format!("server {server} is up and has not answered, so that nothing is forced");
            return self.give_up_seal(id, &why);
        }
        if !seal.force && seal.job.has_enough_votes() {
            let refusal = seal.has_lost();
            self.waiting.remove(&id);
            return self.operations.finish(id, Err(refusal));
        }
        let forced = if seal.force { seal.job.end_by_force() } else { None };
        let Some(forced) = forced else {
            return self.give_up_seal(id, "they did not");
        };
        seal.is_decided = true;
        let lost = forced.lost.iter().map(|(from, to)| (from.offset, to.offset));
        seal.lost = lost.filter(|(from, to)| from < to).collect();
        tracing::warn!(
            range = %seal.key, end = %forced.end, confirmed = ?seal.confirmed.map(|confirmed| confirmed.offset),
            lost = shown(&seal.lost), servers = ?seal.job.voters().collect::<Vec<_>>(),
            "a range is ended by force: what was acknowledged behind its end is lost, and so are the records before it that none of \
             these servers can read; the servers that are left know that so much was acknowledged"
        );
        self.step_shared(id);
    }

    /// The seal ends without an end, and may be asked for again. `why` says why too few servers say where their copies end.
    fn give_up_seal(&mut self, id: OperationId, why: &str) {
        let Some(AwaitedStep::SharedSeal(seal)) = self.waiting.remove(&id) else {
            return;
        };
        self.operations.finish(id, Err(seal.too_few(why)));
    }

    fn step_shared(&mut self, id: OperationId) {
        let Some(seal) = self.shared_seal(id) else { return };
        match seal.job.step() {
            SealStep::Vote => self.ask_for_votes(id),
            SealStep::Again => {
                seal.rounds += 1;
                if seal.rounds > MOST_ROUNDS {
                    return self.give_up_seal(id, "nobody who has everything can be reached");
                }
                seal.job = seal_job(seal.job.range(), seal.trimmed);
                self.ask_for_votes(id);
            }
            SealStep::WriteBack { source, to, end } => {
                let (to, away): (SmallVec<[ServerId; 3]>, SmallVec<[ServerId; 3]>) =
                    to.into_iter().partition(|server| self.reach(*server).is_ok());
                let source_is_away = self.reach(source).is_err();
                let Some(seal) = self.shared_seal(id) else { return };
                let away: SmallVec<[ServerId; 3]> = away.into_iter().chain(source_is_away.then_some(source)).collect();
                if !away.is_empty() {
                    away.into_iter().for_each(|server| seal.job.away(server));
                    return self.step_shared(id);
                }
                for server in to {
                    self.write_back(id, source, server, end);
                }
            }
            SealStep::Store(sealed) => self.store_shared(id, sealed),
        }
    }

    /// Has `source` send to another server what that lacks, unless it does so.
    fn write_back(&mut self, id: OperationId, source: ServerId, to: ServerId, end: Position) {
        let Some(seal) = self.shared_seal(id) else { return };
        let (key, epoch) = (seal.key, seal.job.range().epoch);
        if seal.writing.iter().any(|writing| writing.to == to) {
            return;
        }
        let times = 1;
        seal.writing.push(Writing { source, to, end, times });
        self.order_write_back(id, (key, epoch), source, to, end);
    }

    fn order_write_back(
        &mut self,
        id: OperationId,
        (key, epoch): (RangeKey, Epoch),
        source: ServerId,
        to: ServerId,
        end: Position,
    ) {
        let done = self.promise(move |done| Event::WrittenBack(id, source, to, end, done));
        match self.reach(source) {
            Ok(range_server) => range_server.write_back(key, epoch, &[to], end, done),
            Err(refusal) => done(Err(refusal)),
        }
    }

    /// A server has sent another one what that lacked, or could not, or has not within the time of a call.
    pub(super) fn handle_written_back(
        &mut self,
        id: OperationId,
        source: ServerId,
        to: ServerId,
        end: Position,
        done: Result<(), Refusal>,
    ) {
        let (source_is_away, is_away) = (self.reach(source).is_err(), self.reach(to).is_err());
        let Some(seal) = self.shared_seal(id) else { return };
        // Not so what an earlier round, or another source, was told to do.
        let is_this = |writing: &Writing| (writing.source, writing.to, writing.end) == (source, to, end);
        let Some(place) = seal.writing.iter().position(is_this) else {
            return;
        };
        let times = seal.writing[place].times;
        let range = (seal.key, seal.job.range().epoch);
        match done {
            Ok(()) => seal.job.written_back(to),
            Err(refusal) => {
                tracing::warn!(range = %seal.key, %source, %to, %end, times, message = refusal.message, "what a server lacks of a range is not written back yet");
                let takes_long = refusal.code == ErrorCode::PD_NO_AVAILABLE_RS;
                // Its disk has lost what was there: that is not the fault of who sends.
                let is_damaged = refusal.code == ErrorCode::RS_DATA_CORRUPTED;
                seal.refusals.push((source, refusal));
                if source_is_away || !(takes_long || is_damaged) {
                    // Whatever it was to send, somebody else has to.
                    seal.job.away(source);
                    seal.writing.clear();
                    return self.step_shared(id);
                }
                if !is_away && !is_damaged && times < MOST_WAITS {
                    // The source goes on with the order; this asks it how far it is.
                    seal.writing[place].times += 1;
                    return self.order_write_back(id, range, source, to, end);
                }
                seal.job.away(to);
            }
        }
        seal.writing.remove(place);
        self.step_shared(id);
    }

    /// The end is decided: it is stored together with the next range.
    fn store_shared(&mut self, id: OperationId, sealed: Sealed) {
        let Some(AwaitedStep::SharedSeal(seal)) = self.waiting.remove(&id) else {
            return;
        };
        let Sealed { end, complete, knowing } = sealed;
        if let Err(refusal) = Refusal::check_end(seal.key, end.offset, seal.expected) {
            // The servers are fenced: the range can only go on in the next one.
            self.operations.answer_instead(id, Err(refusal));
        }
        let command = Command::FinishSharedSeal(SharedEnd {
            key: seal.key,
            end,
            complete: complete.into_iter().collect(),
            knowing: knowing.into_iter().collect(),
            open_next: seal.open_next,
            lost: seal.lost,
        });
        self.stage(Some(id), command, None);
    }
}

impl SharedSeal {
    pub(super) fn awaits_vote(&self, server: ServerId) -> bool {
        self.asked.contains(&server)
    }

    /// What this server is to send, or is sent: from where, whereto, up to which end.
    pub(super) fn awaited_writes(&self, server: ServerId) -> impl Iterator<Item = (ServerId, ServerId, Position)> {
        let writing = self.writing.iter();
        let concerned = writing.filter(move |writing| [writing.source, writing.to].contains(&server));
        concerned.map(|writing| (writing.source, writing.to, writing.end))
    }

    /// The answer to a seal by force that is not needed.
    fn needs_no_force(&self) -> Refusal {
        Refusal::invalid(format!(
            "enough of the servers of range {} say where their copies end: it is sealed without force, and nothing is lost",
            self.key
        ))
    }

    /// Nobody who is there has these records any more.
    fn has_lost(&self) -> Refusal {
        let lost = self.job.would_lose();
        let lost: Vec<_> = lost.iter().map(|(from, to)| (from.offset, to.offset)).collect();
        let servers: Vec<_> = self.job.voters().map(|server| server.to_string()).collect();
        Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "the disks of all servers of range {key} that are there ({servers}) have lost the same records ({lost}): it is sealed when \
                 a server that has them is there. If there is none any more, `sbp cluster force-seal {key}` ends it without them",
                key = self.key,
                servers = servers.join(", "),
                lost = shown(&lost),
            ),
        )
    }

    fn too_few(&self, why: &str) -> Refusal {
        let whys: Vec<_> = self
            .refusals
            .iter()
            .map(|(server, refusal)| format!("server {server}: {}", refusal.message))
            .collect();
        Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "too few of the servers of range {key} say where their copies end: {why} ({whys}); it is sealed when more of them \
                 are there. If their disks are lost for ever, `sbp cluster force-seal {key}` ends it without what only they had",
                key = self.key,
                whys = whys.join("; ")
            ),
        )
    }
}
