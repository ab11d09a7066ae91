//! One stream, as far as it is here: its ranges, and what may be appended to it.

use std::collections::HashMap;

use sbp_log::{EntryHead, WriterState};
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, WriterId};
use smallvec::SmallVec;

use super::writers::Writer;

/// One range.
///
/// Invariants: `start <= confirmed <= next`; a sealed range has `confirmed == next == end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeState {
    pub(crate) index: RangeIndex,
    pub(crate) epoch: Epoch,
    /// First offset of the range.
    pub(crate) start: Offset,
    /// The offset the next record gets: behind everything handed to the log.
    pub(crate) next: Offset,
    /// Behind everything that is synced: what readers see.
    pub(crate) confirmed: Offset,
    pub(crate) phase: Phase,
    /// Counts how often promised offsets were taken back, so that a late failure cannot take back newer ones.
    pub(crate) generation: u32,
}

impl RangeState {
    /// Its name.
    pub(crate) fn key(&self, stream: StreamId) -> RangeKey {
        RangeKey {
            stream,
            range: self.index,
        }
    }
}

/// Whether a range takes appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It does.
    Open,
    /// It does not, and readers do not know yet: the log still works on what was accepted (no end), or the end is being
    /// made durable. Ends in `Sealed`, or in `Open` when that fails.
    Sealing { end: Option<Offset> },
    /// It never will again; the end is in `confirmed`.
    Sealed,
    /// It would, but its last records are damaged on disk, so that nobody knows which offset is next.
    EndDamaged,
}

/// What a range server has to know about a stream itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamFacts {
    /// What a typed batch may say it was written with; empty: an opaque stream.
    pub(crate) fingerprints: SmallVec<[u64; 1]>,
    /// Milliseconds a record is kept after its append; 0: for ever.
    pub(crate) retention_period_ms: i64,
    /// Bytes kept; 0 and less: no bound.
    pub(crate) retention_bytes: i64,
}

/// The ranges of one stream, and what its appends must look like.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostedStream {
    pub(crate) facts: StreamFacts,
    /// First offset that is kept.
    pub(crate) start: Offset,
    /// Whether `start` is where the stream begins, not just the ranges of it that are here.
    pub(crate) start_known: bool,
    /// By index, never empty.
    pub(crate) ranges: SmallVec<[RangeState; 1]>,
    // Clients choose the names, so the hash is keyed.
    pub(super) writers: HashMap<WriterId, Writer>,
}

impl HostedStream {
    /// The range that takes appends, or the last one when none does.
    pub(crate) fn last(&self) -> Option<&RangeState> {
        self.ranges.last()
    }

    /// Behind the last record that readers may see.
    pub(crate) fn confirmed_end(&self) -> Offset {
        self.last().map_or(self.start, |range| range.confirmed)
    }

    /// An idempotent writer, unless it is unknown.
    pub(super) fn writer(&self, id: WriterId) -> Option<&Writer> {
        self.writers.get(&id)
    }

    /// The log remembers a writer.
    ///
    /// Behind the end of a range that was sealed after a failure of the log there may be batches that nobody was promised.
    /// They are in the log and not in the stream, and what their writer sends again is no repeat.
    pub(super) fn recall(&mut self, id: WriterId, state: WriterState) {
        let range = self.ranges.iter().find(|range| range.index == state.last_range.range);
        let end = range
            .filter(|range| range.phase == Phase::Sealed)
            .map(|range| range.confirmed);
        self.writers.insert(id, Writer::recovered(state, end));
    }

    /// The writers that have nothing left in the stream.
    pub(super) fn trimmed_writers(&mut self) -> Vec<WriterId> {
        let (start, confirmed) = (self.start, self.confirmed_end());
        let trimmed = self.writers.iter_mut().filter_map(|(id, writer)| {
            writer.settle(confirmed);
            writer.is_trimmed(start).then_some(*id)
        });
        trimmed.collect()
    }

    /// The log was given a batch or fence.
    pub(super) fn promise(&mut self, head: EntryHead) {
        if let Some(range) = self.range_mut(head.key.range) {
            range.next = head.end_offset().unwrap_or(range.next);
        }
        if head.writer.is_some() {
            self.writers.entry(head.writer).or_default().promise(head);
        }
    }

    /// A writer's fence is not there.
    pub(super) fn unfence(&mut self, id: WriterId, epoch: i64) {
        if let Some(writer) = self.writers.get_mut(&id) {
            writer.unfence(epoch);
            if writer.is_blank() {
                self.writers.remove(&id);
            }
        }
    }

    /// Nothing from `from` on is there.
    pub(super) fn take_back(&mut self, from: Offset) {
        self.writers.retain(|_, writer| {
            writer.take_back(from);
            !writer.is_blank()
        });
    }

    /// The names of its ranges.
    pub(crate) fn keys(&self, id: StreamId) -> impl Iterator<Item = RangeKey> {
        self.ranges.iter().map(move |range| range.key(id))
    }

    /// What is held of one of its ranges.
    pub(crate) fn held(&self, key: RangeKey, range: &RangeState) -> HeldRange {
        HeldRange {
            key,
            epoch: range.epoch,
            start: range.start.max(self.start),
            end: (range.phase == Phase::Sealed).then_some(range.confirmed),
        }
    }

    pub(super) fn range_mut(&mut self, index: RangeIndex) -> Option<&mut RangeState> {
        self.ranges.iter_mut().find(|range| range.index == index)
    }
}

/// What the range server remembers of a range it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldRange {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// Its first offset.
    pub(crate) start: Offset,
    /// One past its last offset, once it is sealed.
    pub(crate) end: Option<Offset>,
}

impl HeldRange {
    /// The range without records.
    pub(crate) fn fresh(&self) -> RangeState {
        RangeState {
            index: self.key.range,
            epoch: self.epoch,
            start: self.start,
            next: self.start,
            confirmed: self.start,
            phase: if self.end.is_some() { Phase::Sealed } else { Phase::Open },
            generation: 0,
        }
    }
}
