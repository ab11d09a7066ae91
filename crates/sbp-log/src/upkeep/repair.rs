//! Puts batches that are damaged here, and were read from another copy of their range, back in their places.
//!
//! A head tells length and checksum of its batch, so that nothing but the bytes that were lost is ever written: the file is
//! what it was before the damage. Batches whose heads are damaged too are not found, and stay damaged.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sbp_types::{Offset, RangeKey};

use super::compaction::Piece;
use crate::Durability;
use crate::format::crc32c;
use crate::format::footer::IndexEntry;
use crate::format::record::RecordHead;
use crate::fs::File;
use crate::segments::footers::each_batch;
use crate::segments::segment::Segment;
use crate::state::index::{KeyMap, RangeState, Run};
use crate::state::shared::{LiveSegment, Shared, State, Unlisted, UnlistedIn};

/// When a file with damage is read again for what the index does not list of it.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Where a damaged batch is.
struct Place {
    segment: Arc<Segment>,
    entry: IndexEntry,
    /// The batches of its run, if the index lacks it: it does not have those that the last start found damaged.
    unlisted_in: Option<Vec<IndexEntry>>,
}

/// See [`Log::repair`](crate::Log::repair).
pub(crate) fn repair(shared: &Shared, key: RangeKey, base: Offset, batch: &[u8]) -> io::Result<bool> {
    // Batches are not moved meanwhile.
    let mut unlisted = shared.compacting.lock();
    let Some(place) = find(shared, &mut unlisted, key, base)? else {
        return Ok(false);
    };
    let Place { segment, entry, .. } = &place;
    let piece = Piece {
        source: 0,
        entry: *entry,
        mark: None,
    };
    // A checkpoint from before a repair has the mark of a batch that is whole.
    if piece.read(segment)?.is_none() {
        let mut head = [0; RecordHead::LEN];
        segment.file.read_at(u64::from(entry.position), &mut head)?;
        let is_this = RecordHead::parse(&head, segment.mask).is_some_and(|record| {
            record.head.key == key
                && record.head.base_offset == entry.base
                && record.head.end_offset() == Some(entry.end)
                && record.batch_len as usize == batch.len()
                && record.batch_crc == crc32c(batch)
        });
        if !is_this || is_written(&shared.state.read(), shared, segment) {
            return Ok(false);
        }
        segment
            .file
            .rewrite(u64::from(entry.position) + RecordHead::LEN as u64, batch)?;
    }
    Ok(note(shared, key, &place))
}

/// Whether syncs of the file report errors of other writes to it, which must not be taken from who waits for them. The log
/// does not go on in a file that it found damaged when it started.
fn is_written(state: &State, shared: &Shared, segment: &Segment) -> bool {
    let is_unsynced =
        || segment.durability == Durability::None && segment.number >= shared.synced_below.load(Ordering::Acquire);
    let live = state.segments.get(&segment.number).filter(|live| !live.damaged);
    live.is_some() && (segment.number == state.last.segment || is_unsynced())
}

/// The place of the batch that begins at `base`; `None` if it is not known, or not needed any more.
fn find(shared: &Shared, unlisted: &mut Unlisted, key: RangeKey, base: Offset) -> io::Result<Option<Place>> {
    if let Some((segment, entries)) = run_of(shared, key, |run| run.first <= base && base < run.end)?
        && let Some(entry) = entries.into_iter().find(|entry| entry.base == base)
    {
        return Ok(Some(Place {
            segment,
            entry,
            unlisted_in: None,
        }));
    }
    let damaged: Vec<_> = {
        let state = shared.state.read();
        let files = state.segments.values().chain(state.compacted.values());
        let damaged = files.filter(|live| live.damaged);
        damaged.map(|live| (live.segment.clone(), live.end)).collect()
    };
    let is_live = |number: &u64| damaged.iter().any(|(segment, _)| segment.number == *number);
    unlisted.files.retain(|number, _| is_live(number));
    for (segment, end) in &damaged {
        if let Some(entry) = unlisted.batch(shared, segment, *end, (key, base))? {
            let run = run_of(shared, key, |run| run.segment == segment.number)?;
            let mut entries = run.map(|(_, entries)| entries).unwrap_or_default();
            entries.insert(entries.partition_point(|known| known.base < base), entry);
            return Ok(Some(Place {
                segment: Arc::clone(segment),
                entry,
                unlisted_in: Some(entries),
            }));
        }
    }
    Ok(None)
}

impl Unlisted {
    /// A damaged batch in a file with damage, by its range and first offset. The file is read once for all of them, and again after
    /// a while: more of it may be readable then.
    fn batch(
        &mut self,
        shared: &Shared,
        segment: &Segment,
        end: u64,
        wanted: (RangeKey, Offset),
    ) -> io::Result<Option<IndexEntry>> {
        let now = shared.maker.clock.elapsed();
        let is_fresh = |file: &&UnlistedIn| now.saturating_sub(file.read_at) < READ_AGAIN_AFTER;
        if let Some(file) = self.files.get(&segment.number).filter(is_fresh) {
            return Ok(file.batches.get(&wanted).copied());
        }
        let known: KeyMap<Known> = {
            let state = shared.state.read();
            state.index.iter().map(|(key, range)| (key, Known::of(range))).collect()
        };
        let mut batches = HashMap::new();
        each_batch(segment, end, |head, entry| {
            if known.get(&head.key).is_some_and(|known| known.lacks(&entry)) {
                batches.entry((head.key, entry.base)).or_insert(entry);
            }
        })?;
        let found = batches.get(&wanted).copied();
        let file = UnlistedIn { read_at: now, batches };
        self.files.insert(segment.number, file);
        Ok(found)
    }
}

/// What the index has of a range.
struct Known {
    released: Offset,
    damage: Vec<(Offset, Offset)>,
    listed: Vec<(Offset, Offset)>,
}

impl Known {
    fn of(range: &RangeState) -> Self {
        Self {
            released: range.released,
            damage: range.damage.clone(),
            listed: range.runs.iter().map(|run| (run.first, run.end)).collect(),
        }
    }

    /// Whether a batch is needed and not listed.
    fn lacks(&self, entry: &IndexEntry) -> bool {
        let is_damaged = || {
            self.damage
                .iter()
                .any(|(from, to)| entry.base < *to && *from < entry.end)
        };
        let is_listed = || {
            self.listed
                .iter()
                .any(|(from, to)| *from <= entry.base && entry.base < *to)
        };
        self.released < entry.end && (is_damaged() || !is_listed())
    }
}

/// The file of a range's run, and its batches.
fn run_of(
    shared: &Shared,
    key: RangeKey,
    is_it: impl Fn(&Run) -> bool,
) -> io::Result<Option<(Arc<Segment>, Vec<IndexEntry>)>> {
    loop {
        let load = {
            let state = shared.state.read();
            let runs = state.index.get(key).map(|range| range.runs.as_slice());
            let run = runs.unwrap_or_default().iter().find(|run| is_it(run));
            let Some((run, live)) = run.and_then(|run| Some((run, state.live(run.segment)?))) else {
                return Ok(None);
            };
            if let Some(entries) = shared.entries_of(run) {
                return Ok(Some((live.segment.clone(), entries.from(run.first).collect())));
            }
            state.load_of(run)
        };
        let Some(load) = load else { return Ok(None) };
        shared.load(key, &load).map_err(io::Error::other)?;
    }
}

/// Has readers see a batch that is whole again. Returns whether they do: not if it was released meanwhile.
fn note(shared: &Shared, key: RangeKey, place: &Place) -> bool {
    let Place { segment, entry, .. } = place;
    let state = &mut *shared.state.write();
    let range = state.index.get_mut(key);
    let Some(range) = range.filter(|range| range.released < entry.end && entry.base < range.end) else {
        return false;
    };
    if let Some(entries) = &place.unlisted_in {
        // In memory: the footer lacks the batch. A start reads a damaged file's groups instead.
        range.list(segment.number, entries);
    }
    range.unmark(entry.base, entry.end);
    if let Some(live) = live_mut(state, segment.number) {
        live.left_alone = false;
        live.keys.push(key);
    }
    // The file may be rewritten now.
    state.reclaimable = true;
    true
}

fn live_mut(state: &mut State, number: u64) -> Option<&mut LiveSegment> {
    let file = state.segments.get_mut(&number);
    file.or_else(|| state.compacted.get_mut(&number))
}
