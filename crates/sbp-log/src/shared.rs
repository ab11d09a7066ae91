//! What the log's threads and its readers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use sbp_types::RangeKey;

use crate::LogConfig;
use crate::footers::FooterCache;
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
    /// The last group that is synced.
    pub(crate) last: GroupMark,
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
    /// Whether it has its footer.
    pub(crate) sealed: bool,
    /// Whether damage in it hides records: it is kept for whoever can read more of it.
    pub(crate) damaged: bool,
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
    pub(crate) checkpoints: Mutex<Checkpoints>,
    /// With durability `none`: segments below this number are on stable storage.
    pub(crate) synced_below: AtomicU64,
    /// Held for as long as the log lives.
    pub(crate) _lock: Box<dyn FileLock>,
}

/// The checkpoints on the disk.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Oldest first, at most two, each with the segments it lists.
    pub(crate) kept: Vec<(u64, Vec<u64>)>,
    /// The largest sequence number ever seen.
    pub(crate) sequence: u64,
    /// The size of the last one.
    pub(crate) size: u64,
    /// Segments that no checkpoint to come will list; they go when no kept one does.
    pub(crate) retired: Vec<u64>,
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
}

/// Adds to a counter that nothing is ordered by.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Shared {
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
