//! Deleted streams are remembered until no start could find anything of theirs.

use std::time::Instant;

use sbp_types::StreamId;

use super::Worker;
use crate::placement::apply::Command;
use crate::range::SWEEP;

impl Worker {
    /// Notes what the log here has yet to write of a stream that is deleted now.
    pub(super) fn note_burial(&mut self, stream: StreamId) {
        if let Some(local) = &self.local {
            self.graves.note(stream, &local.ranges);
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
                self.graves.forget(stream);
            }
        }
    }

    fn is_gone(&mut self, stream: StreamId) -> bool {
        let is_owed = self.owed.values().any(|streams| streams.contains(&stream));
        let here = self.local.as_ref();
        !is_owed && here.is_none_or(|local| self.graves.is_gone(stream, &local.ranges))
    }
}
