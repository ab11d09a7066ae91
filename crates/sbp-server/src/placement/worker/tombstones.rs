//! Removes the tombstones of deleted streams once no restart could find their records.

use std::time::Instant;

use super::Worker;
use crate::placement::apply::Command;
use crate::range::SWEEP;

impl Worker {
    /// Whether the next regular check is due.
    pub(super) fn sweep_is_due(&self) -> bool {
        self.last_sweep.elapsed() >= SWEEP
    }

    /// Forgets the deleted streams of which every range server was told and of which no records are left.
    pub(super) fn sweep(&mut self) {
        self.last_sweep = Instant::now();
        let tombstones: Vec<_> = self.state.tombstones().collect();
        for stream in tombstones {
            let is_owed = self.owed.values().any(|streams| streams.contains(&stream));
            if !is_owed && self.range_servers.may_forget(stream) {
                self.stage(None, Command::DropTombstone(stream), None);
            }
        }
    }
}
