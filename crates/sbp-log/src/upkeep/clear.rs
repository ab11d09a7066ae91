//! Has released ranges leave the disk, so that the log can take them anew.
//!
//! A range that begins again must not meet a record of its earlier life at any start. A start reads what a checkpoint lists,
//! and what was written behind it; it uses the older checkpoint where the newest one is damaged. So a range may begin again
//! once no file has a record of it, and both kept checkpoints were written after that.

use std::collections::HashSet;
use std::io;

use sbp_types::{Offset, RangeKey};

use crate::state::shared::{Shared, State};
use crate::upkeep::checkpoint::{retire, write_checkpoint};
use crate::upkeep::compaction::compact_without;

/// The segment being written, if it has records of one of these ranges; 0 if it has none.
pub(crate) fn being_written(shared: &Shared, ranges: &[RangeKey]) -> u64 {
    let state = shared.state.read();
    let newest = state.segments.values().next_back();
    let ranges: HashSet<&RangeKey> = ranges.iter().collect();
    let newest = newest.filter(|live| live.keys.iter().any(|key| ranges.contains(key)));
    newest.map_or(0, |live| live.segment.number)
}

/// Rewrites the files that have records of these ranges, which are released whole and of which nothing is queued. Returns those
/// that have left the disk.
pub(crate) fn clear(shared: &Shared, ranges: &[RangeKey]) -> io::Result<Vec<RangeKey>> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    ranges.dedup();
    compact_without(shared, &ranges)?;
    let mut gone = {
        let mut state = shared.state.write();
        retire(&mut state);
        without(&state, &ranges)
    };
    // The first checkpoint does not list them any more; the second one replaces the last checkpoint that does.
    for _ in 0..2 {
        if gone.is_empty() {
            break;
        }
        write_checkpoint(shared)?;
    }
    let state = shared.state.read();
    let on_disk: HashSet<RangeKey> = state.keys_on_disk().collect();
    gone.retain(|key| state.index.get(*key).is_none() && !on_disk.contains(key));
    Ok(gone)
}

/// Those of the ranges of which no file that is in use has a record. What was damaged in a file may be of any range, and be readable
/// at the next start.
fn without(state: &State, ranges: &[RangeKey]) -> Vec<RangeKey> {
    let is_released = |key: &RangeKey| {
        let range = state.index.get(*key);
        range.is_none_or(|range| range.released == Offset(i64::MAX))
    };
    let live = state.segments.values().chain(state.compacted.values());
    if live.clone().any(|live| live.damaged) {
        return Vec::new();
    }
    let there: HashSet<&RangeKey> = live.flat_map(|live| &live.keys).collect();
    let gone = ranges.iter().filter(|key| is_released(key) && !there.contains(key));
    gone.copied().collect()
}
