//! The interface to the durable storage of a placement driver's metadata.

use std::fmt::Debug;

use super::state::Change;

/// Transactional storage of metadata records. Its methods block.
pub(crate) trait PlacementStore: Debug + Send + 'static {
    /// Makes the changes durable, all or none.
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError>;

    /// Whether one transaction has room for the changes of several operations: `staged`, and `more` behind them.
    fn has_room(&self, staged: &[Change], more: &[Change]) -> bool {
        let _unbounded = (staged, more);
        true
    }

    /// Whether whoever leads next reads which servers were let go of ranges, and whose copies of them say nothing of the writers.
    fn notes_copies(&self) -> bool {
        true
    }
}

/// Why changes were not made durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommitError {
    /// The disk is full. Nothing was written, and the store can still be used.
    #[error("the disk is full")]
    DiskFull,
    /// The store does not take these changes, whatever the reason. Nothing was written, and the store can still be used.
    #[error("{0}")]
    Refused(String),
    /// The changes may or may not be on the disk, which only a restart can tell. The store accepts no more changes.
    #[error("{0}")]
    Failed(String),
    /// This placement driver does not lead its cluster any more. Whoever leads next finds the changes, or does not. The
    /// store accepts no more changes; the server is as sound as before.
    #[error("{0}")]
    Deposed(String),
}
