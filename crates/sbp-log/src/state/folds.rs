//! When entries count for their writers: in a range with copies elsewhere when they are confirmed, else when they are
//! synced.

use std::collections::{HashMap, VecDeque};

use sbp_replication::{Foldable, Folding, Rules};
use sbp_types::{Position, RangeIndex, RangeKey, StreamId};

use crate::format::checkpoint::WaitingItem;
use crate::format::parts;
use crate::key_hash::BuildKeyHasher;
use crate::state::index::KeyMap;
use crate::writers::Writers;
use crate::{BatchBytes, EntryHead, EntryKind};

/// At most so many batches of a range are not confirmed: no primary takes another one before. So of a range with more, the
/// oldest are confirmed.
const MOST_UNCONFIRMED: usize = 1_024;

/// What of the stored entries counts for their writers.
///
/// It is empty, and costs nothing, where no range has copies elsewhere and none begins with the state of the writers.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    ranges: KeyMap<Waiting>,
    /// Of every stream that has such ranges.
    streams: HashMap<StreamId, Folding, BuildKeyHasher>,
}

/// The entries of a range that do not count yet.
#[derive(Debug, Default)]
struct Waiting {
    /// Everything before it is confirmed.
    confirmed: Position,
    entries: VecDeque<WaitingEntry>,
    /// How many of them are batches.
    batches: usize,
}

#[derive(Debug)]
struct WaitingEntry {
    /// The place behind it.
    end: Position,
    head: EntryHead,
    /// The bytes of a part of the state of the writers; none of other entries.
    bytes: BatchBytes,
}

impl Folds {
    /// As a checkpoint has it.
    pub(crate) fn restored(waiting: &[WaitingItem], folded: &[(StreamId, RangeIndex, Position)]) -> Self {
        let restored =
            |(stream, range, up_to): &(StreamId, RangeIndex, Position)| (*stream, Folding::restored(*range, *up_to));
        let mut folds = Self {
            ranges: KeyMap::default(),
            streams: folded.iter().map(restored).collect(),
        };
        for item in waiting {
            let at = item.head.position(item.head.marks.unwrap_or(0));
            let Some(end) = item.head.behind(at) else { continue };
            folds.wait(&item.head, end, item.bytes.clone().into());
        }
        folds
    }

    /// Takes in a stored entry that ends at `end`. Its bytes are asked for if they are a part of the state of the writers.
    pub(crate) fn store(
        &mut self,
        writers: &mut Writers,
        head: &EntryHead,
        end: Position,
        bytes: impl FnOnce() -> BatchBytes,
    ) {
        let is_state = matches!(head.kind, EntryKind::Writers { .. });
        let waits = head.shared || is_state;
        if !waits && (self.streams.is_empty() || !self.streams.contains_key(&head.key.stream)) {
            writers.record(head);
            return;
        }
        let bytes = if is_state { bytes() } else { BatchBytes::default() };
        self.wait(head, end, bytes);
        let Some(waiting) = self.ranges.get_mut(&head.key) else {
            return;
        };
        if !head.shared {
            waiting.confirmed = waiting.confirmed.max(end);
        }
        if waiting.batches > MOST_UNCONFIRMED {
            let surplus = waiting.entries.iter().find(|entry| !entry.head.is_mark());
            waiting.confirmed = waiting.confirmed.max(surplus.map_or(end, |entry| entry.end));
        }
        let first = waiting.entries.front();
        if first.is_some_and(|first| first.end <= waiting.confirmed) {
            self.fold(writers, head.key);
        }
    }

    fn wait(&mut self, head: &EntryHead, end: Position, bytes: BatchBytes) {
        let waiting = self.ranges.entry(head.key).or_default();
        waiting.batches += usize::from(!head.is_mark());
        let head = *head;
        waiting.entries.push_back(WaitingEntry { end, head, bytes });
    }

    /// Everything of a range before this place is confirmed.
    pub(crate) fn confirm(&mut self, writers: &mut Writers, key: RangeKey, confirmed: Position) {
        let waiting = self.ranges.entry(key).or_default();
        if confirmed > waiting.confirmed {
            waiting.confirmed = confirmed;
            self.fold(writers, key);
        }
    }

    /// The range ends here: what lies behind counts for nobody, everything before is confirmed.
    pub(crate) fn end(&mut self, writers: &mut Writers, key: RangeKey, end: Position) {
        if let Some(waiting) = self.ranges.get_mut(&key) {
            waiting.entries.retain(|entry| entry.end <= end);
            let batches = waiting.entries.iter().filter(|entry| !entry.head.is_mark());
            waiting.batches = batches.count();
        }
        self.confirm(writers, key, end);
    }

    /// Has what is confirmed count.
    fn fold(&mut self, writers: &mut Writers, key: RangeKey) {
        let Some(waiting) = self.ranges.get_mut(&key) else {
            return;
        };
        let mut ripe = None;
        let known = waiting
            .entries
            .iter()
            .take_while(|entry| entry.end <= waiting.confirmed);
        for (number, entry) in known.enumerate() {
            // The parts of the state of the writers count together.
            let is_whole = match entry.head.kind {
                EntryKind::Writers { part, parts } => part + 1 == parts,
                EntryKind::Batch | EntryKind::Fence => true,
            };
            if is_whole {
                ripe = Some((number + 1, entry.end));
            }
        }
        let Some((count, to)) = ripe else { return };
        let folding = self.streams.entry(key.stream).or_default();
        // A copy that begins without the state of the writers, as one does of a range that another server alone had, or of one that
        // is trimmed, says nothing of them, however much of it is here.
        let first = waiting.entries.front().map(|entry| &entry.head);
        let begins = first.is_some_and(|first| !first.shared || matches!(first.kind, EntryKind::Writers { .. }));
        let goes_on = folding.newest().is_some_and(|(newest, _)| newest == key.range);
        let says_all = key.range == RangeIndex(0) || begins || goes_on;
        let copy = Foldable {
            range: key.range,
            beginning: Position::default(),
            // No part of the state of the writers gets here before all of them.
            known_from: says_all.then_some(Position::default()),
            synced: to,
            confirmed: to,
        };
        let fold = folding.fold(&copy, Rules::default());
        let mut parts = Vec::new();
        for entry in waiting.entries.drain(..count) {
            waiting.batches -= usize::from(!entry.head.is_mark());
            if fold.is_none_or(|fold| entry.end <= fold.from) {
                continue;
            }
            match entry.head.kind {
                EntryKind::Batch | EntryKind::Fence => writers.record(&entry.head),
                EntryKind::Writers { part, parts: all } => {
                    if part == 0 {
                        parts.clear();
                    }
                    parts.push(entry.bytes);
                    if part + 1 == all {
                        replace(writers, key, usize::from(all), std::mem::take(&mut parts));
                    }
                }
            }
        }
    }

    /// Forgets a range.
    pub(crate) fn forget(&mut self, key: RangeKey) {
        self.ranges.remove(&key);
    }

    /// Forgets a deleted stream.
    pub(crate) fn forget_stream(&mut self, stream: StreamId) {
        self.ranges.retain(|key, _| key.stream != stream);
        self.streams.remove(&stream);
    }

    /// The entries that wait and may still count, ordered by range and within it.
    pub(crate) fn waiting(&self) -> Vec<WaitingItem> {
        let is_old = |key: &RangeKey| {
            let newest = self.streams.get(&key.stream).and_then(Folding::newest);
            newest.is_some_and(|(newest, _)| newest > key.range)
        };
        let mut ranges: Vec<_> = self.ranges.iter().filter(|(key, _)| !is_old(key)).collect();
        ranges.sort_unstable_by_key(|(key, _)| **key);
        let entries = ranges.into_iter().flat_map(|(_, waiting)| &waiting.entries);
        let item = |entry: &WaitingEntry| WaitingItem {
            head: entry.head,
            bytes: entry.bytes.clone().into_contiguous(),
        };
        entries.map(item).collect()
    }

    /// How far each stream is folded, ordered.
    pub(crate) fn folded(&self) -> Vec<(StreamId, RangeIndex, Position)> {
        let newest = |(stream, folding): (&StreamId, &Folding)| {
            let (range, up_to) = folding.newest()?;
            Some((*stream, range, up_to))
        };
        let mut folded: Vec<_> = self.streams.iter().filter_map(newest).collect();
        folded.sort_unstable_by_key(|(stream, ..)| *stream);
        folded
    }
}

/// Replaces what is known of a stream's writers.
fn replace(writers: &mut Writers, key: RangeKey, all: usize, parts: Vec<BatchBytes>) {
    let states = parts.len() == all;
    let states = states.then(|| {
        let parts = parts.into_iter().map(BatchBytes::into_contiguous);
        let states = parts.map(|part| parts::parse(key.stream, &part));
        states.collect::<Option<Vec<_>>>()
    });
    match states.flatten() {
        Some(states) => writers.replace(key.stream, states.into_iter().flatten()),
        // It was checked before it was queued, so this is damage. A read of the entry tells the owner.
        None => tracing::error!(range = %key, "the state of the writers that begins the range cannot be read"),
    }
}
