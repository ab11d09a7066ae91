//! Which records are old enough, or too many, to be kept.

use sbp_types::{Offset, StreamId, TimestampMs};

use super::server::RangeServer;

impl RangeServer {
    /// The trims that retention asks for. May read from the disk.
    pub(crate) fn retention_due(&self, now: TimestampMs) -> Vec<(StreamId, Offset)> {
        let _ = now;
        Vec::new()
    }
}
