//! The errors of the log: of appending, opening and reading.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sbp_types::{Offset, Position, RangeKey};

/// Why an append was refused or may have failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Refused: an earlier write or sync failed, and nothing is accepted any more. Synced records can still be read.
    #[error("the log has failed and takes no appends: {cause}")]
    Failed {
        /// What failed.
        cause: Arc<io::Error>,
    },
    /// For appends that were waiting when a write or sync failed: a restart may or may not find them.
    #[error("writing the log failed while this append was waiting: {cause}")]
    Indeterminate {
        /// What failed.
        cause: Arc<io::Error>,
    },
    /// Refused before anything was written: there is no room for a segment that it fits into, or for what was queued before it
    /// in its range. Smaller appends to other ranges may be stored. It works again when there is room.
    #[error("the disk is full")]
    DiskFull,
    /// Refused: no segment can hold a batch of this size.
    #[error("a batch of {bytes} bytes is larger than the {limit} bytes a segment holds")]
    TooLarge {
        /// The batch's size.
        bytes: usize,
        /// The largest that fits.
        limit: usize,
    },
    /// Refused: the positions within a range must continue without gap or overlap, and an entry's fields must fit its kind.
    #[error("range {key} continues at offset {expected}, not at {given}")]
    OutOfOrder {
        /// The range.
        key: RangeKey,
        /// The place of its next entry.
        expected: Position,
        /// The place that was given.
        given: Position,
    },
    /// Refused: the range ends before it, as the owner has said.
    #[error("range {key} ends at offset {end}")]
    Ended {
        /// The range.
        key: RangeKey,
        /// Where it ends.
        end: Position,
    },
    /// Refused: the bytes are no part of the state of the stream's writers.
    #[error("an entry for range {key} is no part of the state of its stream's writers")]
    NotWriters {
        /// The range.
        key: RangeKey,
    },
    /// Refused: because of damage on the disk it is not known where the range ends.
    #[error("damage on the disk hides where range {key} ends")]
    EndUnknown {
        /// The range.
        key: RangeKey,
    },
    /// Refused: the log is being shut down.
    #[error("the log is shutting down")]
    Closed,
}

impl LogError {
    /// Whether a restart may find the append in spite of the error.
    #[must_use]
    pub fn may_have_been_done(&self) -> bool {
        matches!(self, Self::Indeterminate { .. })
    }
}

/// Why a log could not be opened. Nothing was dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another log in this one, uses the directory.
    #[error("{} is in use by another server", directory.display())]
    Locked {
        /// The data directory.
        directory: PathBuf,
    },
    /// The directory was written by a newer release.
    #[error("{} has format version {found}; this release reads up to {supported}", path.display())]
    NewerFormat {
        /// The file with the newer version.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The newest version this release knows.
        supported: u32,
    },
    /// The directory contains a contradiction that recovery cannot repair.
    #[error("{}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The configuration cannot work.
    #[error("log configuration: {0}")]
    Config(&'static str),
    /// The file system returned an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: io::Error,
    },
}

/// Why a read returned nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The offset lies in a damaged part; records before `from` and from `to` on can be read.
    #[error("range {key} is damaged from offset {from} to {to}")]
    Damaged {
        /// The range.
        key: RangeKey,
        /// The first damaged offset.
        from: Offset,
        /// The first offset after the damage.
        to: Offset,
    },
    /// The offset lies before the first record of this range in the log, because it was released or was never stored
    /// here.
    #[error("range {key} begins at offset {first} here")]
    Released {
        /// The range.
        key: RangeKey,
        /// The first offset that can be read.
        first: Offset,
    },
    /// The disk could not be read.
    #[error("reading the log: {source}")]
    Io {
        /// What failed.
        #[source]
        source: Arc<io::Error>,
    },
}
