//! Figures about a running server.

/// A snapshot of the server's counters, all since its start unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Streams that exist now.
    pub streams: u64,
    /// APPEND entries stored.
    pub appends: u64,
    /// Records in them.
    pub records_appended: u64,
    /// APPEND entries refused.
    pub appends_refused: u64,
    /// FETCH entries answered with data.
    pub fetches: u64,
    /// Bytes of batches returned.
    pub bytes_fetched: u64,
    /// Groups the log has ended, each with one write and, with `durability="fsync"`, one sync.
    pub groups: u64,
    /// The word for the durability in force: `fsync` or `none`.
    pub durability: &'static str,
}
