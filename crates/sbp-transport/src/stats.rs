//! Counters of one connection's driver.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a driver did, readable from any thread while it runs: see [`crate::Mailbox::stats`].
#[derive(Debug, Default)]
pub struct TransportStats {
    reads: AtomicU64,
    writes: AtomicU64,
    wakeups: AtomicU64,
}

impl TransportStats {
    /// Reads from the socket that brought bytes, its end, or an error.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Writes to the socket that took bytes or failed.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Times that the runtime polled the driver.
    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_wakeup(&self) {
        self.wakeups.fetch_add(1, Ordering::Relaxed);
    }
}
