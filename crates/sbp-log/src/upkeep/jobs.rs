//! Jobs of the upkeep thread: footers of full segments, compaction, checkpoints.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use crate::Durability;
use crate::format::block_up;
use crate::format::footer::{FooterBuilder, IndexEntry};
use crate::fs::File;
use crate::state::index::Entries;
use crate::state::shared::Shared;
use crate::upkeep::checkpoint::write_checkpoint;
use crate::upkeep::compaction::compact;

/// A job of the upkeep thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    /// Give a full segment its footer.
    Seal(u64),
    /// Write a checkpoint.
    Checkpoint,
}

/// Where jobs are done.
#[derive(Debug)]
pub(crate) enum JobSink {
    /// On the thread that sends them.
    Inline,
    /// On a thread that ends when this is dropped.
    Thread(mpsc::Sender<Job>),
}

impl JobSink {
    pub(crate) fn send(&self, shared: &Shared, job: Job) {
        match self {
            Self::Inline => run(shared, job),
            Self::Thread(sender) => {
                // The thread ends only when the sender is dropped, so sending succeeds.
                let _ = sender.send(job);
            }
        }
    }
}

/// Does a job. A failure costs replay time or space but no record, so it is only logged.
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

/// Writes a segment's footer after its last group and cuts the file off there.
fn seal(shared: &Shared, number: u64) -> io::Result<()> {
    let (segment, bytes, runs, listed, at) = {
        let state = shared.state.read();
        let Some(live) = state.segments.get(&number).filter(|live| !live.sealed) else {
            return Ok(());
        };
        let mut keys = live.keys.clone();
        keys.sort_unstable();
        keys.dedup();
        let mut footer = FooterBuilder::new(block_up(live.end));
        let mut listed: Vec<Arc<[IndexEntry]>> = Vec::new();
        for key in keys {
            let Some(range) = state.index.get(key) else { continue };
            for run in range.runs.iter().filter(|run| run.segment == number) {
                if let Entries::Resident(entries) = &run.entries {
                    let entries: Arc<[IndexEntry]> = entries.iter().map(|resident| resident.entry).collect();
                    footer.push(key, range.epoch, &entries);
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
        // With other durabilities a footer need not be durable: the next checkpoint syncs it with the rest.
        segment.file.sync_data()?;
    }

    // The entries are cached, because readers of the hot tail still need them.
    let places = runs.iter().map(|run| run.position);
    shared.footers.put_all(number, places.zip(listed));
    let mut state = shared.state.write();
    for stored in &runs {
        let range = state.index.get_mut(stored.key);
        for run in range.into_iter().flat_map(|range| &mut range.runs) {
            if run.segment == number {
                run.entries = Entries::stored(stored);
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
