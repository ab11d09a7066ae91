//! The ranges of a range server and the requests that wait for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::OpCode;
use sbp_log::{EntryHead, LogEntry};
use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey, StreamId, TimestampMs, WriterId};

use super::append::AppendDecision;
use super::command::{Command, Effect};
use super::copies::{CopyWork, Hearing, Kept, Outboxes, Pace, Questions, Repeated, SealWork};
use super::elsewhere::Elsewhere;
use super::job::{AppendJob, LogContext, Promise, batch_entry, fence_entry};
use super::leaving::Leaving;
use super::notifications::Notifications;
use super::outcome::{AppendDone, NotStored};
use super::parked::Parked;
use super::pending::{Answer, PendingEntries};
use super::requester::Requester;
use super::seals::Seals;
use super::table::RangeTable;
use super::waiting::WaitingFetches;
use super::writers::{Until, WriterQuestion};
use crate::access::Gate;
use crate::refusal::Refusal;

/// The ranges and the requests that wait for them, under one lock, so that a fetch which finds too little and registers
/// to be woken cannot miss records that are confirmed in between. The lock is held for moments, never across a read or
/// write of files.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) table: RangeTable,
    pub(crate) waiting: WaitingFetches,
    pub(super) parked: Parked,
    pub(super) pending: PendingEntries,
    pub(super) seals: Seals,
    /// Whether there is a placement driver in another process that can be asked about unknown streams.
    pub(super) has_upstream: bool,
    /// Streams that the placement driver is being asked about now.
    pub(super) asking: HashSet<StreamId>,
    pub(super) elsewhere: Elsewhere,
    /// Ranges of deleted streams, kept until the log holds nothing of them.
    pub(super) given_up: Vec<RangeKey>,
    /// What leaves the disk, because others have it.
    pub(super) leaving: Leaving,
    /// What belongs to ranges that others hold too.
    pub(super) copies: HashMap<RangeKey, CopyWork>,
    /// How much all of them keep for followers.
    pub(super) kept: Kept,
    /// Entries that were sent again and have to be compared with those that are here, once the lock is released.
    pub(super) to_compare: Vec<Repeated>,
    /// Why the log has failed: nothing that was queued and is not synced will be.
    pub(super) log_failure: Option<Refusal>,
    /// The server is about to stop: ranges go on elsewhere whose appends it takes.
    pub(super) is_stopping: bool,
    /// What followers have to be sent.
    pub(super) outboxes: Outboxes,
    /// Bounds what is sent of sealed ranges.
    pub(super) pace: Pace,
    /// Questions where shared ranges end.
    pub(super) questions: Questions,
    /// Seals of shared ranges.
    pub(super) seal_work: SealWork,
    /// Whom this server has heard, if it holds ranges with others.
    pub(super) hearing: Option<Hearing>,
    /// Shared ranges of which readers see more, and have not been told.
    pub(super) grown: Vec<RangeKey>,
    /// Appends to shared ranges that were answered, and are not counted yet.
    pub(super) answered: Answered,
}

/// Batches that were answered, to be counted once the lock is released.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    pub(super) stored: usize,
    pub(super) records: usize,
    pub(super) refused: usize,
}

impl Answered {
    /// A batch or fence is answered: with the end of its records, or with a refusal.
    pub(super) fn note(&mut self, promise: Promise, end: Option<Offset>) {
        let Promise::Batch { base, .. } = promise else { return };
        match end {
            Some(end) => {
                self.stored += 1;
                let records = usize::try_from(end.distance_from(base)).unwrap_or(usize::MAX);
                self.records = self.records.saturating_add(records);
            }
            None => self.refused += 1,
        }
    }
}

impl Ranges {
    /// Keeps an append until it can be judged, or refuses it at once if too many wait.
    pub(super) fn park(&mut self, requester: &Arc<dyn Requester>, job: AppendJob, asked: bool) -> Option<AppendDone> {
        if !self.parked.has_room(job.entry.length) {
            let message = "too many appends wait to learn which range is theirs; send again later";
            return Some(job.refuse(Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message)));
        }
        self.parked.park(requester, job, asked);
        None
    }

    /// Whether the peer may still append to a stream that is here: it may have got another name while the append waited.
    pub(super) fn check_again(&self, job: &AppendJob) -> Result<(), Refusal> {
        check_by_name(&self.table, job)
    }

    /// Whoever sent these appends may do other things than before, or nothing any more: those that wait and that it may not
    /// append now are refused.
    pub(super) fn change_rights(
        &mut self,
        requester: &Arc<dyn Requester>,
        rights: Result<&Gate, &Refusal>,
    ) -> Vec<AppendDone> {
        let table = &self.table;
        self.parked.refuse_of(requester, |job| {
            job.gate = rights.map_err(Refusal::clone)?.clone();
            check_by_name(table, job)
        })
    }

    /// Judges one append: it is added to `entries`, or waits, or its answer is returned.
    pub(super) fn judge(
        &mut self,
        requester: &Arc<dyn Requester>,
        job: AppendJob,
        append_time: TimestampMs,
        entries: &mut Vec<LogEntry<LogContext>>,
    ) -> Option<AppendDone> {
        if self.has_too_many_unconfirmed(&job.entry, entries) {
            let message = "too many appends to this range wait for the servers that hold it too; send again later";
            return Some(job.refuse(Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message)));
        }
        let Effect::Judged(verdict) = self.table.apply(Command::Append(&job.entry)) else {
            return None;
        };
        if let Some(refusal) = self.never_answered(job.entry.stream, &verdict) {
            return Some(job.refuse(refusal));
        }
        match verdict {
            AppendDecision::Store {
                key,
                epoch,
                generation,
                base_offset,
                next_offset,
                next_sequence,
            } => {
                let claim = job.entry.head.as_ref().ok().and_then(|facts| facts.claim);
                let claim = claim.unwrap_or_default();
                let head = EntryHead {
                    key,
                    epoch,
                    base_offset,
                    count: next_offset.0 - base_offset.0,
                    append_time,
                    max_timestamp: job.max_timestamp,
                    writer: claim.writer,
                    writer_epoch: claim.epoch,
                    base_sequence: claim.sequence,
                    ..EntryHead::default()
                };
                entries.push(batch_entry(requester, &job, head, generation, next_sequence));
                None
            }
            AppendDecision::Done(stored) => Some(job.id().done(Ok(stored))),
            AppendDecision::Fence(fence) => {
                entries.push(fence_entry(requester, &job, append_time, &fence));
                None
            }
            AppendDecision::After { until, stored } => {
                self.pending
                    .wait(requester, &job, Until::Synced(until), Answer::Repeat(stored));
                None
            }
            AppendDecision::Ask { until } => {
                let facts = job.entry.head.as_ref().ok();
                let question = WriterQuestion {
                    claim: facts.and_then(|facts| facts.claim).unwrap_or_default(),
                    is_fence: facts.is_some_and(|facts| facts.is_fence),
                };
                self.pending.wait(requester, &job, until, Answer::Question(question));
                None
            }
            AppendDecision::RefuseAfter { until, refused } => {
                self.pending.wait(requester, &job, until, Answer::Refusal(refused));
                None
            }
            AppendDecision::Park => self.park(requester, job, false),
            AppendDecision::Refuse(refused) => Some(job.id().done(Err(refused))),
        }
    }
}

impl Ranges {
    /// Why an entry that would wait for others in a range that other servers hold too is refused: the log has failed, and
    /// will not store them. They may be on other servers, so that nobody here knows what becomes of them.
    fn never_answered(&self, stream: StreamId, verdict: &AppendDecision) -> Option<Refusal> {
        let refusal = self.log_failure.as_ref()?;
        let replica = self.table.stream(stream)?.last()?.replica.as_ref()?;
        let until = match verdict {
            AppendDecision::After { until, .. } => Until::Synced(*until),
            AppendDecision::Ask { until } | AppendDecision::RefuseAfter { until, .. } => *until,
            _ => return None,
        };
        let is_synced = matches!(until, Until::Synced(until) if until <= replica.synced_end().offset);
        (!is_synced && replica.end().is_none()).then(|| refusal.clone())
    }
}

/// Whether the peer may append to a stream, by the name that it has now; yes where it is not here.
fn check_by_name(table: &RangeTable, job: &AppendJob) -> Result<(), Refusal> {
    match table.stream(job.entry.stream) {
        None => Ok(()),
        Some(hosted) => job.gate.check_id(OpCode::APPEND, job.entry.stream, |_, allowed| {
            allowed(hosted.facts.name.as_deref())
        }),
    }
}

impl Ranges {
    /// All records of the stream before `end` are synced: answers the entries that waited for them.
    pub(super) fn answer_synced(&mut self, stream: StreamId, end: Offset, notifications: &mut Notifications) {
        let over = |until| matches!(until, Until::Synced(until) if until <= end);
        self.answer(stream, over, None, notifications);
    }

    /// The records of the stream from `from` on were not stored, because of `why`: answers the entries that waited for
    /// them.
    pub(super) fn answer_lost(
        &mut self,
        stream: StreamId,
        from: Offset,
        why: &Refusal,
        notifications: &mut Notifications,
    ) {
        let over = |until| matches!(until, Until::Synced(until) if until > from);
        self.answer(stream, over, Some(why), notifications);
    }

    /// A writer's fence is synced or, with a `why`, was not stored: answers the entries that waited for it.
    pub(super) fn answer_fenced(
        &mut self,
        stream: StreamId,
        writer: WriterId,
        epoch: i64,
        why: Option<&Refusal>,
        notifications: &mut Notifications,
    ) {
        self.answer(
            stream,
            |until| until == Until::Fenced { writer, epoch },
            why,
            notifications,
        );
    }

    /// The stream is deleted: answers all entries that wait.
    pub(super) fn answer_deleted(&mut self, stream: StreamId, notifications: &mut Notifications) {
        self.answer(stream, |_| true, Some(&Refusal::no_stream(stream)), notifications);
    }

    fn answer(
        &mut self,
        stream: StreamId,
        over: impl Fn(Until) -> bool,
        lost: Option<&Refusal>,
        notifications: &mut Notifications,
    ) {
        if self.pending.is_empty() {
            return;
        }
        let not_there = || Err(NotStored::from(lost.cloned().unwrap_or_else(Refusal::unanswered)));
        for pending in self.pending.take(stream, over) {
            let outcome = match pending.answer {
                Answer::Repeat(_) | Answer::Refusal(_) if lost.is_some() => not_there(),
                Answer::Refusal(refused) => Err(refused),
                Answer::Repeat(stored) => Ok(stored),
                Answer::Question(question) => {
                    let answer = self.table.answer_question(stream, &question);
                    answer.unwrap_or_else(not_there)
                }
            };
            notifications.push(pending.requester, pending.entry.done(outcome));
        }
    }
}

impl Ranges {
    /// Whether the placement driver may know a stream that this server does not know.
    pub(crate) fn worth_asking(&self, stream: StreamId) -> bool {
        self.has_upstream && self.table.is_unknown(stream)
    }

    /// The name of a stream, if this server knows it and it has one.
    pub(crate) fn name_of(&self, stream: StreamId) -> Option<&str> {
        match self.table.stream(stream) {
            Some(hosted) => hosted.facts.name.as_deref(),
            None => self.elsewhere.name(stream, Instant::now()).flatten(),
        }
    }

    /// Whether the placement driver has been asked about the stream and has not answered.
    pub(crate) fn is_asking(&self, stream: StreamId) -> bool {
        self.asking.contains(&stream)
    }

    /// Notes that the placement driver is asked about a stream. False if it was being asked already.
    pub(crate) fn begin_asking(&mut self, stream: StreamId) -> bool {
        self.asking.insert(stream)
    }
}
