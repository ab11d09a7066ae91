//! Work that no caller waits for: footers, checkpoints, compaction, the search for damage, and its repair.

pub(crate) mod checkpoint;
pub(crate) mod compaction;
pub(crate) mod jobs;
pub(crate) mod repair;
pub(crate) mod scrub;
