//! Why a compaction wrote no file.

use std::io;

use crate::ReadError;

/// Why no compacted file was written.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// A record of this source cannot be read.
    Damaged {
        source: u64,
    },
    Io(io::Error),
}

impl From<io::Error> for NotWritten {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReadError> for NotWritten {
    fn from(error: ReadError) -> Self {
        Self::Io(io::Error::other(error))
    }
}
