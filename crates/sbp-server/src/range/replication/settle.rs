//! What happens when the log, or a follower, has synced entries of a shared range.

use std::collections::VecDeque;

use sbp_log::LogEntry;
use sbp_messages::ErrorCode;
use sbp_replication::{Answer, Replica};
use sbp_types::{Offset, Position, RangeKey};
use smallvec::SmallVec;

use crate::range::append::AppendEntry;
use crate::range::copies::{CopyWork, MOST_ENTRIES, RecentEntry};
use crate::range::job::{AppendContext, LogContext, Promise, TakenContext};
use crate::range::notifications::Notifications;
use crate::range::outcome::{NotStored, Stored};
use crate::range::ranges::Ranges;
use crate::refusal::Refusal;

/// The answer to an entry that another server has sent.
pub(super) fn stored_up_to(answer: Answer) -> Stored {
    let place = answer.place().unwrap_or_default();
    Stored {
        base_offset: None,
        next_offset: place.offset,
        next_marks: place.marks,
        duplicate: false,
        next_sequence: None,
    }
}

/// The refusal of an append that stands behind the end of its range.
pub(super) fn behind_the_end(key: RangeKey) -> Refusal {
    let message = format!(
        "range {key} was sealed before this append was confirmed: it is not stored, and the next range takes it"
    );
    Refusal::new(ErrorCode::RANGE_ALREADY_SEALED, message)
}

pub(super) fn answer_of(replica: &Replica, is_written_back: bool) -> Answer {
    if is_written_back {
        replica.answer_written_back()
    } else {
        replica.answer()
    }
}

/// The entries of shared ranges in a group of the log that has ended.
impl Ranges {
    /// The log has synced entries of shared ranges or, with `failed`, did not store them.
    pub(in crate::range) fn copies_ended(
        &mut self,
        contexts: Vec<LogContext>,
        failed: Option<&Refusal>,
        notifications: &mut Notifications,
    ) {
        let mut keys: SmallVec<[RangeKey; 4]> = SmallVec::new();
        let mut note = |key| {
            if !keys.contains(&key) {
                keys.push(key);
            }
        };
        // A full disk drops what may be on the followers; that is known when the range has its end.
        let log_failure = failed.filter(|refusal| refusal.code != ErrorCode::INSUFFICIENT_STORAGE);
        if let Some(refusal) = log_failure {
            self.log_failure = Some(refusal.clone());
        }
        let mut taken = Vec::new();
        let mut fenced: SmallVec<[RangeKey; 2]> = SmallVec::new();
        for context in contexts {
            match context {
                LogContext::Append(append) => {
                    let Some((key, to)) = append.until else { continue };
                    note(key);
                    self.append_ended(key, to, append, failed, notifications);
                }
                LogContext::Taken(context) => {
                    note(context.key);
                    self.copy_ended(context.key, context.to, failed);
                    taken.push(context);
                }
                LogContext::Begun(key, to) => {
                    note(key);
                    self.copy_ended(key, to, failed);
                }
                LogContext::Fenced(key) => fenced.push(key),
                LogContext::Drained(_) => {}
            }
        }
        for context in taken {
            let outcome = match failed {
                Some(refusal) => Err(refusal.clone().into()),
                None => self.answer_taken(&context),
            };
            notifications.push(context.requester, context.entry.done(outcome));
        }
        for key in keys {
            if let (Some(refusal), Some(replica)) = (log_failure, self.table.replica(key)) {
                // What waits for appends that are lost here is told the same as these.
                let synced = replica.synced_end().offset;
                self.answer_lost(key.stream, synced, refusal, notifications);
            }
            self.copy_moved(key, notifications);
        }
        // Also after a failure: the copy then ends with what is synced.
        for key in fenced {
            self.fence_drained(key, notifications);
        }
    }

    /// What the other server is answered for an entry that is synced.
    fn answer_taken(&self, context: &TakenContext) -> Result<Stored, NotStored> {
        match self.table.replica(context.key) {
            Some(replica) => Ok(stored_up_to(answer_of(replica, context.is_written_back))),
            None => Err(Refusal::range_not_here(context.key).into()),
        }
    }

    fn copy_ended(&mut self, key: RangeKey, to: Position, failed: Option<&Refusal>) {
        self.change_copy(key, |replica| match failed {
            None => replica.synced(to),
            Some(_) => replica.dropped(),
        });
    }

    /// An append of a client to a range of which this server is the primary is synced here, or will not be.
    ///
    /// One that the log has dropped for want of room may be on the followers: its fate is known when the range has its end.
    fn append_ended(
        &mut self,
        key: RangeKey,
        to: Position,
        append: AppendContext,
        failed: Option<&Refusal>,
        notifications: &mut Notifications,
    ) {
        self.copy_ended(key, to, failed);
        if let Some(work) = self.copies.get_mut(&key) {
            work.unsynced = work.unsynced.saturating_sub(1);
        }
        if self.table.replica(key).is_none() {
            let gone = Refusal::no_stream(key.stream);
            notifications.push(append.requester, append.entry.done(Err(gone.into())));
            return;
        }
        match failed {
            Some(refusal) if refusal.code != ErrorCode::INSUFFICIENT_STORAGE => {
                self.answered.note(append.promise, None);
                if let Promise::Fence { writer, epoch } = append.promise {
                    self.fence_ended(key.stream, writer, epoch, Some(refusal), notifications);
                }
                notifications.push(append.requester, append.entry.done(Err(refusal.clone().into())));
            }
            _ => self.copies.entry(key).or_default().unconfirmed.push_back((to, append)),
        }
    }

    /// Changes a copy, and notes whether readers see more, for [`copy_moved`](Self::copy_moved).
    pub(in crate::range) fn change_copy<R>(
        &mut self,
        key: RangeKey,
        change: impl FnOnce(&mut Replica) -> R,
    ) -> Option<R> {
        let (result, grows) = self.table.change_replica(key, change)?;
        if grows {
            self.grown.push(key);
        }
        Some(result)
    }

    /// Something about a copy may have changed: answers what is confirmed or synced by now, wakes readers, and notes what
    /// followers have to be told.
    pub(super) fn copy_moved(&mut self, key: RangeKey, notifications: &mut Notifications) {
        self.answer_seals(key);
        self.settle_question(key, notifications);
        let Some(replica) = self.table.replica(key) else { return };
        let is_ended = replica.end().is_some();
        let (acknowledged, synced) = (replica.acknowledged(), replica.synced_end());
        let needed = replica.needed_from();
        let grows = self.grown.iter().position(|grown| *grown == key);
        if let Some(place) = grows {
            self.grown.swap_remove(place);
            self.wake(key.stream, notifications);
            if let Some(end) = self.table.stream(key.stream).map(|stream| stream.confirmed_end()) {
                self.answer_synced(key.stream, end, notifications);
            }
        }
        let Some(work) = self.copies.get_mut(&key) else {
            // Nobody waits; but entries may have been ordered to be sent from the log.
            return self.tell_followers(key);
        };
        let kept = work.kept();
        work.forget_before(needed.unwrap_or(synced));
        self.kept.changed(kept, work.kept());
        let confirmed: SmallVec<[AppendContext; 8]> = work.take_confirmed(acknowledged).collect();
        let here = work.repeated.extract_if(.., |repeated| repeated.to <= synced);
        self.to_compare.extend(here);
        // What lies behind the end was not stored, for certain.
        let behind = if is_ended {
            std::mem::take(&mut work.unconfirmed)
        } else {
            VecDeque::new()
        };
        if work.is_idle() {
            self.copies.remove(&key);
        }
        for append in confirmed {
            self.answered.note(append.promise, Some(append.stored.next_offset));
            if let Promise::Fence { writer, epoch } = append.promise {
                self.fence_ended(key.stream, writer, epoch, None, notifications);
            }
            notifications.push(append.requester, append.entry.done(Ok(append.stored)));
        }
        for (_, append) in behind {
            self.answered.note(append.promise, None);
            let refusal = behind_the_end(key);
            if let Promise::Fence { writer, epoch } = append.promise {
                self.fence_ended(key.stream, writer, epoch, Some(&refusal), notifications);
            }
            notifications.push(append.requester, append.entry.done(Err(refusal.into())));
        }
        self.tell_followers(key);
    }

    /// Notes for whom a shared range has entries, and who does not know all that is confirmed.
    pub(super) fn tell_followers(&mut self, key: RangeKey) {
        let Some(replica) = self.table.replica(key) else { return };
        let confirmed = replica.confirmed();
        let followers: SmallVec<[_; 2]> = replica.sends_to().collect();
        for server in followers {
            let next = self.table.replica(key).and_then(|replica| replica.next_for(server));
            if let Some((_, sealed_end)) = next {
                if sealed_end.is_none() {
                    // Clients wait for what an open range has, and there is no more news of it than they append.
                    self.outboxes.of(server).may_take(key);
                }
                self.outboxes.has_entries(server, key);
            }
            self.outboxes.is_confirmed(server, key, confirmed);
        }
    }

    /// Gives the appends to shared ranges their places, before the log takes them. Returns what followers are sent of them.
    pub(in crate::range) fn place_copies(&self, entries: &mut [LogEntry<LogContext>]) -> Vec<(RangeKey, RecentEntry)> {
        let mut placed: Vec<(RangeKey, RecentEntry)> = Vec::new();
        for entry in entries {
            let key = entry.head.key;
            let Some(replica) = self.table.replica(key) else {
                continue;
            };
            let last = placed.iter().rev().find(|(range, _)| *range == key);
            let at = last.map_or(replica.next(), |(_, entry)| entry.to);
            let to = match entry.head.is_fence() {
                true => at.behind_mark(),
                false => at.behind_records(entry.head.count),
            };
            let (Some(to), LogContext::Append(append)) = (to, &mut entry.context) else {
                continue;
            };
            append.until = Some((key, to));
            entry.head.marks = Some(at.marks);
            entry.head.shared = true;
            placed.push((key, RecentEntry::of(entry, at, to)));
        }
        placed
    }

    /// These ranges are not here any more: answers what waits for them.
    pub(in crate::range) fn copies_gone(
        &mut self,
        keys: &[RangeKey],
        why: impl Fn(RangeKey) -> Refusal,
        notifications: &mut Notifications,
    ) {
        for key in keys {
            let work = self.copies.remove(key).unwrap_or_default();
            self.kept.changed(work.kept(), CopyWork::default().kept());
            let gone = why(*key);
            for (_, append) in work.unconfirmed {
                notifications.push(append.requester, append.entry.done(Err(gone.clone().into())));
            }
            for repeated in work.repeated {
                notifications.push(repeated.requester, repeated.entry.done(Err(gone.clone().into())));
            }
            self.questions.forget(*key);
            self.answer_seals(*key);
        }
    }

    /// Whether so many appends to the range that an append would go to are not confirmed that it has to come later.
    /// `queued` are those that were judged and that the log is given with it.
    pub(in crate::range) fn has_too_many_unconfirmed(
        &self,
        entry: &AppendEntry,
        queued: &[LogEntry<LogContext>],
    ) -> bool {
        if self.copies.is_empty() && queued.len() < MOST_ENTRIES {
            return false;
        }
        let last = self.table.stream(entry.stream).and_then(|stream| stream.last());
        let Some(range) = last.filter(|range| range.replica.is_some()) else {
            return false;
        };
        let key = range.key(entry.stream);
        let known = self.copies.get(&key).map_or(0, CopyWork::unconfirmed_appends);
        if known + queued.len() < MOST_ENTRIES {
            return false;
        }
        let of_range = queued.iter().filter(|queued| queued.head.key == key).count();
        known + of_range >= MOST_ENTRIES
    }

    /// The offset below which the log need not keep records of a range: not those that another server still has to be sent,
    /// those that are still to come here, and the state of the writers until it is kept elsewhere how much of it there is.
    pub(in crate::range) fn releasable(&self, key: RangeKey, below: Offset) -> Offset {
        let Some(range) = self.table.range(key) else {
            return below;
        };
        let Some(replica) = &range.replica else { return below };
        let needed = replica.needed_from().map_or(below, |needed| needed.offset);
        let kept = match replica.end() {
            Some(_) => below,
            None if !range.keeps_writers => replica.range().start,
            None => replica.synced_end().offset,
        };
        below.min(needed).min(kept)
    }

    /// Forgets what is kept longest for followers, over all ranges, until no more is kept than may be.
    fn forget_oldest(&mut self) {
        let Self { kept, copies, .. } = self;
        while let Some((number, key)) = kept.oldest() {
            if let Some(work) = copies.get_mut(&key) {
                let before = work.kept();
                work.forget_oldest(number);
                kept.changed(before, work.kept());
            }
        }
        kept.tidy(|number, key| copies.get(&key).is_some_and(|work| work.keeps(number)));
    }

    /// Keeps entries that the log has taken for the followers.
    pub(in crate::range) fn entries_queued(&mut self, entries: Vec<(RangeKey, RecentEntry)>) {
        for (key, entry) in entries {
            let to = entry.to;
            let work = self.copies.entry(key).or_default();
            work.unsynced += usize::from(entry.is_append());
            let kept = work.kept();
            work.keep(entry, self.kept.number(key));
            self.kept.changed(kept, work.kept());
            self.forget_oldest();
            self.change_copy(key, |replica| replica.queued(to));
            self.tell_followers(key);
        }
    }
}
