//! Durable metadata: the records of the placement driver, and the ranges that the range server holds.

pub(crate) mod codec;
mod copy;
mod redb_store;
#[cfg(test)]
mod tests;

pub(crate) use copy::{Copied, read_copy};
pub(crate) use redb_store::{FILE, RedbStore};

use std::fmt::Debug;

use sbp_replication::Term;
use sbp_types::{ClusterId, RangeKey};

use crate::placement;
use crate::range::HeldRange;

/// A durable change of either role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetadataChange {
    /// A change of the placement driver's records.
    Placement(placement::Change),
    /// The range server holds this range. Stored before the first append to the range is accepted.
    Hold(HeldRange),
    /// The range server removes what it has of this range, which others have, and takes it from nobody until it has.
    LetGo(RangeKey),
    /// The range server has nothing any more of a range that it was let go of.
    Cleared(RangeKey),
    /// The directory has been started this many times, as the log counts.
    Started(u64),
    /// The range server has followed a placement driver of this term, and follows none of a lower one any more.
    Followed(Term),
    /// The directory belongs to this cluster: its placement driver has begun it, or its range server has joined it.
    Cluster(ClusterId),
}

/// Transactional storage of metadata. Its methods block.
pub(crate) trait MetadataStore: Debug + Send + 'static {
    /// Everything stored, as changes to an empty state.
    fn load(&self) -> Result<Vec<MetadataChange>, MetadataError>;

    /// Makes the changes durable, all or none. After [`MetadataError::DiskFull`] nothing was changed and the store can
    /// still be used; after any other error it is unknown whether they were made, and the store takes no more.
    fn commit(&mut self, changes: &[MetadataChange]) -> Result<(), MetadataError>;
}

/// Why metadata cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MetadataError {
    /// The store has a newer format than this version can read.
    #[error("it has format {found}, this version reads up to {supported}")]
    NewerFormat { found: u32, supported: u32 },
    /// The disk is full; nothing was written.
    #[error("the disk is full")]
    DiskFull,
    /// A record cannot be read.
    #[error("the record of {what} is unreadable")]
    Unreadable { what: String },
    /// An error of the embedded database.
    #[error("{0}")]
    Store(#[from] redb::Error),
    /// The file cannot be opened.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// The database has an error type for each call; this converts them all.
macro_rules! from_database_error {
    ($($name:ident),*) => {
        $(impl From<redb::$name> for MetadataError {
            fn from(error: redb::$name) -> Self {
                Self::Store(error.into())
            }
        })*
    };
}

from_database_error!(
    CommitError,
    DatabaseError,
    SetDurabilityError,
    StorageError,
    TableError,
    TransactionError
);
