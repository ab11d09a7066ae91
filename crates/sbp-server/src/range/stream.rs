//! The part of one stream that this server holds: its ranges, its settings and its writers.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_log::{EntryHead, WriterState};
use sbp_replication::{NotTaken, Recovered, Replica, Rules};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId, WriterId};
use smallvec::SmallVec;

use super::replica_set::{CopyRecord, ReplicaSet};
use super::writers::Writer;

/// One range.
///
/// Invariants: `start <= confirmed <= next`; a sealed range has `confirmed == next == end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeState {
    pub(crate) index: RangeIndex,
    pub(crate) epoch: Epoch,
    /// The first offset of the range.
    pub(crate) start: Offset,
    /// The offset that the next record gets: one past all records handed to the log.
    pub(crate) next: Offset,
    /// One past the last synced record: readers see the records before it.
    pub(crate) confirmed: Offset,
    pub(crate) phase: Phase,
    /// The servers that hold the range.
    pub(crate) set: ReplicaSet,
    /// Counts how often promised offsets were taken back. A failure reported late by the log names the generation it
    /// concerns, so that it does not take back offsets promised since.
    pub(crate) generation: u32,
    /// Whether it is kept beside the log in how many parts the state of the writers came that begins the range: only then
    /// the log may forget these parts.
    pub(crate) keeps_writers: bool,
    /// Whether too few of the servers that hold the range too are heard: this one may be cut off from them.
    pub(crate) is_cut_off: bool,
    /// What this server may do with its copy, where other servers have copies too. `next` and `confirmed` follow from it.
    pub(crate) replica: Option<Box<Replica>>,
}

impl RangeState {
    /// The key of this range, `stream` being its stream.
    pub(crate) fn key(&self, stream: StreamId) -> RangeKey {
        RangeKey {
            stream,
            range: self.index,
        }
    }

    /// Whether this server can say where the stream ends, whose last range here this is and which other servers hold too: it
    /// is the primary, the range is not sealed, and nobody else can have confirmed more of it.
    pub(super) fn knows_its_end(&self) -> bool {
        let takes_appends = self.replica.as_deref().map(Replica::takes_appends);
        let is_primary = matches!(
            takes_appends,
            Some(Ok(()) | Err(NotTaken::TooManyUnconfirmed | NotTaken::WritersMissing))
        );
        is_primary && self.phase != Phase::Sealed && !self.is_cut_off
    }

    /// What is kept of the copy of a range that other servers hold too, and that begins at `start` now.
    fn copy_record(&self, start: Offset) -> CopyRecord {
        let Some(replica) = &self.replica else {
            return CopyRecord::default();
        };
        let opened = replica.range().start;
        CopyRecord {
            end_marks: replica.end().map_or(0, |end| end.marks),
            fenced_at: replica.fenced_at(),
            opened: (opened < start).then_some(opened),
            writers_parts: replica.writers_end().map_or(0, |end| end.marks),
            disputed: replica.disputed(),
        }
    }

    /// Changes the copy of a range that other servers hold too, and takes over what follows from it. Returns what `change`
    /// returns, and whether readers see more; `None` if nobody else has a copy.
    pub(super) fn change_replica<R>(&mut self, change: impl FnOnce(&mut Replica) -> R) -> Option<(R, bool)> {
        let replica = self.replica.as_mut()?;
        let result = change(replica);
        self.next = replica.next().offset;
        let readable = replica.readable().map_or(self.confirmed, |end| end.offset);
        let grows = readable > self.confirmed;
        self.confirmed = self.confirmed.max(readable);
        Some((result, grows))
    }
}

/// The life of a range, from open to sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The range takes appends.
    Open,
    /// The range takes no appends, and readers do not know it is ending. Without an end: the log still works on appends
    /// accepted before. With one: the end is being made durable. Ends in `Sealed`, or in `Open` if the seal fails.
    Sealing { end: Option<Offset> },
    /// The range takes no appends any more; its end is `confirmed`.
    Sealed,
    /// The range takes no appends: its last records are damaged on disk, so its next offset is unknown.
    EndDamaged,
}

/// The settings of a stream that a range server needs to judge appends and apply retention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamFacts {
    /// Its name, by which grants are judged.
    pub(crate) name: Option<Arc<str>>,
    /// The fingerprints of the schemas that typed batches may have; empty: an opaque stream.
    pub(crate) fingerprints: SmallVec<[u64; 1]>,
    /// How many milliseconds a record is kept after its append; 0: for ever.
    pub(crate) retention_period_ms: i64,
    /// How many bytes are kept; `None`: no bound.
    pub(crate) retention_bytes: Option<i64>,
    /// How many servers its next range is to be on; a range that is open may be on fewer.
    pub(crate) replicas: i8,
}

/// One stream: its settings, the ranges this server holds of it, and its writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostedStream {
    pub(crate) facts: StreamFacts,
    /// The stream's first offset that is kept here.
    pub(crate) start: Offset,
    /// Whether `start` is where the whole stream begins, not only the ranges held here.
    pub(crate) start_known: bool,
    /// The first range that is left of the whole stream, on whatever server, as the placement driver told it last; `None`: it
    /// did not. This one may have been trimmed since, but none before it is left.
    pub(crate) first_range: Option<RangeIndex>,
    /// Whether the placement driver knows nothing of it: it is kept, and not served.
    pub(crate) withheld: bool,
    /// By index, never empty.
    pub(crate) ranges: SmallVec<[RangeState; 1]>,
    // Clients choose the writer ids, so the map's hash is seeded against chosen collisions.
    pub(super) writers: HashMap<WriterId, Writer>,
}

impl HostedStream {
    /// The range that takes appends, or the last one when none does.
    pub(crate) fn last(&self) -> Option<&RangeState> {
        self.ranges.last()
    }

    /// One past the last record that readers may see.
    pub(crate) fn confirmed_end(&self) -> Offset {
        self.last().map_or(self.start, |range| range.confirmed)
    }

    /// How many idempotent writers are remembered.
    pub(crate) fn writer_count(&self) -> usize {
        self.writers.len()
    }

    /// An idempotent writer, unless it is unknown.
    pub(super) fn writer(&self, id: WriterId) -> Option<&Writer> {
        self.writers.get(&id)
    }

    /// Takes over a writer as the log remembers it.
    ///
    /// After a failure of the log a range may have been sealed before its last batches in the log. Those are not part
    /// of the stream, so the writer's repeats of them have to be stored: they are removed from its state.
    pub(super) fn recall(&mut self, id: WriterId, state: WriterState) {
        let range = self.ranges.iter().find(|range| range.index == state.last_range.range);
        let end = range
            .filter(|range| range.phase == Phase::Sealed)
            .map(|range| range.confirmed);
        self.writers.insert(id, Writer::recovered(state, end));
    }

    /// The writers of which no stored batch is left in the stream.
    pub(super) fn trimmed_writers(&mut self) -> Vec<WriterId> {
        let (start, confirmed) = (self.start, self.confirmed_end());
        let trimmed = self.writers.iter_mut().filter_map(|(id, writer)| {
            writer.settle(confirmed);
            writer.is_trimmed(start).then_some(*id)
        });
        trimmed.collect()
    }

    /// Notes a batch or fence that is being handed to the log.
    pub(super) fn promise(&mut self, head: EntryHead) {
        if let Some(range) = self.range_mut(head.key.range) {
            range.next = head.end_offset().unwrap_or(range.next);
        }
        if head.writer.is_some() {
            self.writers.entry(head.writer).or_default().promise(head);
        }
    }

    /// The log did not store this fence of the writer.
    pub(super) fn unfence(&mut self, id: WriterId, epoch: i64) {
        if let Some(writer) = self.writers.get_mut(&id) {
            writer.unfence(epoch);
            if writer.is_blank() {
                self.writers.remove(&id);
            }
        }
    }

    /// The log did not store the records from `from` on: forgets that they were promised.
    pub(super) fn take_back(&mut self, from: Offset) {
        self.writers.retain(|_, writer| {
            writer.take_back(from);
            !writer.is_blank()
        });
    }

    /// The keys of the ranges held.
    pub(crate) fn keys(&self, id: StreamId) -> impl Iterator<Item = RangeKey> {
        self.ranges.iter().map(move |range| range.key(id))
    }

    /// A range as it is reported to the placement driver.
    pub(crate) fn held(&self, key: RangeKey, range: &RangeState) -> HeldRange {
        HeldRange {
            key,
            epoch: range.epoch,
            start: range.start.max(self.start),
            end: (range.phase == Phase::Sealed).then_some(range.confirmed),
            set: range.set.clone(),
            copy: range.copy_record(range.start.max(self.start)),
        }
    }

    pub(super) fn range_mut(&mut self, index: RangeIndex) -> Option<&mut RangeState> {
        self.ranges.iter_mut().find(|range| range.index == index)
    }
}

/// What the log has of a copy when the server starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundCopy {
    /// Everything before it is on the disk.
    pub(crate) synced: Position,
    /// Where the first entry stands; `None` if there is none.
    pub(crate) first: Option<Position>,
    /// In how many parts the state of the writers came that begins the range; 0 if the log has none of them.
    pub(crate) writers_parts: u32,
}

/// A range that a server holds, as servers tell each other of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldRange {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// The first offset that is kept of it.
    pub(crate) start: Offset,
    /// One past its last offset if the range is sealed; `None` while it is open.
    pub(crate) end: Option<Offset>,
    /// The servers that hold it.
    pub(crate) set: ReplicaSet,
    pub(crate) copy: CopyRecord,
}

impl HeldRange {
    /// The range's end with the entries without offset that belong to it, if it is sealed.
    pub(crate) fn end_position(&self) -> Option<Position> {
        let marks = self.copy.end_marks;
        self.end.map(|offset| Position { offset, marks })
    }

    /// The state of this range before it has any records, when it is opened on the server `me`.
    pub(crate) fn opened(&self, me: Option<ServerId>) -> RangeState {
        let range = me.and_then(|me| Some((me, self.set.replicated(self.key, self.epoch, self.opened_at())?)));
        let replica = range.map(|(me, range)| {
            let mut replica = Replica::open(me, range, Rules::default());
            replica.trimmed(self.start, replica.next());
            if let Some(end) = self.end_position() {
                replica.end_told(end);
            }
            Box::new(replica)
        });
        let fresh = self.fresh();
        // Where a sealed range ends is known, also to a server that has to get its copy yet.
        let confirmed = self.end.filter(|_| replica.is_some()).unwrap_or(fresh.confirmed);
        RangeState {
            replica,
            confirmed,
            ..fresh
        }
    }

    /// What this server may do with its copy after a start, if others have copies.
    pub(crate) fn recovered_replica(&self, me: Option<ServerId>, found: &FoundCopy) -> Option<Box<Replica>> {
        let range = self.set.replicated(self.key, self.epoch, self.opened_at())?;
        let beginning = range.beginning();
        let synced = found.synced.max(beginning);
        let writers_end = Position {
            marks: found.writers_parts.max(self.copy.writers_parts),
            ..beginning
        };
        let recovered = Recovered {
            fenced_at: self.copy.fenced_at,
            end: self.end_position(),
            writers_end: Some(writers_end).filter(|end| *end > beginning),
            disputed: self.copy.disputed,
            ..Recovered::up_to(synced, &range)
        };
        let mut replica = Replica::recover(me?, range, recovered, Rules::default());
        replica.trimmed(self.start, found.first.unwrap_or(synced));
        Some(Box::new(replica))
    }

    /// Whether it is kept here in how many parts the state of the writers came that begins the range, if it begins with any.
    pub(crate) fn keeps_writers(&self) -> bool {
        self.set.is_alone() || self.key.range == RangeIndex(0) || self.copy.writers_parts > 0
    }

    /// The first offset that the range had when it was opened.
    pub(crate) fn opened_at(&self) -> Offset {
        self.copy.opened.unwrap_or(self.start)
    }

    /// The state of this range before it has any records.
    pub(crate) fn fresh(&self) -> RangeState {
        RangeState {
            index: self.key.range,
            epoch: self.epoch,
            start: self.start,
            next: self.start,
            confirmed: self.start,
            phase: if self.end.is_some() { Phase::Sealed } else { Phase::Open },
            set: self.set.clone(),
            generation: 0,
            keeps_writers: self.keeps_writers(),
            is_cut_off: false,
            replica: None,
        }
    }
}
