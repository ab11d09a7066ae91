//! Counters of one session.

/// What a session has seen and done since it began. Plain numbers; whoever shares them copies them out.
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
    /// Requests refused before they reached anybody.
    pub rejected: u64,
    /// Answers to cancelled requests, dropped at nobody's cost.
    pub late_answers: u64,
    /// PINGs of the peer that were answered.
    pub pings_answered: u64,
    /// Frames without a payload that had a checksum all the same.
    pub odd_checksums: u64,
    /// Payload bytes copied out of the receive block.
    pub copied_bytes: u64,
}
