//! Deleted streams are remembered until no segment holds anything of theirs.

use std::time::{Duration, Instant};

use sbp_types::StreamId;

use super::Worker;
use crate::placement::apply::Command;

/// How often deleted streams are looked at.
pub(super) const SWEEP: Duration = Duration::from_secs(10);

impl Worker {
    /// How much the log must have written before it holds everything of a stream that is deleted now.
    pub(super) fn note_burial(&mut self, stream: StreamId) {
        if let Some(local) = &self.local {
            let log = &local.ranges.log;
            let written = log.stats().batch_bytes.saturating_add(log.pending_bytes());
            self.buried_at.insert(stream, written);
        }
    }

    /// Forgets deleted streams of which no segment holds anything. Without a log here, nothing is held at all.
    pub(super) fn sweep(&mut self) {
        if self.last_sweep.elapsed() < SWEEP {
            return;
        }
        self.last_sweep = Instant::now();
        let gone: Vec<_> = self.state.buried().filter(|stream| self.is_gone(*stream)).collect();
        for stream in gone {
            self.stage(None, Command::ForgetStream(stream), None);
            self.buried_at.remove(&stream);
        }
        if !self.staged.operations.is_empty() {
            self.flush();
        }
    }

    fn is_gone(&self, stream: StreamId) -> bool {
        if self.owed.values().any(|streams| streams.contains(&stream)) {
            return false;
        }
        let Some(local) = &self.local else { return true };
        let log = &local.ranges.log;
        let last = self.buried_at.get(&stream).copied().unwrap_or(0);
        let all_written = log.stats().batch_bytes >= last || log.pending_bytes() == 0;
        all_written && !log.holds_stream(stream)
    }
}
