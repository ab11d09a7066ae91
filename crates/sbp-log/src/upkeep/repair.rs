//! Puts batches that are damaged here, and were read from another copy of their range, back in their places.
//!
//! A head tells length and checksum of its batch, so that nothing but the bytes that were lost is ever written: the file is
//! what it was before the damage. Batches whose heads are damaged too are not found, and stay damaged.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sbp_types::{Offset, RangeKey};

use super::compaction::Piece;
use crate::Durability;
use crate::format::crc32c;
use crate::format::footer::IndexEntry;
use crate::format::record::RecordHead;
use crate::fs::File;
use crate::segments::footers::each_batch;
use crate::segments::segment::Segment;
use crate::state::index::Run;
use crate::state::shared::{LiveSegment, Shared, State};

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
    let _alone = shared.compacting.lock();
    let Some(place) = find(shared, key, base)? else {
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
fn find(shared: &Shared, key: RangeKey, base: Offset) -> io::Result<Option<Place>> {
    let begins = |entry: &IndexEntry| entry.base == base;
    if let Some((segment, entries)) = run_of(shared, key, |run| run.first <= base && base < run.end)?
        && let Some(entry) = entries.into_iter().find(begins)
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
    for (segment, end) in damaged {
        let mut found = None;
        each_batch(&segment, end, |head, entry| {
            found = found.or_else(|| (head.key == key && begins(&entry)).then_some(entry));
        })?;
        if let Some(entry) = found {
            let run = run_of(shared, key, |run| run.segment == segment.number)?;
            let mut entries = run.map(|(_, entries)| entries).unwrap_or_default();
            entries.insert(entries.partition_point(|known| known.base < base), entry);
            return Ok(Some(Place {
                segment,
                entry,
                unlisted_in: Some(entries),
            }));
        }
    }
    Ok(None)
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
    true
}

fn live_mut(state: &mut State, number: u64) -> Option<&mut LiveSegment> {
    let file = state.segments.get_mut(&number);
    file.or_else(|| state.compacted.get_mut(&number))
}
