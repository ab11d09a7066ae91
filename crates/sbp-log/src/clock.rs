//! The log's source of time. The correctness of the log never depends on it.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sbp_types::TimestampMs;

/// A source of time that tests can replace.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day, for the stamps in file headers.
    fn now(&self) -> TimestampMs;

    /// Time since some fixed moment, which never goes back: for the durations in [`LogStats`](crate::LogStats).
    fn elapsed(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose [`elapsed`](Clock::elapsed) counts from now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> TimestampMs {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}
