//! A clock that tests set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sbp_log::Clock;
use sbp_types::TimestampMs;

/// Time as a test sets it. Starts at zero.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> TimestampMs {
        TimestampMs(i64::try_from(self.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
