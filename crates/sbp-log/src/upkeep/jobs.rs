//! Jobs of the upkeep thread: footers of full segments, compaction, checkpoints.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use sbp_types::{Epoch, RangeKey};

use crate::Durability;
use crate::format::block_up;
use crate::format::clean::GroupMark;
use crate::format::footer::{FooterBuilder, IndexEntry};
use crate::fs::File;
use crate::segments::footers::rebuild_all;
use crate::segments::segment::Segment;
use crate::state::index::Entries;
use crate::state::shared::{Shared, State};
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

/// The entries of a range in a segment, with its epoch.
type Part = (RangeKey, Epoch, Arc<[IndexEntry]>);

/// A segment without a footer, with the entries that the index has of it.
struct Unsealed {
    segment: Arc<Segment>,
    first_group: u64,
    last: GroupMark,
    end: u64,
    batches: usize,
    damaged: bool,
    parts: Vec<Part>,
}

impl Unsealed {
    /// `None` if the segment has a footer, or nothing in it is needed any more.
    fn of(state: &State, number: u64) -> Option<Self> {
        let live = state.segments.get(&number).filter(|live| !live.sealed)?;
        let mut keys = live.keys.clone();
        keys.sort_unstable();
        // A range that went on behind a release began another run.
        keys.dedup();
        let mut parts = Vec::new();
        for key in keys {
            let Some(range) = state.index.get(key) else { continue };
            for run in range.runs.iter().filter(|run| run.segment == number) {
                if let Entries::Resident(entries) = &run.entries {
                    parts.push((
                        key,
                        range.epoch,
                        entries.iter().map(|resident| resident.entry).collect(),
                    ));
                }
            }
        }
        Some(Self {
            segment: live.segment.clone(),
            first_group: live.first_group,
            last: live.last,
            end: live.end,
            batches: live.batches,
            damaged: live.damaged,
            parts,
        })
    }

    /// Makes sure that every batch is listed. A checkpoint or a start that does not know of a release would take what a
    /// footer leaves out for damage.
    fn complete(&mut self) -> io::Result<()> {
        let listed = |parts: &[Part]| parts.iter().map(|(.., entries)| entries.len()).sum::<usize>();
        // Nobody reads the footer of a damaged segment.
        if self.damaged || listed(&self.parts) == self.batches {
            return Ok(());
        }
        let all = rebuild_all(&self.segment, self.end)?.into_iter();
        self.parts = all
            .map(|(key, (epoch, entries))| (key, epoch, entries.into()))
            .collect();
        if listed(&self.parts) == self.batches {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not every batch can be read, so the segment gets no footer",
        ))
    }
}

/// Writes a segment's footer after its last group and cuts the file off there.
fn seal(shared: &Shared, number: u64) -> io::Result<()> {
    let unsealed = Unsealed::of(&shared.state.read(), number);
    let Some(mut unsealed) = unsealed else {
        return Ok(());
    };
    unsealed.complete()?;
    let Unsealed { segment, parts, .. } = unsealed;
    let at = block_up(unsealed.end);
    let mut footer = FooterBuilder::new(at);
    for (key, epoch, entries) in &parts {
        footer.push(*key, *epoch, entries);
    }
    let (bytes, runs) = footer.finish(segment.salt, unsealed.first_group, unsealed.last);
    segment.file.write_at(at, &bytes)?;
    segment.file.set_len(at + bytes.len() as u64)?;
    if segment.durability == Durability::Fsync {
        // With other durabilities a footer need not be durable: the next checkpoint syncs it with the rest.
        segment.file.sync_data()?;
    }

    // The entries are cached, because readers of the hot tail still need them.
    let places = runs.iter().map(|run| run.position);
    let listed = parts.into_iter().map(|(.., entries)| entries);
    shared.footers.put_all(number, places.zip(listed));
    let mut state = shared.state.write();
    for stored in &runs {
        let range = state.index.get_mut(stored.key);
        for run in range.into_iter().flat_map(|range| &mut range.runs) {
            if run.segment == number {
                run.is_cut |= run.end < stored.end;
                run.entries = Entries::stored(stored);
            }
        }
    }
    if let Some(live) = state.segments.get_mut(&number) {
        live.keys.sort_unstable();
        live.keys.dedup();
        live.sealed = true;
    }
    state.reclaimable = true;
    drop(state);
    segment.file.unpin();
    Ok(())
}
