//! What need not happen while anybody waits: footers, checkpoints, and removing segments.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use sbp_types::{Offset, RangeKey};

use crate::Durability;
use crate::files::{checkpoint_name, remove_if_there, segment_name, write_small_always};
use crate::format::block_up;
use crate::format::checkpoint::{Checkpoint, RangeItem, SegmentItem};
use crate::format::footer::{FooterBuilder, IndexEntry};
use crate::fs::File;
use crate::index::Entries;
use crate::shared::{Shared, State, count};

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
        Job::Checkpoint => write_checkpoint(shared),
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
    drop(state);
    segment.file.unpin();
    Ok(())
}

/// Writes a checkpoint at the last synced group, forgets the oldest one, and removes segments that nothing needs.
pub(crate) fn write_checkpoint(shared: &Shared) -> io::Result<()> {
    let mut checkpoints = shared.checkpoints.lock();
    let mut checkpoint = {
        let mut state = shared.state.write();
        forget_writers(&mut state, shared.config.writer_retention);
        snapshot(&mut state, &mut checkpoints.retired)
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
    checkpoints.size = bytes.len() as u64;
    checkpoints.kept.push((
        checkpoint.sequence,
        checkpoint.segments.iter().map(|item| item.number).collect(),
    ));
    let mut removed = false;
    while checkpoints.kept.len() > 2 {
        let (oldest, _) = checkpoints.kept.remove(0);
        remove_if_there(&*shared.fs, &directory.join(checkpoint_name(oldest)))?;
        removed = true;
    }
    if removed {
        // A segment may go only when the checkpoint that lists it is gone for good.
        shared.fs.sync_dir(directory)?;
    }
    let listed: HashSet<u64> = checkpoints
        .kept
        .iter()
        .flat_map(|(_, segments)| segments.iter().copied())
        .collect();
    let (keep, go): (Vec<_>, Vec<_>) = checkpoints.retired.iter().partition(|number| listed.contains(number));
    for number in &go {
        remove_if_there(&*shared.fs, &directory.join(segment_name(*number)))?;
    }
    checkpoints.retired = keep;
    if !go.is_empty() {
        shared.fs.sync_dir(directory)?;
    }
    Ok(())
}

/// The state as a checkpoint. Segments in which nothing is needed leave it here, and readers do not see them any more.
fn snapshot(state: &mut State, retired: &mut Vec<u64>) -> Checkpoint {
    retire(state, retired);
    let mut checkpoint = Checkpoint {
        covered: state.last,
        unlisted_damage: state.index.unlisted_damage,
        segments: state
            .segments
            .values()
            .map(|live| SegmentItem {
                number: live.segment.number,
                salt: live.segment.salt,
                first_group: live.first_group,
                last_group: live.last.number,
                damaged: live.damaged,
            })
            .collect(),
        newest_append: state.writers.newest(),
        writers: state.writers.ordered(),
        ..Checkpoint::default()
    };
    checkpoint.ranges = state
        .index
        .iter()
        .filter(|(_, range)| range.known)
        .map(|(key, range)| RangeItem {
            key,
            first: range.first(),
            released: range.released,
            end: range.end,
            epoch: range.epoch,
            proven: range.proven,
            damage: range.damage.clone(),
        })
        .collect();
    checkpoint
}

/// Writers without a batch in the log that have been silent for long enough go before a checkpoint, never in between:
/// what a start finds is what the last checkpoint and the log behind it say.
fn forget_writers(state: &mut State, retention: Duration) {
    let State { index, writers, .. } = state;
    writers.forget_silent(retention, |key, end| {
        index.get(key).is_none_or(|range| range.released >= end)
    });
}

fn retire(state: &mut State, retired: &mut Vec<u64>) {
    let newest = state.last.segment;
    let State { index, segments, .. } = state;
    let needed = |number: u64, key: &RangeKey| {
        index
            .get(*key)
            .is_some_and(|range| range.runs.iter().any(|run| run.segment == number))
    };
    let dead: Vec<u64> = segments
        .iter()
        .filter(|(number, live)| {
            **number != newest && !live.damaged && !live.keys.iter().any(|key| needed(**number, key))
        })
        .map(|(number, _)| *number)
        .collect();
    let mut left = HashSet::new();
    for number in &dead {
        if let Some(live) = segments.remove(number) {
            left.extend(live.keys);
        }
    }
    retired.extend(dead);
    // A range that was given up is remembered until nothing of it is left: a restart would find what there is.
    left.retain(|key| index.get(*key).is_some_and(|range| range.released == Offset(i64::MAX)));
    for live in segments.values() {
        for key in &live.keys {
            left.remove(key);
        }
    }
    for key in left {
        index.remove(key);
    }
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
