//! When a deleted stream may be forgotten: when no start could find anything of it.

use std::collections::HashMap;
use std::time::Duration;

use sbp_types::StreamId;

use super::server::RangeServer;

/// How often deleted streams are looked at.
pub(crate) const SWEEP: Duration = Duration::from_secs(10);

/// So many checkpoints the log keeps.
const CHECKPOINTS_KEPT: u64 = 2;

/// Deleted streams, by what is known about what the log holds of them. A start that finds records of a stream which its
/// metadata neither has nor remembers as deleted takes the metadata for an old copy and refuses: so a deletion is
/// remembered for as long as any start could find some.
#[derive(Debug, Default)]
pub(crate) struct Graves(HashMap<StreamId, Grave>);

#[derive(Debug, Default)]
struct Grave {
    /// How many bytes the log must have written before it holds everything of the stream.
    written: u64,
    /// How many checkpoints had been written when nothing of it was held any more.
    empty_since: Option<u64>,
}

impl Graves {
    /// A stream is deleted now: what the log has been given of it is still to be written.
    pub(crate) fn note(&mut self, stream: StreamId, ranges: &RangeServer) {
        let log = &ranges.log;
        let written = log.stats().batch_bytes.saturating_add(log.pending_bytes());
        self.0.entry(stream).or_default().written = written;
    }

    /// Whether a deleted stream may be forgotten: the log holds nothing of it, nor does any checkpoint tell of it that a
    /// start could begin from, should the newest one be damaged.
    pub(crate) fn is_gone(&mut self, stream: StreamId, ranges: &RangeServer) -> bool {
        let log = &ranges.log;
        let stats = log.stats();
        let grave = self.0.entry(stream).or_default();
        let all_written = stats.batch_bytes >= grave.written || log.pending_bytes() == 0;
        if !all_written || log.holds_stream(stream) {
            grave.empty_since = None;
            return false;
        }
        // The checkpoints that were kept when it was found empty may tell of it.
        let empty_since = *grave.empty_since.get_or_insert(stats.checkpoints);
        stats.checkpoints >= empty_since.saturating_add(CHECKPOINTS_KEPT)
    }

    /// The stream is forgotten.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.0.remove(&stream);
    }
}
