//! The ranges this server holds.

use std::collections::HashMap;

use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId};
use smallvec::SmallVec;

use super::append::{AppendEntry, Verdict, judge_append};

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

/// Whether a range takes appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It does.
    Open,
    /// It never will again; the end is in `confirmed`.
    Sealed,
    /// It would, but its last records are damaged on disk, so that nobody knows which offset is next.
    EndDamaged,
}

/// The ranges of one stream, and what its appends must look like.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostedStream {
    /// What a typed batch may say it was written with; empty: an opaque stream.
    pub(crate) fingerprints: SmallVec<[u64; 1]>,
    /// First offset that is kept.
    pub(crate) start: Offset,
    /// By index, never empty.
    pub(crate) ranges: SmallVec<[RangeState; 1]>,
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

    fn range_mut(&mut self, index: RangeIndex) -> Option<&mut RangeState> {
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

/// What can happen to the table. Sealing, trimming and deleting become further variants.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    /// The range exists from now on.
    Open {
        stream: StreamId,
        fingerprints: SmallVec<[u64; 1]>,
        range: RangeState,
    },
    /// Somebody wants to append.
    Append(&'a AppendEntry),
    /// The log did not take what an append was promised under this generation: nothing from `base` on was written.
    Abandon {
        key: RangeKey,
        base: Offset,
        generation: u32,
    },
    /// Everything before `end` is synced.
    Confirm { key: RangeKey, end: Offset },
}

/// What a command comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that anybody waits for.
    None,
    /// What to do with the append.
    Judged(Verdict),
    /// Readers of this stream can see more.
    Advanced(StreamId),
}

/// Every range this server holds, by stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTable {
    streams: HashMap<StreamId, HostedStream>,
}

impl RangeTable {
    /// Applies one command. Pure: neither clock nor disk is looked at.
    pub(crate) fn apply(&mut self, command: Command<'_>) -> Effect {
        match command {
            Command::Open {
                stream,
                fingerprints,
                range,
            } => {
                self.open(stream, fingerprints, range);
                Effect::None
            }
            Command::Append(entry) => Effect::Judged(self.append(entry)),
            Command::Abandon { key, base, generation } => {
                if let Some(range) = self.range_mut(key).filter(|range| range.generation == generation) {
                    range.next = range.next.min(base).max(range.confirmed);
                    range.generation = generation.wrapping_add(1);
                }
                Effect::None
            }
            Command::Confirm { key, end } => match self.range_mut(key) {
                Some(range) if end > range.confirmed => {
                    range.confirmed = end;
                    range.next = range.next.max(end);
                    Effect::Advanced(key.stream)
                }
                _ => Effect::None,
            },
        }
    }

    /// The stream, if any range of it is here.
    pub(crate) fn stream(&self, id: StreamId) -> Option<&HostedStream> {
        self.streams.get(&id)
    }

    /// Confirmed end of an open range, end of a sealed one; `None` when it is not here.
    pub(crate) fn next_offset(&self, key: RangeKey) -> Option<Offset> {
        let stream = self.streams.get(&key.stream)?;
        stream
            .ranges
            .iter()
            .find(|range| range.index == key.range)
            .map(|range| range.confirmed)
    }

    fn open(&mut self, id: StreamId, fingerprints: SmallVec<[u64; 1]>, range: RangeState) {
        let stream = self.streams.entry(id).or_insert_with(|| HostedStream {
            start: range.start,
            ..Default::default()
        });
        stream.fingerprints = fingerprints;
        stream.start = stream.start.min(range.start);
        match stream.ranges.binary_search_by_key(&range.index, |held| held.index) {
            // Known already: opening twice changes nothing, least of all the offsets.
            Ok(_) => {}
            Err(place) => stream.ranges.insert(place, range),
        }
    }

    fn append(&mut self, entry: &AppendEntry) -> Verdict {
        let mut stream = self.streams.get_mut(&entry.stream);
        let verdict = judge_append(stream.as_deref(), entry);
        if let Verdict::Store { key, next_offset, .. } = &verdict
            && let Some(range) = stream.as_mut().and_then(|stream| stream.range_mut(key.range))
        {
            range.next = *next_offset;
        }
        verdict
    }

    fn range_mut(&mut self, key: RangeKey) -> Option<&mut RangeState> {
        self.streams.get_mut(&key.stream)?.range_mut(key.range)
    }
}
