//! The time in which this process ran.

use std::time::{Duration, Instant};

/// A clock that stands still while its process does: stopped by a signal, or on a machine that was suspended. It has to be looked
/// at regularly. What passes between two looks counts at most as twice the time that should: the rest is time in which
/// nobody could look.
#[derive(Debug)]
pub(crate) struct RunningTime {
    ran: Duration,
    looked_at: Instant,
    /// The most that counts between two looks.
    most: Duration,
}

impl RunningTime {
    /// A clock that is looked at after each `pause`.
    pub(crate) fn new(now: Instant, pause: Duration) -> Self {
        Self {
            ran: Duration::ZERO,
            looked_at: now,
            most: 2 * pause,
        }
    }

    /// The time since it was made.
    pub(crate) fn at(&self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.looked_at);
        self.ran.saturating_add(since.min(self.most))
    }

    /// The regular look.
    pub(crate) fn go_on(&mut self, now: Instant) {
        self.ran = self.at(now);
        self.looked_at = now;
    }
}
