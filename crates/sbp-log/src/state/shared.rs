//! The state that the log's threads and its readers share.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sbp_buffers::Recycler;
use sbp_locks::{Mutex, RwLock};
use sbp_types::{Offset, RangeKey};

use crate::format::checkpoint::Checkpoint;
use crate::format::clean::GroupMark;
use crate::format::footer::IndexEntry;
use crate::format::superblock::{Groups, Superblock};
use crate::fs::{File, FileLock, FileSystem};
use crate::segments::files::{SUPERBLOCK, SegmentId, write_sector_always};
use crate::segments::footers::FooterCache;
use crate::segments::prepare::{Maker, Prepared};
use crate::segments::segment::Segment;
use crate::state::folds::Folds;
use crate::state::hot_tail::HotTail;
use crate::state::index::Index;
use crate::writers::Writers;
use crate::{LogConfig, SyncObserver};

/// The state that readers see, changed once per group.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) tail: HotTail,
    /// The writers, by the batches that readers see.
    pub(crate) writers: Writers,
    /// What of those batches counts for the writers.
    pub(crate) folds: Folds,
    /// Segments with groups, by number. The last one is being written.
    pub(crate) segments: BTreeMap<u64, LiveSegment>,
    /// Compacted files, by number.
    pub(crate) compacted: BTreeMap<u64, LiveSegment>,
    /// Files that no future checkpoint will list. They are removed when no kept checkpoint needs them.
    pub(crate) retired: BTreeMap<SegmentId, Retired>,
    /// Whether anything was released or a segment was sealed since space was last freed.
    pub(crate) reclaimable: bool,
    /// The last group that is synced.
    pub(crate) last: GroupMark,
}

impl State {
    /// The file with this number.
    pub(crate) fn live(&self, number: u64) -> Option<&LiveSegment> {
        self.segments.get(&number).or_else(|| self.compacted.get(&number))
    }

    /// Retires files.
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
        // A released range is remembered until no file has records of it, because a restart would find them. Its last
        // file may have been removed before.
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
            self.folds.forget(key);
            self.index.remove(key);
        }
    }

    /// Whether damage hides records that are needed. Files with damage then stay as they are: more of them may be readable later, or
    /// be put back from another copy.
    pub(crate) fn misses_records(&self) -> bool {
        self.index.unlisted_damage || self.index.iter().any(|(_, range)| !range.damage.is_empty())
    }

    /// The ranges of which files have records, once per file.
    pub(crate) fn keys_on_disk(&self) -> impl Iterator<Item = RangeKey> {
        let live = self.segments.values().chain(self.compacted.values());
        let retired = self.retired.values().flat_map(|retired| &retired.keys);
        live.flat_map(|live| &live.keys).chain(retired).copied()
    }
}

/// A file that is to be removed.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    /// The ranges of which it has records.
    pub(crate) keys: Vec<RangeKey>,
    /// Its length.
    pub(crate) bytes: u64,
}

/// A lock around [`State`]. Not held while waiting for the disk. Where both are taken, the queue's lock is taken first.
pub(crate) type StateLock = RwLock<State>;

/// A segment with groups.
#[derive(Debug)]
pub(crate) struct LiveSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) first_group: u64,
    pub(crate) last: GroupMark,
    /// The position of the next group or the footer.
    pub(crate) end: u64,
    /// The ranges that have entries in it, perhaps more than once.
    pub(crate) keys: Vec<RangeKey>,
    /// Of a segment without a footer: the batches in it, also those that were released or lie behind their range's end,
    /// and so are not in the index.
    pub(crate) batches: usize,
    /// Its place in the order of contents of all files: its number, and for a compacted file the largest one of the
    /// files it replaced.
    pub(crate) order: u64,
    /// Whether it has a footer.
    pub(crate) sealed: bool,
    /// Whether damage in it hid records when the log was opened. A start reads its groups, and not its footer.
    pub(crate) damaged: bool,
    /// Whether compaction has failed to read something in it. It is not tried again.
    pub(crate) left_alone: bool,
}

impl LiveSegment {
    /// A segment in which nothing has been found yet but its last group.
    pub(crate) fn new(segment: Arc<Segment>, first_group: u64, last: GroupMark, end: u64) -> Self {
        Self {
            order: segment.number,
            segment,
            first_group,
            last,
            end,
            keys: Vec::new(),
            batches: 0,
            sealed: false,
            damaged: false,
            left_alone: false,
        }
    }
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
    /// Held while a checkpoint is written, for as long as the disk takes, so no other thread may wait for it.
    pub(crate) checkpoints: Mutex<Checkpoints>,
    /// The size of the last checkpoint.
    pub(crate) checkpoint_size: AtomicU64,
    /// With durability `none`: segments below this number are on stable storage.
    pub(crate) synced_below: AtomicU64,
    /// Buffers that batches from the disk are read into.
    pub(crate) read_buffers: Mutex<Recycler>,
    /// Held while files are compacted, for as long as the disk takes, so no other thread may wait for it.
    pub(crate) compacting: Mutex<Unlisted>,
    /// How many times batches have been moved to another file. A read that failed meanwhile is repeated.
    pub(crate) moved: AtomicU64,
    /// Who is told of syncs, once somebody has asked for it.
    pub(crate) sync_observer: OnceLock<Arc<dyn SyncObserver>>,
    /// Whether the log found the ends that it had.
    pub(crate) knows_its_ends: bool,
    /// Held for as long as the log lives.
    pub(crate) _lock: Box<dyn FileLock>,
}

/// Damaged batches whose heads can be read, in files with damage, by file: the index does not list them.
#[derive(Debug, Default)]
pub(crate) struct Unlisted {
    pub(crate) files: BTreeMap<u64, UnlistedIn>,
}

/// Those in one file.
#[derive(Debug)]
pub(crate) struct UnlistedIn {
    /// When it was read, by the log's clock.
    pub(crate) read_at: Duration,
    pub(crate) batches: HashMap<(RangeKey, Offset), IndexEntry>,
}

/// The checkpoints on the disk.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Oldest first, two. Until two have been written, "no checkpoint" is the first.
    pub(crate) kept: Vec<KeptCheckpoint>,
    /// The largest sequence number found or used.
    pub(crate) sequence: u64,
}

/// A checkpoint on the disk, and the files that a start from it needs.
#[derive(Clone, Debug)]
pub(crate) struct KeptCheckpoint {
    pub(crate) sequence: u64,
    /// The last segment it covers.
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

    /// Stands for a start without a readable checkpoint, which needs all segments from the first on.
    pub(crate) fn none() -> Self {
        Self {
            sequence: 0,
            covered: 0,
            files: Vec::new(),
        }
    }

    /// A checkpoint that cannot be read, so that no start uses it.
    pub(crate) fn unreadable(sequence: u64) -> Self {
        Self {
            sequence,
            covered: u64::MAX,
            files: Vec::new(),
        }
    }

    /// Whether a start can use this checkpoint.
    fn is_readable(&self) -> bool {
        self.sequence > 0 && self.covered != u64::MAX
    }

    /// Whether a start from this checkpoint would read a file: one that it lists, or a later segment.
    pub(crate) fn needs(&self, id: SegmentId) -> bool {
        self.files.contains(&id) || matches!(id, SegmentId::Chain(number) if number > self.covered)
    }
}

impl Checkpoints {
    /// Whether a start can use the older checkpoint if the newest one is damaged.
    pub(crate) fn are_two(&self) -> bool {
        self.kept.iter().filter(|kept| kept.is_readable()).count() > 1
    }

    /// Takes out a checkpoint beyond the two to keep: first one that no start can use, else the oldest.
    pub(crate) fn take_surplus(&mut self) -> Option<KeptCheckpoint> {
        if self.kept.len() <= 2 {
            return None;
        }
        let unreadable = self.kept.iter().position(|kept| kept.covered == u64::MAX);
        Some(self.kept.remove(unreadable.unwrap_or(0)))
    }
}

/// The counters behind [`LogStats`](crate::LogStats).
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

/// Adds to a counter. Relaxed, because nothing depends on its order.
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

    /// Called before the first mark, or entry of a shared range, in the life of the directory: from then on, releases that
    /// do not know them must not open it.
    pub(crate) fn admit_marks(&self) -> std::io::Result<()> {
        self.change_superblock(|superblock| Superblock {
            groups: Groups::Marks,
            ..superblock
        })
    }

    /// Syncs everything up to the last group, whatever the durability.
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
            // The newest segment is still being written, so it is not included.
            self.synced_below.fetch_max(newest.number, Ordering::AcqRel);
        }
        Ok(())
    }
}
