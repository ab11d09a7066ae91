//! Work that no caller waits for: footers, checkpoints, compaction, and the search for damage.

pub(crate) mod checkpoint;
pub(crate) mod compaction;
pub(crate) mod jobs;
pub(crate) mod scrub;
