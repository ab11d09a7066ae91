//! Work that no append waits for: footers, checkpoints, compaction, ranges that leave the disk, the search for damage, and its
//! repair.

pub(crate) mod checkpoint;
pub(crate) mod clear;
pub(crate) mod compaction;
pub(crate) mod jobs;
pub(crate) mod repair;
pub(crate) mod scrub;
