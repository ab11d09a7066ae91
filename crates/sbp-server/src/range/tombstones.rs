//! When a deleted stream may be forgotten: when no start could find anything of it.

use std::collections::HashMap;
use std::time::Duration;

use sbp_log::Log;
use sbp_types::StreamId;

use super::job::LogContext;

/// How often deleted streams are looked at.
pub(crate) const SWEEP: Duration = Duration::from_secs(10);

/// So many checkpoints the log keeps.
const CHECKPOINTS_KEPT: u64 = 2;

/// Deleted streams, by what is known about what the log holds of them. A start that finds records of a stream which its
/// metadata neither has nor remembers as deleted takes the metadata for an old copy and refuses: so a deletion is
/// remembered for as long as any start could find some.
#[derive(Debug, Default)]
pub(super) struct Tombstones(HashMap<StreamId, Tombstone>);

#[derive(Debug, Default)]
struct Tombstone {
    /// How many bytes the log must have written before it holds everything of the stream.
    written: u64,
    /// How many checkpoints had been written when nothing of it was held any more.
    empty_since: Option<u64>,
}

impl Tombstones {
    /// A stream is deleted now: what the log has been given of it is still to be written.
    pub(super) fn note(&mut self, stream: StreamId, log: &Log<LogContext>) {
        let written = log.stats().batch_bytes.saturating_add(log.pending_bytes());
        self.0.entry(stream).or_default().written = written;
    }

    /// Whether a deleted stream may be forgotten: the log holds nothing of it, nor does any checkpoint tell of it that a
    /// start could begin from, should the newest one be damaged. Its tombstone goes with that answer.
    pub(super) fn may_forget(&mut self, stream: StreamId, log: &Log<LogContext>) -> bool {
        let stats = log.stats();
        let tombstone = self.0.entry(stream).or_default();
        let all_written = stats.batch_bytes >= tombstone.written || log.pending_bytes() == 0;
        if !all_written || log.holds_stream(stream) {
            tombstone.empty_since = None;
            return false;
        }
        // The checkpoints that were kept when it was found empty may tell of it.
        let empty_since = *tombstone.empty_since.get_or_insert(stats.checkpoints);
        let may_forget = stats.checkpoints >= empty_since.saturating_add(CHECKPOINTS_KEPT);
        if may_forget {
            self.0.remove(&stream);
        }
        may_forget
    }
}
