//! Entries of ranges that another server sends: from the primary as it takes them, or written back or copied.

use std::sync::Arc;
use std::time::Instant;

use sbp_frame::CallId;
use sbp_log::{EntryHead, EntryKind, LogEntry};
use sbp_messages::ErrorCode;
use sbp_record::{stamp_base_offset, without_stamp};
use sbp_replication::{Entry, NotTaken, Offered, Verdict};
use sbp_types::{Epoch, Position, RangeKey, TimestampMs};
use smallvec::SmallVec;

use super::settle::stored_up_to;
use crate::range::copies::{Fingerprint, Repeated};
use crate::range::job::{LogContext, TakenContext};
use crate::range::log_errors;
use crate::range::not_taken::not_taken;
use crate::range::notifications::Notifications;
use crate::range::outcome::{AppendDone, EntryId, NotStored};
use crate::range::ranges::Ranges;
use crate::range::requester::Requester;
use crate::range::server::RangeServer;
use crate::range::writers::WriterSequence;
use crate::refusal::Refusal;

/// An entry on its way from another server to the log.
#[derive(Debug)]
pub(crate) struct FollowJob {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    /// When the connection's task had read it.
    pub(crate) arrived: Instant,
    pub(crate) key: RangeKey,
    /// The epoch that the sender believes the range to have.
    pub(crate) epoch: Epoch,
    /// Where the entry stands, and what the sender knows.
    pub(crate) offered: Offered,
    /// Whether there is an entry, or the sender only tells what is confirmed.
    pub(crate) has_entry: bool,
    /// When the primary accepted it.
    pub(crate) append_time: TimestampMs,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) claim: Option<WriterSequence>,
    /// Of the state of the writers, which part it is, and how many there are.
    pub(crate) part: (u16, u16),
    /// The batch as it was received; of a fence, what tells its writer.
    pub(crate) chunks: SmallVec<[bytes::Bytes; 1]>,
}

impl FollowJob {
    fn id(&self) -> EntryId {
        EntryId {
            call: self.call,
            request_index: self.request_index,
            stream: self.key.stream,
            arrived: self.arrived,
        }
    }

    fn is_written_back(&self) -> bool {
        self.offered.sealed_end.is_some()
    }

    /// An entry that is here already; `None` if it has no end.
    fn repeated(self, requester: &Arc<dyn Requester>) -> Option<Repeated> {
        let (key, at, entry, is_written_back) = (self.key, self.offered.at, self.id(), self.is_written_back());
        let to = self.offered.entry.end(at)?;
        let offered = self.log_entry(requester, to);
        let prefix = bytes::Bytes::copy_from_slice(&offered.prefix);
        let pieces: SmallVec<[bytes::Bytes; 2]> = std::iter::once(prefix).chain(offered.chunks).collect();
        Some(Repeated {
            key,
            at,
            to,
            fingerprint: Fingerprint::of(&offered.head, pieces.iter().map(AsRef::as_ref)),
            pieces,
            is_written_back,
            requester: Arc::clone(requester),
            entry,
        })
    }

    fn log_entry(self, requester: &Arc<dyn Requester>, to: Position) -> LogEntry<LogContext> {
        let claim = self.claim.unwrap_or_default();
        let (kind, count) = match self.offered.entry {
            Entry::Records(count) => (EntryKind::Batch, count),
            Entry::Mark => (EntryKind::Fence, 0),
            Entry::Writers { .. } => {
                let (part, parts) = self.part;
                (EntryKind::Writers { part, parts }, 0)
            }
        };
        let head = EntryHead {
            key: self.key,
            kind,
            shared: true,
            epoch: self.epoch,
            base_offset: self.offered.at.offset,
            marks: Some(self.offered.at.marks),
            count,
            append_time: self.append_time,
            max_timestamp: self.max_timestamp,
            writer: claim.writer,
            writer_epoch: claim.epoch,
            base_sequence: claim.sequence,
        };
        let (prefix, chunks) = match self.offered.entry {
            Entry::Records(_) => (
                SmallVec::from_slice(&stamp_base_offset(head.base_offset)),
                without_stamp(&self.chunks),
            ),
            Entry::Mark => (SmallVec::new(), SmallVec::new()),
            Entry::Writers { .. } => (SmallVec::new(), self.chunks.clone()),
        };
        let context = LogContext::Taken(TakenContext {
            requester: Arc::clone(requester),
            entry: self.id(),
            key: self.key,
            to,
            is_written_back: self.is_written_back(),
        });
        LogEntry {
            head,
            prefix,
            chunks,
            context,
        }
    }
}

impl RangeServer {
    /// Judges entries that another server has sent, in order, and hands those that are taken to the log. `done` gets the
    /// outcomes that are known on return, as of [`append`](Self::append).
    pub(crate) fn follow(&self, requester: &Arc<dyn Requester>, jobs: &mut Vec<FollowJob>, done: &mut Vec<AppendDone>) {
        let mut entries = Vec::with_capacity(jobs.len());
        let mut notifications = Notifications::default();
        let keys: SmallVec<[RangeKey; 8]> = jobs.iter().map(|job| job.key).collect();
        if let Some(job) = jobs.first() {
            self.hear(job.offered.from, self.running_for());
        }
        let (queued, confirmed) = {
            // Held until the log has queued the entries, so that they are queued in the order of their places.
            let mut ranges = self.hub.ranges.lock();
            for job in jobs.drain(..) {
                done.extend(ranges.judge_offered(requester, job, &mut entries, &mut notifications));
            }
            let queued = self.queue_taken(&mut ranges, entries, &mut notifications);
            (queued, ranges.confirmed_of(keys.into_iter()))
        };
        self.log.confirm_all(confirmed);
        done.append(&mut notifications.take_appended(requester));
        notifications.send();
        if let Some(queued) = queued {
            self.write_here(requester, queued, done);
        }
        self.hub.finish_later();
    }

    fn queue_taken(
        &self,
        ranges: &mut Ranges,
        entries: Vec<LogEntry<LogContext>>,
        notifications: &mut Notifications,
    ) -> Option<sbp_log::Queued> {
        if entries.is_empty() {
            return None;
        }
        let (queued, refused) = self.log.queue_each(entries);
        for (LogEntry { head, context, .. }, error) in refused {
            let LogContext::Taken(taken) = context else { continue };
            if log_errors::is_final(&error) {
                self.hub.health.fail("the log", error.to_string());
            }
            let at = Position {
                offset: head.base_offset,
                marks: head.marks.unwrap_or(0),
            };
            ranges.change_copy(taken.key, |replica| replica.not_queued(at));
            let refusal = log_errors::append_refusal(&error);
            notifications.push(taken.requester, taken.entry.done(Err(refusal.into())));
        }
        Some(queued)
    }
}

impl Ranges {
    /// Judges one entry: it is added to `entries`, or waits, or its answer is returned.
    fn judge_offered(
        &mut self,
        requester: &Arc<dyn Requester>,
        job: FollowJob,
        entries: &mut Vec<LogEntry<LogContext>>,
        notifications: &mut Notifications,
    ) -> Option<AppendDone> {
        let (key, id) = (job.key, job.id());
        if !job.has_entry {
            let outcome = self.learn_confirmed(&job, notifications);
            return Some(id.done(outcome));
        }
        let (verdict, grows) = match self.table.offer(key, job.epoch, &job.offered) {
            Ok(judged) => judged,
            Err(refusal) => return Some(id.done(Err(refusal.into()))),
        };
        if grows {
            self.grown.push(key);
        }
        let replica = self.table.replica(key)?;
        let outcome = match verdict {
            Verdict::Take | Verdict::Begin => {
                let to = job.offered.entry.end(job.offered.at)?;
                entries.push(job.log_entry(requester, to));
                None
            }
            Verdict::Held | Verdict::Mend => {
                let repeated = job.repeated(requester)?;
                if repeated.to <= replica.synced_end() {
                    self.to_compare.push(repeated);
                } else {
                    self.copies.entry(key).or_default().repeated.push(repeated);
                }
                None
            }
            Verdict::GoOn(at) => Some(Err(go_on(key, at))),
            // Nobody closes a copy yet.
            Verdict::Close => {
                let primary = replica.range().primary();
                Some(Err(not_taken(key, NotTaken::OutOfPlace, primary).into()))
            }
            Verdict::Refused(why) => Some(Err(not_taken(key, why, replica.range().primary()).into())),
        };
        if grows {
            self.copy_moved(key, notifications);
        }
        outcome.map(|outcome| id.done(outcome))
    }

    /// The primary says what is confirmed.
    fn learn_confirmed(
        &mut self,
        job: &FollowJob,
        notifications: &mut Notifications,
    ) -> Result<crate::range::outcome::Stored, NotStored> {
        let key = job.key;
        let range = self.table.range(key).ok_or_else(|| Refusal::range_not_here(key))?;
        Refusal::check_epoch(key, range.epoch, Some(job.epoch))?;
        let from = job.offered.from;
        let confirmed = job.offered.confirmed;
        let primary = range.replica.as_ref().and_then(|replica| replica.range().primary());
        if primary != Some(from) {
            return Err(not_taken(key, NotTaken::NotPrimary, primary).into());
        }
        self.change_copy(key, |replica| replica.learn(confirmed));
        self.copy_moved(key, notifications);
        match self.table.replica(key) {
            // The primary may have been asked where the range ends: this says that nobody is ending it, so far.
            Some(replica) => match (replica.end(), replica.is_fenced()) {
                (Some(_), _) => Err(not_taken(key, NotTaken::Sealed, primary).into()),
                (None, true) => Err(not_taken(key, NotTaken::Fenced, primary).into()),
                (None, false) => Ok(stored_up_to(replica.answer())),
            },
            None => Err(Refusal::range_not_here(key).into()),
        }
    }
}

/// The answer to an entry before which others are missing: the sender goes on at `at`.
fn go_on(key: RangeKey, at: Position) -> NotStored {
    let message = format!("this copy of range {key} ends at {at}: send what follows");
    NotStored {
        next_offset: Some(at.offset),
        next_marks: at.marks,
        ..Refusal::new(ErrorCode::PRECONDITION_FAILED, message).into()
    }
}
