//! Where metadata is durable: streams and ranges of the placement driver, and the ranges the range server holds.

mod backend;
mod codec;
mod redb_store;
#[cfg(test)]
mod tests;

pub(crate) use redb_store::RedbStore;

use std::fmt::Debug;

use crate::placement;
use crate::range::HeldRange;

/// One durable change of either role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetadataChange {
    /// The placement driver's.
    Placement(placement::Change),
    /// The range server holds this range: it is stored before the first append to it is accepted.
    Hold(HeldRange),
    /// The directory was started for this many times, as the log counts.
    Started(u64),
}

/// Transactional storage of metadata. Blocking.
pub(crate) trait MetadataStore: Debug + Send + 'static {
    /// Everything stored, as the changes that lead to it.
    fn load(&self) -> Result<Vec<MetadataChange>, MetadataError>;

    /// Makes the changes durable, all or none. After [`MetadataError::DiskFull`] nothing was changed and the store can be
    /// used on; after any other error nothing is known, and the store takes no more.
    fn commit(&mut self, changes: &[MetadataChange]) -> Result<(), MetadataError>;
}

/// Why metadata cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MetadataError {
    /// The store was written by a newer version.
    #[error("it has format {found}, this version reads up to {supported}")]
    NewerFormat { found: u32, supported: u32 },
    /// There is no room; nothing was written.
    #[error("the disk is full")]
    DiskFull,
    /// A record cannot be read.
    #[error("the record of {what} is unreadable")]
    Unreadable { what: String },
    /// The embedded database says no.
    #[error("{0}")]
    Store(#[from] redb::Error),
    /// The file cannot be opened.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// The database has one error type for each call; all of them fit into one.
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
