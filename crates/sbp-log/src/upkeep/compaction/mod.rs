//! Compaction: rewrites what is needed of old segments, range by range. That frees space, and makes long reads of one
//! range among many sequential.
//!
//! The new file is complete and durable under its name before the index refers to it, and a start uses it only when a
//! checkpoint lists it. Its sources are removed when no kept checkpoint needs them. Whenever the power fails, either
//! the sources or the new file are listed; a start removes the others.

mod choose;
mod collect;
mod copy;
mod layout;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::Ordering;

use sbp_types::{Position, RangeKey};

use crate::format::checkpoint::MarkPlace;
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;
use crate::segments::files::{SegmentId, remove_if_there};
use crate::segments::prepare::NextRoom;
use crate::state::index::{Entries, KeyMap, Run};
use crate::state::shared::{LiveSegment, Shared, State, count};
use crate::upkeep::checkpoint::{retire, write_checkpoint};
use choose::{Candidate, Nature, Policy, choose};
use collect::Sources;
pub(crate) use collect::{NotWritten, Piece, collect};
use copy::Written;
use layout::lay_out;

/// A checkpoint is written to remove files if these are at least this many times its size.
const WORTH_A_CHECKPOINT: u64 = 4;

/// See [`Log::reclaim`](crate::Log::reclaim).
pub(crate) fn reclaim(shared: &Shared) -> io::Result<u64> {
    if !std::mem::take(&mut shared.state.write().reclaimable) {
        return Ok(0);
    }
    let freed = reclaim_now(shared);
    if freed.is_err() {
        shared.state.write().reclaimable = true;
    }
    freed
}

fn reclaim_now(shared: &Shared) -> io::Result<u64> {
    compact(shared)?;
    let waiting = || {
        let mut state = shared.state.write();
        retire(&mut state);
        state.retired.values().map(|retired| retired.bytes).sum::<u64>()
    };
    let before = waiting();
    let mut left = before;
    // The first checkpoint does not list the files any more; the second one replaces the last checkpoint that does.
    for _ in 0..2 {
        let size = shared.checkpoint_size.load(Ordering::Relaxed);
        if left == 0 || left < size.saturating_mul(WORTH_A_CHECKPOINT) {
            break;
        }
        write_checkpoint(shared)?;
        left = waiting();
    }
    Ok(before.saturating_sub(left))
}

/// Compacts all files that are worth it, and returns how many were replaced. A start uses the new files after the next
/// checkpoint.
pub(crate) fn compact(shared: &Shared) -> io::Result<usize> {
    compact_without(shared, &[])
}

/// As [`compact`], and rewrites every file that has records of these ranges, of which nothing is needed any more. Both are
/// ordered.
pub(crate) fn compact_without(shared: &Shared, cleared: &[RangeKey]) -> io::Result<usize> {
    let _alone = shared.compacting.lock();
    let files = {
        let state = shared.state.read();
        state.segments.len() + state.compacted.len()
    };
    let mut gone = 0;
    // A start from the older checkpoint removes files that it does not list, so there must be an older checkpoint.
    while !shared.checkpoints.lock().are_two() && !choose_now(shared, cleared).is_empty() {
        write_checkpoint(shared)?;
    }
    // Every pass replaces at least one file, so the loop ends by itself; this bound is a safeguard.
    for _ in 0..files {
        let chosen = choose_now(shared, cleared);
        if chosen.is_empty() || shared.prepared.room() != NextRoom::Some {
            break;
        }
        gone += compact_files(shared, &chosen)?;
    }
    Ok(gone)
}

fn choose_now(shared: &Shared, cleared: &[RangeKey]) -> Vec<u64> {
    let policy = Policy {
        percent: u64::from(shared.config.compaction_percent),
        largest: shared.config.segment_bytes.saturating_sub(FIRST_GROUP),
    };
    if policy.percent == 0 && cleared.is_empty() {
        return Vec::new();
    }
    choose(&candidates(&shared.state.read(), cleared), &policy)
}

/// All files in the order of their contents.
fn candidates(state: &State, cleared: &[RangeKey]) -> Vec<Candidate> {
    let mut live_bytes: HashMap<u64, u64> = HashMap::new();
    for (_, range) in state.index.iter() {
        for run in &range.runs {
            let entries = match &run.entries {
                Entries::Resident(entries) => entries.len() as u64,
                Entries::Stored { count, .. } => u64::from(*count),
            };
            let needed = run.bytes_from(range.released);
            let heads = entries * RecordHead::LEN as u64;
            let heads = u128::from(heads) * u128::from(needed) / u128::from(run.bytes.max(1));
            *live_bytes.entry(run.segment).or_default() += needed + u64::try_from(heads).unwrap_or(0) + 1;
        }
        for mark in &range.marks {
            *live_bytes.entry(mark.segment).or_default() += RecordHead::stored_len(mark.length as usize) as u64;
        }
    }
    let newest = state.last.segment;
    let misses_records = state.misses_records();
    let files = state.segments.values().map(|live| (live, Nature::Chain));
    let files = files.chain(state.compacted.values().map(|live| (live, Nature::Compacted)));
    let mut files: Vec<(&LiveSegment, Nature)> = files.collect();
    files.sort_unstable_by_key(|(live, _)| live.order);
    let candidate = |(live, nature): &(&LiveSegment, Nature)| {
        let number = live.segment.number;
        let hides = live.damaged && misses_records;
        let fixed = number == newest || !live.sealed || hides || live.left_alone;
        let has_cleared = live.keys.iter().any(|key| cleared.binary_search(key).is_ok());
        Candidate {
            number,
            nature: if fixed { Nature::Fixed } else { *nature },
            file_bytes: live.end,
            live_bytes: live_bytes.get(&number).copied().unwrap_or(0),
            // What was damaged in a file may be of any range.
            must_go: has_cleared || live.damaged && !cleared.is_empty(),
        }
    };
    files.iter().map(candidate).collect()
}

/// Compacts some files into one; returns how many were replaced.
fn compact_files(shared: &Shared, numbers: &[u64]) -> io::Result<usize> {
    let copied = collect(shared, numbers).and_then(|sources| match sources {
        Some(sources) if !sources.pieces.is_empty() => {
            let lengths: Vec<u32> = sources.pieces.iter().map(|piece| piece.entry.length).collect();
            let groups = lay_out(&lengths, shared.config.group_bytes as u64, sources.last_group);
            let written = copy::write(shared, &sources, &groups)?;
            Ok(Some((sources, written)))
        }
        _ => Ok(None),
    });
    let (sources, written) = match copied {
        Ok(Some(copied)) => copied,
        Ok(None) => return Ok(0),
        Err(NotWritten::Damaged { source }) => {
            tracing::error!(segment = source, "a batch cannot be read; its segment stays as it is");
            leave_alone(shared, source);
            return Ok(0);
        }
        Err(NotWritten::Io(error)) => return Err(error),
    };
    let segment = written.live.segment.clone();
    let bytes = written.bytes;
    if !adopt(&mut shared.state.write(), &sources, written) {
        // Everything in the new file was released meanwhile, or the index does not fit. A second attempt would end the
        // same way.
        numbers.iter().for_each(|number| leave_alone(shared, *number));
        let name = SegmentId::Compacted(segment.number).file_name();
        remove_if_there(&*shared.fs, &shared.config.directory.join(name))?;
        return Ok(0);
    }
    shared.moved.fetch_add(1, Ordering::Release);
    count(&shared.counters.compacted_bytes, bytes);
    Ok(numbers.len())
}

fn leave_alone(shared: &Shared, number: u64) {
    let state = &mut *shared.state.write();
    let file = state.segments.get_mut(&number);
    if let Some(live) = file.or_else(|| state.compacted.get_mut(&number)) {
        live.left_alone = true;
    }
}

/// Has the index refer to the new file instead of its sources; returns whether it does. Records that were released
/// meanwhile stay released.
fn adopt(state: &mut State, sources: &Sources, written: Written) -> bool {
    let old: Vec<u64> = sources.segments.iter().map(|segment| segment.number).collect();
    let number = written.live.segment.number;
    let runs: KeyMap<_> = written.runs.iter().map(|run| (run.key, run)).collect();
    // Either all runs are replaced or none: a run that is not in the new file would be lost with its source.
    let all = state.index.iter().all(|(key, range)| {
        let last = range.runs.iter().rfind(|run| old.contains(&run.segment));
        last.is_none_or(|last| runs.get(&key).is_some_and(|stored| stored.end == last.end))
    });
    let mut moved: KeyMap<BTreeMap<Position, MarkPlace>> = KeyMap::default();
    for (key, mark) in &written.marks {
        moved.entry(*key).or_default().insert(mark.position, *mark);
    }
    let all = all
        && state.index.iter().all(|(key, range)| {
            let here = moved.get(&key);
            let mut marks = range.marks.iter().filter(|mark| old.contains(&mark.segment));
            marks.all(|mark| here.is_some_and(|here| here.contains_key(&mark.position)))
        });
    let mut adopted = false;
    for (key, here) in moved.iter().filter(|_| all) {
        let marks = state.index.get_mut(*key).into_iter().flat_map(|range| &mut range.marks);
        for mark in marks.filter(|mark| old.contains(&mark.segment)) {
            if let Some(new) = here.get(&mark.position) {
                *mark = *new;
                adopted = true;
            }
        }
    }
    for (key, stored) in runs.into_iter().filter(|_| all) {
        let Some(range) = state.index.get_mut(key) else {
            continue;
        };
        let Some(at) = range.runs.iter().position(|run| old.contains(&run.segment)) else {
            continue;
        };
        range.runs.retain(|run| !old.contains(&run.segment));
        range.runs.insert(at, Run::stored(number, stored));
        adopted = true;
    }
    if adopted {
        state.compacted.insert(number, written.live);
        state.retire(&old);
    }
    adopted
}
