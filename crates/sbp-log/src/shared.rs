//! What the log's threads and its readers share.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sbp_buffers::Recycler;
use sbp_locks::{Mutex, RwLock};
use sbp_types::{Offset, RangeKey};

use crate::LogConfig;
use crate::files::{SUPERBLOCK, SegmentId, write_sector_always};
use crate::footers::FooterCache;
use crate::format::checkpoint::Checkpoint;
use crate::format::clean::GroupMark;
use crate::format::superblock::Superblock;
use crate::fs::{File, FileLock, FileSystem};
use crate::index::Index;
use crate::prepare::{Maker, Prepared};
use crate::segment::Segment;
use crate::tail::HotTail;
use crate::writers::Writers;

/// What readers see, changed once per group.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) tail: HotTail,
    /// The writers of what readers see.
    pub(crate) writers: Writers,
    /// Segments with groups, by number. The last one is being written.
    pub(crate) segments: BTreeMap<u64, LiveSegment>,
    /// Files with what was left of older segments, by number.
    pub(crate) compacted: BTreeMap<u64, LiveSegment>,
    /// Files that no checkpoint to come will list; they go when no kept one needs them.
    pub(crate) retired: BTreeMap<SegmentId, Retired>,
    /// Whether anything was released, or a segment sealed, since room was last given back.
    pub(crate) reclaimable: bool,
    /// The last group that is synced.
    pub(crate) last: GroupMark,
}

impl State {
    /// The file that a run is in.
    pub(crate) fn live(&self, number: u64) -> Option<&LiveSegment> {
        self.segments.get(&number).or_else(|| self.compacted.get(&number))
    }

    /// Takes files out of use.
    pub(crate) fn retire(&mut self, numbers: &[u64]) {
        let mut left = HashSet::new();
        for number in numbers {
            let chain = self
                .segments
                .remove(number)
                .map(|live| (SegmentId::Chain(*number), live));
            let gone = chain.or_else(|| Some((SegmentId::Compacted(*number), self.compacted.remove(number)?)));
            let Some((id, live)) = gone else { continue };
            left.extend(live.keys.iter().copied());
            let bytes = if live.sealed { live.end } else { live.segment.capacity };
            self.retired.insert(id, Retired { keys: live.keys, bytes });
        }
        // A range that was given up is remembered until nothing of it is left: a restart would find what there is. It may
        // have lost its last file before.
        left.extend(self.index.keys_where(|range| range.released == Offset(i64::MAX)));
        left.retain(|key| {
            self.index
                .get(*key)
                .is_some_and(|range| range.released == Offset(i64::MAX))
        });
        for live in self.segments.values().chain(self.compacted.values()) {
            for key in &live.keys {
                left.remove(key);
            }
        }
        for key in left {
            self.index.remove(key);
        }
    }

    /// The ranges that some file holds records of, once per file.
    pub(crate) fn keys_on_disk(&self) -> impl Iterator<Item = RangeKey> {
        let live = self.segments.values().chain(self.compacted.values());
        let retired = self.retired.values().flat_map(|retired| &retired.keys);
        live.flat_map(|live| &live.keys).chain(retired).copied()
    }
}

/// A file on its way out.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    /// The ranges it holds records of.
    pub(crate) keys: Vec<RangeKey>,
    /// Its length.
    pub(crate) bytes: u64,
}

/// A lock around [`State`]. Never taken while waiting for the disk; the queue's lock comes before it.
pub(crate) type StateLock = RwLock<State>;

/// A segment that holds groups.
#[derive(Debug)]
pub(crate) struct LiveSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) first_group: u64,
    pub(crate) last: GroupMark,
    /// Where the next group or the footer begins.
    pub(crate) end: u64,
    /// The ranges that have a run in it.
    pub(crate) keys: Vec<RangeKey>,
    /// Its place among all files, by what they hold: its number in the chain, and for a compacted file the
    /// largest of those it took the place of.
    pub(crate) order: u64,
    /// Whether it has its footer.
    pub(crate) sealed: bool,
    /// Whether damage in it hides records: it is kept for whoever can read more of it.
    pub(crate) damaged: bool,
    /// Whether something in it could not be read when it was to be rewritten: it is not tried again.
    pub(crate) left_alone: bool,
}

/// Everything but the queue.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) config: LogConfig,
    pub(crate) state: StateLock,
    pub(crate) maker: Maker,
    pub(crate) prepared: Prepared,
    pub(crate) footers: FooterCache,
    pub(crate) counters: Counters,
    pub(crate) superblock: Mutex<Superblock>,
    /// Held by who writes checkpoints, for as long as the disk takes: nobody else may wait for it.
    pub(crate) checkpoints: Mutex<Checkpoints>,
    /// The size of the last checkpoint.
    pub(crate) checkpoint_size: AtomicU64,
    /// With durability `none`: segments below this number are on stable storage.
    pub(crate) synced_below: AtomicU64,
    /// Memory that batches from the disk were read into.
    pub(crate) read_buffers: Mutex<Recycler>,
    /// Held by who rewrites segments, for as long as the disk takes: nobody else may wait for it.
    pub(crate) compacting: Mutex<()>,
    /// How many times batches have moved from one file to another: a read that failed meanwhile is worth another try.
    pub(crate) moved: AtomicU64,
    /// Held for as long as the log lives.
    pub(crate) _lock: Box<dyn FileLock>,
}

/// The checkpoints on the disk.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Oldest first, two: until two have been written, the start without any is the first of them.
    pub(crate) kept: Vec<KeptCheckpoint>,
    /// The largest sequence number ever seen.
    pub(crate) sequence: u64,
}

/// A checkpoint on the disk, and what a start from it would need.
#[derive(Clone, Debug)]
pub(crate) struct KeptCheckpoint {
    pub(crate) sequence: u64,
    /// The segment it ends in.
    pub(crate) covered: u64,
    pub(crate) files: Vec<SegmentId>,
}

impl KeptCheckpoint {
    pub(crate) fn of(sequence: u64, checkpoint: &Checkpoint) -> Self {
        let chain = checkpoint.segments.iter().map(|item| SegmentId::Chain(item.number));
        let compacted = checkpoint
            .compacted
            .iter()
            .map(|item| SegmentId::Compacted(item.segment.number));
        Self {
            sequence,
            covered: checkpoint.covered.segment,
            files: chain.chain(compacted).collect(),
        }
    }

    /// What a start needs that finds no readable checkpoint: the chain from its first segment on.
    pub(crate) fn none() -> Self {
        Self {
            sequence: 0,
            covered: 0,
            files: Vec::new(),
        }
    }

    /// One that cannot be read, so that no start will begin from it.
    pub(crate) fn unreadable(sequence: u64) -> Self {
        Self {
            sequence,
            covered: u64::MAX,
            files: Vec::new(),
        }
    }

    /// Whether a start can begin from this file.
    fn is_readable(&self) -> bool {
        self.sequence > 0 && self.covered != u64::MAX
    }

    /// Whether a start from it would read a file: what it lists, and every later part of the chain.
    pub(crate) fn needs(&self, id: SegmentId) -> bool {
        self.files.contains(&id) || matches!(id, SegmentId::Chain(number) if number > self.covered)
    }
}

impl Checkpoints {
    /// Whether the newest may be damaged, and a start begins from the one before it.
    pub(crate) fn are_two(&self) -> bool {
        self.kept.iter().filter(|kept| kept.is_readable()).count() > 1
    }

    /// Takes out what is kept beyond two: first those that no start can begin from, then the oldest.
    pub(crate) fn take_surplus(&mut self) -> Option<KeptCheckpoint> {
        if self.kept.len() <= 2 {
            return None;
        }
        let unreadable = self.kept.iter().position(|kept| kept.covered == u64::MAX);
        Some(self.kept.remove(unreadable.unwrap_or(0)))
    }
}

/// What [`LogStats`](crate::LogStats) is made of.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) groups: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) batch_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_nanos: AtomicU64,
    pub(crate) hot_reads: AtomicU64,
    pub(crate) cold_reads: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) disk_reads: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
}

/// Adds to a counter that nothing is ordered by.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Shared {
    /// Changes the superblock, durably.
    pub(crate) fn change_superblock(&self, change: impl FnOnce(Superblock) -> Superblock) -> std::io::Result<()> {
        let mut superblock = self.superblock.lock();
        let changed = change(*superblock);
        if changed != *superblock {
            write_sector_always(&*self.fs, &self.config.directory, SUPERBLOCK, &changed.encode())?;
            *superblock = changed;
        }
        Ok(())
    }

    /// Before the first fence of the directory's life: whoever does not know fences must not open it any more.
    pub(crate) fn admit_fences(&self) -> std::io::Result<()> {
        self.change_superblock(|superblock| Superblock {
            has_fences: true,
            ..superblock
        })
    }

    /// Brings everything up to the last group to stable storage, whatever the durability.
    pub(crate) fn sync_all(&self) -> std::io::Result<()> {
        let low = self.synced_below.load(Ordering::Acquire);
        let segments: Vec<_> = {
            let state = self.state.read();
            state
                .segments
                .range(low..)
                .map(|(_, live)| live.segment.clone())
                .collect()
        };
        for segment in &segments {
            segment.file.sync_data()?;
        }
        if let Some(newest) = segments.last() {
            // The newest is still being written, so it is not below.
            self.synced_below.fetch_max(newest.number, Ordering::AcqRel);
        }
        Ok(())
    }
}
