//! Decides when a deleted stream may be forgotten: when no restart could find records of it.

use std::collections::HashMap;
use std::time::Duration;

use sbp_log::Log;
use sbp_types::StreamId;

use super::job::LogContext;

/// How often deleted streams are checked.
pub(crate) const SWEEP: Duration = Duration::from_secs(10);

/// The number of checkpoints that the log keeps.
const CHECKPOINTS_KEPT: u64 = 2;

/// Deleted streams, with what is known about their records in the log.
///
/// A server that starts and finds records of a stream which its metadata neither has nor remembers as deleted takes the
/// metadata for an old copy and refuses to start. So a deletion is remembered as long as any restart could find records
/// of the stream.
#[derive(Debug, Default)]
pub(super) struct Tombstones(HashMap<StreamId, Tombstone>);

#[derive(Debug, Default)]
struct Tombstone {
    /// The count of bytes written by the log from which on everything of the stream is written.
    written: u64,
    /// The number of checkpoints written when the log was first found to hold nothing of the stream.
    empty_since: Option<u64>,
}

impl Tombstones {
    /// Notes that a stream was deleted. Appends of it may still wait in the log's queue.
    pub(super) fn note(&mut self, stream: StreamId, log: &Log<LogContext>) {
        let written = log.stats().batch_bytes.saturating_add(log.pending_bytes());
        self.0.entry(stream).or_default().written = written;
    }

    /// Whether a deleted stream may be forgotten: neither the log nor any kept checkpoint has anything of it (a restart
    /// uses the older checkpoint if the newest one is damaged). If so, its tombstone is removed.
    pub(super) fn may_forget(&mut self, stream: StreamId, log: &Log<LogContext>) -> bool {
        let stats = log.stats();
        let tombstone = self.0.entry(stream).or_default();
        let all_written = stats.batch_bytes >= tombstone.written || log.pending_bytes() == 0;
        if !all_written || log.holds_stream(stream) {
            tombstone.empty_since = None;
            return false;
        }
        // Checkpoints that were written before may still name the stream, so both kept ones must be newer.
        let empty_since = *tombstone.empty_since.get_or_insert(stats.checkpoints);
        let may_forget = stats.checkpoints >= empty_since.saturating_add(CHECKPOINTS_KEPT);
        if may_forget {
            self.0.remove(&stream);
        }
        may_forget
    }
}
