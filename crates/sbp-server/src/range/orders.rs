//! What a placement driver can order a range server to do, called directly in the same process or by SBP requests.
//!
//! Every order is given after the change is durable in the metadata, except [`RangeServer::seal`], which finds the end
//! that is to be made durable.

use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::command::{Command, Effect, SealStep};
use super::job::LogContext;
use super::log_errors;
use super::notifications::Notifications;
use super::ranges::Ranges;
use super::seals::{SealAnswers, seal_end};
use super::server::RangeServer;
use super::stream::{HeldRange, StreamFacts};
use crate::refusal::{Done, Refusal};

impl RangeServer {
    /// Takes over the durable metadata of a stream: its settings, new ranges, a raised start, the end of a sealed
    /// range. Parked appends are judged again, so after a seal the sealed range and the next one have to be in the same
    /// call.
    pub(crate) fn install(&self, stream: StreamId, facts: StreamFacts, ranges: &[HeldRange]) {
        let mut notifications = Notifications::default();
        let mut released = Vec::new();
        let me = self.log.server_id();
        let queued = {
            let mut held = self.hub.ranges.lock();
            let (described, id) = (facts.clone(), stream);
            held.table.apply(Command::Describe { stream, facts });
            for range in ranges.iter().filter(|range| range.key.stream == id) {
                let is_new = held.table.range(range.key).is_none();
                held.install(me, &described, range, &mut released);
                if is_new {
                    self.go_on_alone(&mut held, range);
                }
                self.share_sealed(&mut held, range.key, range.set.servers());
                self.end_or_begin(&mut held, range, &mut notifications);
            }
            held.wake(stream, &mut notifications);
            self.judge_parked(&mut held, stream, &mut notifications)
        };
        self.release(released);
        self.post(notifications, queued);
    }

    /// Has the log forget what is trimmed. The ranges, and the offset below which their records are not kept.
    fn release(&self, released: Vec<(RangeKey, Offset)>) {
        if released.is_empty() {
            return;
        }
        for (key, below) in &released {
            self.log.release(*key, *below);
        }
        let mut ranges = self.hub.ranges.lock();
        for (key, _) in released {
            let first = self.log.first_position(key);
            let Some(start) = ranges.table.stream(key.stream).map(|stream| stream.start) else {
                continue;
            };
            ranges.change_copy(key, |replica| replica.trimmed(start, first.unwrap_or(replica.next())));
        }
        self.hub.finish(ranges);
    }

    /// Seals a range: it takes no more appends, and `done` gets its end when everything it accepted is synced (after a
    /// failure of the log: the end of what is synced). Readers learn of the end with
    /// [`publish_seal`](Self::publish_seal). A range that is sealed already answers with the same end.
    pub(crate) fn seal(&self, key: RangeKey, done: Done<Offset>) {
        let mut answers = SealAnswers::default();
        {
            let mut ranges = self.hub.ranges.lock();
            let Effect::Seal(step) = ranges.table.apply(Command::Seal { key }) else {
                return;
            };
            match step {
                SealStep::Begun => {
                    ranges.seals.wait(key, done);
                    self.wait_for_log(&mut ranges, key, &mut answers);
                }
                SealStep::UnderWay => ranges.seals.wait(key, done),
                step => answers.push(done, seal_end(step, key, &ranges.table)),
            }
        }
        answers.give();
    }

    fn wait_for_log(&self, ranges: &mut Ranges, key: RangeKey, answers: &mut SealAnswers) {
        match self.log.barrier(LogContext::Drained(key)) {
            Ok(()) => {}
            Err(error) if log_errors::is_final(&error) => {
                // The log has failed: what is not synced now never will be.
                if let Some(end) = ranges.table.next_offset(key) {
                    ranges.table.apply(Command::TakeBack { key, base: end });
                }
                ranges.drain(key, answers);
            }
            Err(error) => {
                ranges.table.apply(Command::Unseal { key });
                let refusal = Refusal::new(ErrorCode::SHUTTING_DOWN, error.to_string());
                answers.take(&mut ranges.seals, key, Err(refusal));
            }
        }
    }

    /// The end of a sealed range is durable: readers learn of it. Where the next range is on this server too,
    /// [`install`](Self::install) both instead.
    pub(crate) fn publish_seal(&self, key: RangeKey, end: Offset) {
        let mut notifications = Notifications::default();
        let queued = {
            let mut ranges = self.hub.ranges.lock();
            if let Effect::Advanced(stream) = ranges.table.apply(Command::Publish { key, end }) {
                ranges.wake(stream, &mut notifications);
            }
            self.judge_parked(&mut ranges, key.stream, &mut notifications)
        };
        self.post(notifications, queued);
    }

    /// The end of a range could not be made durable: the range takes appends again.
    pub(crate) fn unseal(&self, key: RangeKey) {
        let mut notifications = Notifications::default();
        let queued = {
            let mut ranges = self.hub.ranges.lock();
            ranges.table.apply(Command::Unseal { key });
            self.judge_parked(&mut ranges, key.stream, &mut notifications)
        };
        self.post(notifications, queued);
    }

    /// Records of the stream before `start` are not needed any more. Sealed ranges that end at or before `start` are
    /// removed, but never the last range.
    pub(crate) fn trim(&self, stream: StreamId, start: Offset) {
        let mut notifications = Notifications::default();
        let mut released = Vec::new();
        {
            let mut ranges = self.hub.ranges.lock();
            ranges.trim(stream, start, &mut released);
            ranges.wake(stream, &mut notifications);
        }
        self.release(released);
        notifications.send();
    }

    /// The stream is deleted: appends and fetches, also those that wait, are refused from now on.
    pub(crate) fn delete(&self, stream: StreamId) {
        let mut notifications = Notifications::default();
        let (queued, was_here) = {
            let mut ranges = self.hub.ranges.lock();
            let effect = ranges.table.apply(Command::Delete { stream });
            ranges.wake(stream, &mut notifications);
            let queued = self.judge_parked(&mut ranges, stream, &mut notifications);
            ranges.answer_deleted(stream, &mut notifications);
            let was_here = match effect {
                Effect::Deleted(keys) => {
                    ranges.copies_gone(&keys, |key| Refusal::no_stream(key.stream), &mut notifications);
                    ranges.given_up.extend(keys);
                    true
                }
                _ => false,
            };
            (queued, was_here)
        };
        if was_here {
            self.tombstones.lock().note(stream, &self.log);
        }
        self.log.release_stream(stream);
        self.post(notifications, queued);
    }

    /// The placement driver knows nothing of a stream: what is here of it is kept, and not served until it is told again.
    /// Returns whether it was served.
    pub(crate) fn withhold(&self, stream: StreamId) -> bool {
        let mut notifications = Notifications::default();
        let (queued, was_served) = {
            let mut ranges = self.hub.ranges.lock();
            let effect = ranges.table.apply(Command::Withhold { stream });
            ranges.wake(stream, &mut notifications);
            let queued = self.judge_parked(&mut ranges, stream, &mut notifications);
            (queued, matches!(effect, Effect::Advanced(_)))
        };
        self.post(notifications, queued);
        was_served
    }

    /// The server was let go of these ranges, which is durable: they are not served any more, and nothing is taken of them.
    pub(crate) fn leave(&self, keys: impl IntoIterator<Item = RangeKey>) {
        let mut notifications = Notifications::default();
        let mut left = Vec::new();
        {
            let mut ranges = self.hub.ranges.lock();
            for key in keys {
                ranges.table.apply(Command::LetGo { key });
                ranges.copies_gone(&[key], Refusal::range_not_here, &mut notifications);
                ranges.wake(key.stream, &mut notifications);
                ranges.leaving.add(key);
                left.push(key);
            }
            self.hub.finish(ranges);
        }
        for key in left {
            self.log.release(key, Offset(i64::MAX));
        }
        notifications.send();
    }

    /// Has the log remove what it has of such ranges. Files that others have records in too are rewritten for it, so this is done
    /// for many ranges at once: when none was added since the last call. Returns those that have left the disk. Blocks on it.
    ///
    /// Whoever calls it waits until [`has_left`](Self::has_left) was called for what it returns before it calls it again: from then
    /// on they may be here again.
    pub(crate) fn clear_what_leaves(&self) -> Vec<RangeKey> {
        let leaving = self.hub.ranges.lock().leaving.settled();
        self.log.clear(&leaving).unwrap_or_else(|error| {
            tracing::warn!(%error, ranges = leaving.len(), "ranges that others have cannot leave the disk now");
            Vec::new()
        })
    }

    /// It is durable that these ranges have left the disk: they may be taken again.
    pub(crate) fn has_left(&self, keys: &[RangeKey]) {
        self.hub.ranges.lock().leaving.remove(keys);
    }

    /// Whether a deleted stream may be forgotten, because no restart on this directory could find anything of it. A
    /// caller that is told so must forget it; if not, it asks again later.
    pub(crate) fn may_forget(&self, stream: StreamId) -> bool {
        self.tombstones.lock().may_forget(stream, &self.log)
    }

    /// No range of its stream before this one is left, on whatever server, as the placement driver says.
    pub(crate) fn begins_with(&self, first: RangeKey) {
        self.hub.ranges.lock().table.begins_with(first);
    }

    /// Those of the given ranges before which others of their streams may be left, on whatever server.
    pub(crate) fn behind_others(&self, mut keys: Vec<RangeKey>) -> Vec<RangeKey> {
        let ranges = self.hub.ranges.lock();
        keys.retain(|key| !ranges.table.has_none_before(*key));
        keys
    }

    /// The servers that hold a range too, or are about to; none if it is not held here.
    pub(crate) fn holders(&self, key: RangeKey) -> Vec<ServerId> {
        let ranges = self.hub.ranges.lock();
        let set = ranges.table.range(key).map(|range| range.set.servers());
        set.unwrap_or_default().to_vec()
    }

    /// All ranges held, sorted by key.
    pub(crate) fn all_held(&self) -> Vec<HeldRange> {
        self.hub.ranges.lock().table.all_held()
    }
}

impl Ranges {
    /// Wakes all requesters that wait for a stream.
    pub(super) fn wake(&mut self, stream: StreamId, notifications: &mut Notifications) {
        for requester in self.waiting.take(stream) {
            notifications.to(requester).advanced.push(stream);
        }
    }

    fn install(
        &mut self,
        me: Option<ServerId>,
        facts: &StreamFacts,
        range: &HeldRange,
        released: &mut Vec<(RangeKey, Offset)>,
    ) {
        let HeldRange {
            key,
            start,
            end,
            ref set,
            ..
        } = *range;
        let Some(known) = self.table.range(key) else {
            self.table.apply(Command::Open {
                stream: key.stream,
                facts: facts.clone(),
                range: range.opened(me),
            });
            self.listen_to(set.servers());
            return;
        };
        let raised = start > known.start;
        if let Some(known) = self.table.range_mut(key) {
            known.keeps_writers |= range.keeps_writers();
        }
        let Some(known) = self.table.range(key) else { return };
        let moved = known.set != *set;
        if let Some(end) = end
            && known.replica.is_none()
        {
            self.table.apply(Command::Publish { key, end });
        }
        if moved {
            self.table.apply(Command::Place { key, set: set.clone() });
        }
        if raised {
            self.trim(key.stream, start, released);
        }
    }

    /// Adds to `released` the ranges, and the offset below which the log need not keep their records.
    fn trim(&mut self, stream: StreamId, start: Offset, released: &mut Vec<(RangeKey, Offset)>) {
        if let Effect::Trimmed { first, gone } = self.table.apply(Command::Trim { stream, start }) {
            released.push((first, self.releasable(first, start)));
            released.extend(gone.iter().map(|key| (*key, Offset(i64::MAX))));
        }
    }
}
