//! What need not happen while anybody waits: footers, checkpoints, and removing segments.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use sbp_types::RangeKey;

use crate::Durability;
use crate::compaction::compact;
use crate::files::{SegmentId, checkpoint_name, remove_if_there, write_small_always};
use crate::format::block_up;
use crate::format::checkpoint::{Checkpoint, CompactedItem, RangeItem, SegmentItem};
use crate::format::footer::{FooterBuilder, IndexEntry};
use crate::fs::File;
use crate::index::Entries;
use crate::shared::{KeptCheckpoint, LiveSegment, Shared, State, count};

/// One thing to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    /// Give a full segment its footer.
    Seal(u64),
    /// Write a checkpoint.
    Checkpoint,
}

/// Where jobs go.
#[derive(Debug)]
pub(crate) enum JobSink {
    /// Done by who sends them.
    Inline,
    /// Done by a thread that ends when this is dropped.
    Thread(mpsc::Sender<Job>),
}

impl JobSink {
    pub(crate) fn send(&self, shared: &Shared, job: Job) {
        match self {
            Self::Inline => run(shared, job),
            Self::Thread(sender) => {
                // The thread ends only when the sender does.
                let _ = sender.send(job);
            }
        }
    }
}

/// Does a job. A failure costs replay time or room, never a record, so it is told and left.
pub(crate) fn run(shared: &Shared, job: Job) {
    let done = match job {
        Job::Seal(number) => seal(shared, number),
        Job::Checkpoint => {
            if let Err(error) = compact(shared) {
                tracing::warn!(%error, "rewriting old segments failed");
            }
            write_checkpoint(shared)
        }
    };
    if let Err(error) = done {
        tracing::warn!(%error, ?job, "upkeep of the log failed");
    }
}

/// Writes a segment's footer behind its last group and cuts the file there.
fn seal(shared: &Shared, number: u64) -> io::Result<()> {
    let (segment, bytes, runs, listed, at) = {
        let state = shared.state.read();
        let Some(live) = state.segments.get(&number).filter(|live| !live.sealed) else {
            return Ok(());
        };
        let mut keys = live.keys.clone();
        keys.sort_unstable();
        let mut footer = FooterBuilder::new(block_up(live.end));
        let mut listed: Vec<Arc<[IndexEntry]>> = Vec::new();
        for key in keys {
            let Some(range) = state.index.get(key) else { continue };
            for run in range.runs.iter().filter(|run| run.segment == number) {
                if let Entries::Resident(entries) = &run.entries {
                    let entries: Arc<[IndexEntry]> = entries.iter().map(|resident| resident.entry).collect();
                    footer.push(run.footer_run(key, range.epoch), entries.iter().copied());
                    listed.push(entries);
                }
            }
        }
        let (bytes, runs) = footer.finish(live.segment.salt, live.first_group, live.last);
        (live.segment.clone(), bytes, runs, listed, block_up(live.end))
    };
    segment.file.write_at(at, &bytes)?;
    segment.file.set_len(at + bytes.len() as u64)?;
    if segment.durability == Durability::Fsync {
        // Elsewhere a footer proves nothing, and the next checkpoint syncs it with the rest.
        segment.file.sync_data()?;
    }

    // Most of its batches are in the hot tail still: whoever reads them needs no footer from the disk.
    let places = runs.iter().map(|run| run.position);
    shared.footers.put_all(number, places.zip(listed));
    let mut state = shared.state.write();
    for stored in &runs {
        let range = state.index.get_mut(stored.key);
        for run in range.into_iter().flat_map(|range| &mut range.runs) {
            if run.segment == number {
                run.entries = Entries::Stored {
                    position: stored.position,
                    count: stored.count,
                    crc: stored.crc,
                };
            }
        }
    }
    if let Some(live) = state.segments.get_mut(&number) {
        live.sealed = true;
    }
    state.reclaimable = true;
    drop(state);
    segment.file.unpin();
    Ok(())
}

/// Writes a checkpoint at the last synced group, forgets the oldest one, and removes files that no start needs, also not
/// one that finds the newest checkpoint damaged.
pub(crate) fn write_checkpoint(shared: &Shared) -> io::Result<()> {
    let mut checkpoints = shared.checkpoints.lock();
    let mut checkpoint = {
        let mut state = shared.state.write();
        forget_writers(&mut state, shared.config.writer_retention);
        retire(&mut state);
        snapshot(&state)
    };
    if shared.config.durability == Durability::None {
        // A checkpoint proves every end it lists.
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
        // A file may go only when the checkpoint that needs it is gone for good.
        shared.fs.sync_dir(directory)?;
    }
    remove_retired(shared, &checkpoints.kept)
}

/// Removes the files that no kept checkpoint needs.
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

/// The state as a checkpoint.
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
        newest_append: state.writers.newest(),
        writers: state.writers.ordered(),
    }
}

/// Writers without a batch in the log that have been silent for long enough go before a checkpoint, never in between:
/// what a start finds is what the last checkpoint and the log behind it say.
fn forget_writers(state: &mut State, retention: Duration) {
    let State { index, writers, .. } = state;
    writers.forget_silent(retention, |key, end| {
        index.get(key).is_none_or(|range| range.released >= end)
    });
}

/// Files in which nothing is needed leave the state, and readers do not see them any more.
pub(crate) fn retire(state: &mut State) {
    for (_, range) in state.index.iter_mut() {
        // What was under way when its range was released is here only now.
        range.release(range.released);
    }
    let newest = state.last.segment;
    let needed = |number: u64, key: &RangeKey| {
        let range = state.index.get(*key);
        range.is_some_and(|range| range.runs.iter().any(|run| run.segment == number))
    };
    let all = state.segments.iter().chain(&state.compacted);
    let dead: Vec<u64> = all
        .filter(|(number, live)| {
            **number != newest && !live.damaged && !live.keys.iter().any(|key| needed(**number, key))
        })
        .map(|(number, _)| *number)
        .collect();
    state.retire(&dead);
}

/// Starts the thread that does jobs.
pub(crate) fn start(shared: Arc<Shared>) -> io::Result<(JobSink, std::thread::JoinHandle<()>)> {
    let (sender, jobs) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("sbp-log-upkeep".to_owned())
        .spawn(move || {
            for job in jobs {
                run(&shared, job);
            }
        })?;
    Ok((JobSink::Thread(sender), thread))
}
