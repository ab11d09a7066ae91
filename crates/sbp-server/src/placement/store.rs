//! The interface to the durable storage of a placement driver's metadata.

use std::fmt::Debug;

use super::state::Change;

/// Transactional storage of metadata records. Its methods block.
pub(crate) trait PlacementStore: Debug + Send + 'static {
    /// Makes the changes durable, all or none.
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError>;
}

/// Why changes were not made durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommitError {
    /// The disk is full. Nothing was written, and the store can still be used.
    #[error("the disk is full")]
    DiskFull,
    /// The changes may or may not be on the disk, which only a restart can tell. The store accepts no more changes.
    #[error("{0}")]
    Failed(String),
}
