//! The end of one shared range and the beginning of the next one.

use bytes::Bytes;
use sbp_log::{EntryHead, EntryKind, LogEntry, writers_in};
use sbp_types::{Epoch, Position, RangeKey, ServerId, TimestampMs};
use smallvec::SmallVec;

use super::settle::behind_the_end;
use crate::range::command::{Command, Effect};
use crate::range::copies::RecentEntry;
use crate::range::job::LogContext;
use crate::range::notifications::Notifications;
use crate::range::ranges::Ranges;
use crate::range::replica_set::ReplicaSet;
use crate::range::server::RangeServer;
use crate::range::stream::{FoundCopy, HeldRange, Phase};

impl RangeServer {
    /// The placement driver has told of a range: ends this server's copy if it is sealed, and begins it if it is open and
    /// new and this server is its primary.
    pub(in crate::range) fn end_or_begin(
        &self,
        ranges: &mut Ranges,
        range: &HeldRange,
        notifications: &mut Notifications,
    ) {
        let key = range.key;
        let Some(replica) = ranges.table.replica(key) else {
            return;
        };
        match range.end_position() {
            Some(end) if replica.end() != Some(end) => {
                ranges.end_copy(key, end, notifications);
                self.log.end_range(key, end);
            }
            Some(_) => {}
            None => {
                if replica.takes_appends() == Err(sbp_replication::NotTaken::WritersMissing) {
                    self.begin_range(ranges, key, range.epoch);
                }
                // Also where there is nothing to send: the followers expect to hear of their primary.
                ranges.tell_followers(key);
            }
        }
    }

    /// A range that is new here and on this server alone: where others had the one before it too, this server may not have
    /// been its primary, and learns of the writers from its log.
    pub(in crate::range) fn go_on_alone(&self, ranges: &mut Ranges, range: &HeldRange) {
        let key = range.key;
        let Some(stream) = ranges.table.stream(key.stream) else {
            return;
        };
        let before = stream.ranges.iter().rfind(|known| known.index < key.range);
        let was_shared = before.is_some_and(|before| before.replica.is_some());
        if !was_shared || !range.set.is_alone() || range.end.is_some() {
            return;
        }
        let parts = self.log.writers_of(key.stream);
        let known = parts
            .iter()
            .flat_map(|part| writers_in(key.stream, part).unwrap_or_default());
        ranges.recall_writers(key, known.collect());
    }

    /// Others are to have a copy of a sealed range that this server alone has: from here on it is one of several copies, also
    /// if the placement driver counts the others only when they have all of it. It is not begun with the state of the writers: the
    /// others take it as it is, and learn nothing of the writers from it.
    pub(in crate::range) fn share_sealed(&self, ranges: &mut Ranges, key: RangeKey, others: &[ServerId]) {
        let Some(me) = self.log.server_id() else { return };
        let Some(hosted) = ranges.table.stream(key.stream) else {
            return;
        };
        let Some(range) = ranges.table.range(key) else { return };
        if range.replica.is_some() || range.phase != Phase::Sealed {
            return;
        }
        let others = others.iter().copied().filter(|server| *server != me);
        let shared = HeldRange {
            set: ReplicaSet::new(std::iter::once(me).chain(others), None),
            ..hosted.held(key, range)
        };
        let found = FoundCopy {
            synced: Position::start(range.confirmed),
            first: self.log.first_position(key),
            writers_parts: 0,
        };
        let replica = shared.recovered_replica(Some(me), &found);
        if let Some(range) = ranges.table.range_mut(key) {
            range.replica = replica;
        }
    }

    /// Writes what begins a shared range: the state of the stream's writers at the end of the range before.
    fn begin_range(&self, ranges: &mut Ranges, key: RangeKey, epoch: Epoch) {
        let parts = self.log.writers_of(key.stream);
        let Ok(count) = u16::try_from(parts.len()) else {
            tracing::error!(range = %key, parts = parts.len(), "there are too many writers to begin a range with");
            return;
        };
        let known: Vec<_> = parts
            .iter()
            .flat_map(|part| writers_in(key.stream, part).unwrap_or_default())
            .collect();
        let Some(mut at) = ranges.table.replica(key).map(sbp_replication::Replica::next) else {
            return;
        };
        ranges.change_copy(key, |replica| replica.begin_with_writers(u32::from(count)));
        let now = self.now();
        let mut entries = Vec::with_capacity(parts.len());
        let mut sent = Vec::with_capacity(parts.len());
        for (part, bytes) in (0..).zip(parts) {
            let Some(to) = at.behind_mark() else { return };
            let entry = writers_entry(key, epoch, at, (part, count), now, bytes, to);
            sent.push((key, RecentEntry::of(&entry, at, to)));
            entries.push(entry);
            at = to;
        }
        match self.log.queue(entries) {
            Ok(queued) => {
                ranges.entries_queued(sent);
                ranges.recall_writers(key, known);
                self.log.announce(queued);
            }
            Err(error) => {
                tracing::error!(range = %key, %error, "the range cannot be begun; its placement driver tells of it again");
            }
        }
    }
}

fn writers_entry(
    key: RangeKey,
    epoch: Epoch,
    at: Position,
    (part, parts): (u16, u16),
    append_time: TimestampMs,
    bytes: Bytes,
    to: Position,
) -> LogEntry<LogContext> {
    LogEntry {
        head: EntryHead {
            key,
            kind: EntryKind::Writers { part, parts },
            shared: true,
            epoch,
            base_offset: at.offset,
            marks: Some(at.marks),
            append_time,
            ..EntryHead::default()
        },
        prefix: SmallVec::new(),
        chunks: SmallVec::from_elem(bytes, 1),
        context: LogContext::Begun(key, to),
    }
}

impl Ranges {
    /// The range ends here: what waits is answered, and what lies behind was never stored.
    fn end_copy(&mut self, key: RangeKey, end: Position, notifications: &mut Notifications) {
        self.change_copy(key, |replica| replica.end_told(end));
        self.table.apply(Command::Publish { key, end: end.offset });
        let taken_back = self.table.apply(Command::TakeBack { key, base: end.offset });
        self.grown.push(key);
        self.copy_moved(key, notifications);
        if let Effect::TakenBack { from, .. } = taken_back {
            // What grows in the next range is not what these waited for.
            self.answer_lost(key.stream, from, &behind_the_end(key), notifications);
        }
    }

    /// The writers of a stream are these, and no others.
    fn recall_writers(&mut self, key: RangeKey, known: Vec<(sbp_log::WriterKey, sbp_log::WriterState)>) {
        let stream = key.stream;
        self.table.forget_writers(stream);
        for (writer, state) in known {
            self.table.apply(Command::Recall {
                stream,
                writer: writer.writer,
                state,
            });
        }
    }
}
