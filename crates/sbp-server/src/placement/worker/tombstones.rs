//! Removes the tombstones of deleted streams once no restart could find their records, and has servers remove copies that are
//! done without.

use std::time::Instant;

use super::Worker;
use crate::placement::apply::Command;
use crate::range::SWEEP;

impl Worker {
    /// Whether the next regular check is due.
    pub(super) fn sweep_is_due(&self) -> bool {
        self.last_sweep.elapsed() >= SWEEP
    }

    /// Forgets the deleted streams of which no range server has anything any more. The one in this process says so only now.
    pub(super) fn sweep(&mut self) {
        self.last_sweep = Instant::now();
        let tombstones: Vec<_> = self.state.tombstones().collect();
        for stream in tombstones {
            let is_owed = self.owed.values().any(|streams| streams.contains(&stream));
            let is_elsewhere = self.state.buried_on(stream).any(|server| self.here != Some(server));
            if !is_owed && !is_elsewhere && self.range_servers.may_forget(stream) {
                self.stage(None, Command::DropTombstone(stream), None);
            }
        }
        self.let_go_again();
    }
}
