//! A failure the server lives on with, read-only.

/// Why the server no longer accepts appends or metadata changes. Reads of synced data go on; only a restart, which
/// re-reads the disk, brings the rest back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} failed: {reason}; synced data can still be read; check the disk and restart the server")]
pub struct ServerFailure {
    /// The part that failed: `the log` or `the metadata store`.
    pub what: &'static str,
    /// The cause, in words.
    pub reason: String,
}
