//! Deleted streams are remembered until no segment holds anything of theirs.

use std::time::{Duration, Instant};

use sbp_types::StreamId;

use super::Worker;
use crate::placement::apply::Command;

/// How often deleted streams are looked at.
pub(super) const SWEEP: Duration = Duration::from_secs(10);

/// So many checkpoints the log keeps.
const CHECKPOINTS_KEPT: u64 = 2;

/// What is known about a deleted stream.
#[derive(Debug, Default)]
pub(super) struct Grave {
    /// How many bytes the log must have written before it holds everything of the stream.
    written: u64,
    /// How many checkpoints had been written when nothing of it was held any more.
    empty_since: Option<u64>,
}

impl Worker {
    /// How much the log must have written before it holds everything of a stream that is deleted now.
    pub(super) fn note_burial(&mut self, stream: StreamId) {
        if let Some(local) = &self.local {
            let log = &local.ranges.log;
            let written = log.stats().batch_bytes.saturating_add(log.pending_bytes());
            self.graves.entry(stream).or_default().written = written;
        }
    }

    /// Whether it is time to look again.
    pub(super) fn sweep_is_due(&self) -> bool {
        self.last_sweep.elapsed() >= SWEEP
    }

    /// Forgets deleted streams of which nothing is held. Without a log here, nothing is held at all.
    pub(super) fn sweep(&mut self) {
        self.last_sweep = Instant::now();
        let buried: Vec<_> = self.state.buried().collect();
        for stream in buried {
            if self.is_gone(stream) {
                self.stage(None, Command::ForgetStream(stream), None);
                self.graves.remove(&stream);
            }
        }
    }

    fn is_gone(&mut self, stream: StreamId) -> bool {
        if self.owed.values().any(|streams| streams.contains(&stream)) {
            return false;
        }
        let Some(local) = &self.local else { return true };
        let log = &local.ranges.log;
        let stats = log.stats();
        let grave = self.graves.entry(stream).or_default();
        let all_written = stats.batch_bytes >= grave.written || log.pending_bytes() == 0;
        if !all_written || log.holds_stream(stream) {
            grave.empty_since = None;
            return false;
        }
        // The checkpoints that were kept when it was found empty may tell of it, should a start need one of them.
        let empty_since = *grave.empty_since.get_or_insert(stats.checkpoints);
        stats.checkpoints >= empty_since.saturating_add(CHECKPOINTS_KEPT)
    }
}
