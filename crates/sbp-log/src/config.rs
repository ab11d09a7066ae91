//! The configuration of a log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::entry::MOST_PART_BYTES;
use crate::format::BLOCK;
use crate::{Durability, OpenError};

/// Which threads prepare segments and write footers and checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Helpers {
    /// Helper threads, so that a sync overlaps with the building of the next group.
    #[default]
    Threads,
    /// The writer thread itself, one step after the other, so that every run has the same order of file operations.
    Inline,
}

/// When to forget writers that should be remembered, so that a test can show that it would notice.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForgetWriters {
    /// Never, as promised.
    #[default]
    Never,
    /// At every start, as if their state were in memory only.
    AtStart,
    /// As soon as their last batch is released, as if a trim dropped them.
    OnRelease,
}

/// The directory of a log and its settings. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The data directory: made if it does not exist, owned by one log at a time.
    pub directory: PathBuf,
    /// When an append counts as synced.
    pub durability: Durability,
    /// The largest size of a new segment, a multiple of 4,096. Existing segments keep theirs.
    pub segment_bytes: u64,
    /// The size of the first segment of an empty directory, a multiple of 4,096. Every new segment is twice as large as
    /// the one before it, up to `segment_bytes`, so that a directory with few records takes little room. A group that
    /// needs more gets a segment that it fits into.
    pub first_segment_bytes: u64,
    /// The most that one group takes from the queue; a larger batch gets a group of its own.
    pub group_bytes: usize,
    /// How much of the newest records is kept in memory for readers; 0 keeps nothing.
    pub hot_tail_bytes: usize,
    /// The size of the reserve file, which is removed when the disk is full so that seals and metadata can be written.
    /// At most half of the next segment counts, so that the space is too small for the log itself.
    pub reserve_bytes: u64,
    /// A checkpoint is written after this much log, or after four times its own size if that is more.
    pub checkpoint_bytes: u64,
    /// A sealed segment is rewritten, range by range and together with its neighbours, when at most this percentage of
    /// it is still needed. 0: never. 100: every segment once, which makes long reads of one range among many
    /// sequential, but writes everything twice.
    pub compaction_percent: u8,
    /// How long a writer without a batch in the log is remembered, measured by append times in the log.
    pub writer_retention: Duration,
    /// The most that one part of the state of a stream's writers takes, with which a range begins: 4 MiB, and less in tests.
    pub writers_part_bytes: usize,
    /// Which threads help the writer thread.
    pub helpers: Helpers,
    /// Breaks the promise that writers are remembered.
    #[cfg(feature = "testing")]
    pub forget_writers: ForgetWriters,
}

impl LogConfig {
    /// Durable defaults for `directory`.
    #[must_use]
    pub fn new(directory: impl AsRef<Path>) -> Self {
        Self {
            directory: directory.as_ref().to_owned(),
            durability: Durability::Fsync,
            segment_bytes: 64 << 20,
            first_segment_bytes: 4 << 20,
            group_bytes: 8 << 20,
            hot_tail_bytes: 64 << 20,
            reserve_bytes: 16 << 20,
            checkpoint_bytes: 1 << 30,
            compaction_percent: 50,
            writer_retention: Duration::from_hours(7 * 24),
            writers_part_bytes: MOST_PART_BYTES,
            helpers: Helpers::Threads,
            #[cfg(feature = "testing")]
            forget_writers: ForgetWriters::Never,
        }
    }

    /// Defaults for a directory that is deleted when its owner ends: smaller segments and reserve.
    #[must_use]
    pub fn temporary(directory: impl AsRef<Path>) -> Self {
        Self {
            segment_bytes: 32 << 20,
            hot_tail_bytes: 32 << 20,
            reserve_bytes: 1 << 20,
            ..Self::new(directory)
        }
    }
}

impl LogConfig {
    /// Refuses sizes that the log cannot work with.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let is_size = |bytes: u64| bytes.is_multiple_of(BLOCK) && bytes >= 2 * BLOCK;
        if !is_size(self.segment_bytes) || !is_size(self.first_segment_bytes) {
            return Err(OpenError::Config(
                "segment_bytes and first_segment_bytes must be multiples of 4,096, at least two of them",
            ));
        }
        if self.segment_bytes > u64::from(u32::MAX) {
            return Err(OpenError::Config("segment_bytes must be less than 4 GiB"));
        }
        Ok(())
    }
}
