//! Why what says who is known cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use super::entry::BadLine;

/// Why the file of names cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The file cannot be read or written.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// The step that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Others than its owner may change the file.
    #[error(
        "{} may be changed by others than its owner, who could let anybody in: say chmod 600 {}",
        .path.display(),
        .path.display()
    )]
    WritableByOthers {
        /// The file.
        path: PathBuf,
    },
    /// A line cannot be used.
    #[error("{}, {line}", .path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// Which, and why.
        line: BadLine,
    },
    /// The keys of OAuth tokens cannot be used.
    #[error("{source_of_keys} holds no keys for OAuth tokens that can be used: {reason}")]
    BadKeys {
        /// The file or address.
        source_of_keys: String,
        /// Why not.
        reason: String,
    },
    /// Another program is changing the file.
    #[error("{} exists: another program is changing {}; delete it if none is", .lock.display(), .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// What the other program writes.
        lock: PathBuf,
    },
}

impl AccessError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what,
            path: path.to_owned(),
            source,
        }
    }
}
