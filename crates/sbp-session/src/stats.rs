//! Counters of one session.

/// What a session has counted since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStats {
    /// Complete frames received, skipped ones included.
    pub frames_in: u64,
    /// Frames handed to the write queue.
    pub frames_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes handed to the write queue.
    pub bytes_out: u64,
    /// Frames discarded at the peer's cost.
    pub discarded: u64,
    /// Requests that the session refused by itself.
    pub rejected: u64,
    /// Frames of answers to cancelled requests, dropped at no cost to the peer.
    pub late_answers: u64,
    /// PINGs of the peer that were answered.
    pub pings_answered: u64,
    /// Frames with an empty payload and a wrong checksum.
    pub odd_checksums: u64,
    /// Payload bytes copied out of the receive block.
    pub copied_bytes: u64,
}
