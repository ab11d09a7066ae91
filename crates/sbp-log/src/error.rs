//! One small error per surface.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sbp_types::{Offset, RangeKey};

/// Why appending did not, or may not have, happened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Refused: an earlier write or sync failed, and nothing is accepted any more. What was synced stays readable.
    #[error("the log has failed and takes no appends: {cause}")]
    Failed {
        /// What failed.
        cause: Arc<io::Error>,
    },
    /// Given to appends that were waiting when a write or sync failed: they may or may not be found after a restart.
    #[error("writing the log failed while this append was waiting: {cause}")]
    Indeterminate {
        /// What failed.
        cause: Arc<io::Error>,
    },
    /// Refused before anything was written: there is no room for another segment. Works again when there is.
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
    /// Refused: offsets within a range must be without gap and overlap, and counts positive.
    #[error("range {key} continues at offset {expected}, not at {offset}")]
    OutOfOrder {
        /// The range.
        key: RangeKey,
        /// Its next offset.
        expected: Offset,
        /// The offset that was given.
        offset: Offset,
    },
    /// Refused: damage on the disk hides where the range ends.
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
    /// Whether the append may all the same be found after a restart.
    #[must_use]
    pub fn may_have_been_done(&self) -> bool {
        matches!(self, Self::Indeterminate { .. })
    }
}

/// Why a log could not be opened. Nothing was dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another log in this one, has the directory.
    #[error("{} is in use by another server", directory.display())]
    Locked {
        /// The data directory.
        directory: PathBuf,
    },
    /// A newer release wrote this directory.
    #[error("{} has format version {found}; this release reads up to {supported}", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The newest version this release knows.
        supported: u32,
    },
    /// The directory contradicts itself in a way that reading on could not mend.
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
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

/// Why a read gave nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The offset lies where the disk is damaged; what lies before `from` and from `to` on can be read.
    #[error("range {key} is damaged from offset {from} to {to}")]
    Damaged {
        /// The range.
        key: RangeKey,
        /// The first damaged offset.
        from: Offset,
        /// The first offset behind the damage.
        to: Offset,
    },
    /// The offset lies before the first record the log holds of this range, because it was released or never was here.
    #[error("range {key} begins at offset {first} here")]
    Released {
        /// The range.
        key: RangeKey,
        /// The first offset there is.
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
