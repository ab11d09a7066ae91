//! Writes checkpoints, and removes files that no start needs any more.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sbp_types::RangeKey;

use crate::Durability;
use crate::format::checkpoint::{Checkpoint, CompactedItem, PositionsItem, RangeItem, SegmentItem};
use crate::segments::files::{SegmentId, checkpoint_name, remove_if_there, write_small_always};
use crate::state::shared::{KeptCheckpoint, LiveSegment, Shared, State, count};

/// Writes a checkpoint at the last synced group, forgets the oldest one, and removes files that no start needs, not
/// even one that finds the newest checkpoint damaged.
pub(crate) fn write_checkpoint(shared: &Shared) -> io::Result<()> {
    let mut checkpoints = shared.checkpoints.lock();
    let mut checkpoint = {
        let mut state = shared.state.write();
        forget_writers(&mut state, shared.config.writer_retention);
        retire(&mut state);
        snapshot(&state)
    };
    if shared.config.durability == Durability::None {
        // The checkpoint states the end of each range, so everything up to there must be durable.
        shared.sync_all()?;
    }
    checkpoints.sequence += 1;
    checkpoint.sequence = checkpoints.sequence;
    let bytes = checkpoint.encode();
    let directory = &shared.config.directory;
    let name = checkpoint_name(checkpoint.sequence);
    write_small_always(&*shared.fs, directory, &name, &bytes)?;
    count(&shared.counters.checkpoints, 1);
    shared.checkpoint_size.store(bytes.len() as u64, Ordering::Relaxed);
    checkpoints
        .kept
        .push(KeptCheckpoint::of(checkpoint.sequence, &checkpoint));
    let mut removed = false;
    while let Some(surplus) = checkpoints.take_surplus() {
        remove_if_there(&*shared.fs, &directory.join(checkpoint_name(surplus.sequence)))?;
        removed = true;
    }
    if removed {
        // A file may be removed only when the removal of the checkpoint that needs it is durable.
        shared.fs.sync_dir(directory)?;
    }
    remove_retired(shared, &checkpoints.kept)
}

/// Removes the retired files that no kept checkpoint needs.
fn remove_retired(shared: &Shared, kept: &[KeptCheckpoint]) -> io::Result<()> {
    let needed = |id: SegmentId| kept.iter().any(|checkpoint| checkpoint.needs(id));
    let go: Vec<SegmentId> = {
        let state = shared.state.read();
        state.retired.keys().copied().filter(|id| !needed(*id)).collect()
    };
    if go.is_empty() {
        return Ok(());
    }
    let directory = &shared.config.directory;
    for id in &go {
        remove_if_there(&*shared.fs, &directory.join(id.file_name()))?;
    }
    shared.fs.sync_dir(directory)?;
    let mut state = shared.state.write();
    for id in &go {
        state.retired.remove(id);
    }
    Ok(())
}

/// The checkpoint of this state.
fn snapshot(state: &State) -> Checkpoint {
    let item = |live: &LiveSegment| SegmentItem {
        number: live.segment.number,
        salt: live.segment.salt,
        first_group: live.first_group,
        last_group: live.last.number,
        damaged: live.damaged,
    };
    let compacted = state.compacted.values().map(|live| CompactedItem {
        segment: item(live),
        order: live.order,
    });
    let positions = state.index.iter().filter(|(_, range)| {
        range.known && (range.shared || range.end_marks > 0 || !range.marks.is_empty() || range.ended.is_some())
    });
    let positions = positions.map(|(key, range)| PositionsItem {
        key,
        end_marks: range.end_marks,
        ended: range.ended,
        shared: range.shared,
        marks: range.marks.clone(),
    });
    let ranges = state.index.iter().filter(|(_, range)| range.known);
    let ranges = ranges.map(|(key, range)| RangeItem {
        key,
        first: range.first(),
        released: range.released,
        end: range.end,
        epoch: range.epoch,
        proven: range.proven,
        damage: range.damage.clone(),
    });
    Checkpoint {
        sequence: 0,
        covered: state.last,
        unlisted_damage: state.index.unlisted_damage,
        segments: state.segments.values().map(item).collect(),
        compacted: compacted.collect(),
        ranges: ranges.collect(),
        positions: positions.collect(),
        waiting: state.folds.waiting(),
        folded: state.folds.folded(),
        newest_append: state.writers.newest(),
        writers: state.writers.ordered(),
    }
}

/// Forgets writers without a batch in the log that have sent nothing for long enough. This happens only before a
/// checkpoint, because a start finds the writers of the last checkpoint and of the log after it.
fn forget_writers(state: &mut State, retention: Duration) {
    let State { index, writers, .. } = state;
    writers.forget_silent(retention, |key, end| {
        index.get(key).is_none_or(|range| range.released >= end)
    });
}

/// Retires the files in which nothing is needed; readers do not see them any more.
pub(crate) fn retire(state: &mut State) {
    for (_, range) in state.index.iter_mut() {
        // Batches that were being written when their range was released are in the index only now.
        range.release(range.released);
    }
    let newest = state.last.segment;
    let misses_records = state.misses_records();
    let needed = |number: u64, key: &RangeKey| {
        let range = state.index.get(*key);
        range.is_some_and(|range| {
            let has_mark = range.marks.iter().any(|mark| mark.segment == number);
            has_mark || range.runs.iter().any(|run| run.segment == number)
        })
    };
    let all = state.segments.iter().chain(&state.compacted);
    let dead: Vec<u64> = all
        .filter(|(number, live)| {
            let hides = live.damaged && misses_records;
            **number != newest && !hides && !live.keys.iter().any(|key| needed(**number, key))
        })
        .map(|(number, _)| *number)
        .collect();
    state.retire(&dead);
}
