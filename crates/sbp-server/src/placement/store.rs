//! Where a placement driver's metadata is durable.

use std::fmt::Debug;

use super::state::Change;

/// Transactional storage of streams and ranges. Blocking.
pub(crate) trait PlacementStore: Debug + Send + 'static {
    /// Makes the changes durable, all or none.
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError>;
}

/// Why changes are not durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommitError {
    /// There is no room. Nothing was written, and the store can be used on.
    #[error("the disk is full")]
    DiskFull,
    /// The changes may or may not be on the disk; a restart finds out. The store takes no more.
    #[error("{0}")]
    Failed(String),
}
