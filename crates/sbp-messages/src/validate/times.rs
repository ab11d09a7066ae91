//! Times that a peer asks for. They are clamped to harmless values, never refused.

use std::time::Duration;

use crate::FetchRequest;

/// The longest that a FETCH waits.
const MAX_WAIT_MS: u64 = 60_000;
/// The longest throttle time that a client obeys.
const MAX_THROTTLE_MS: u64 = 30_000;

/// A request's `timeout_ms`; `None` for the server's default.
#[must_use]
pub fn requested_timeout(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms)
        .ok()
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis)
}

/// How long to wait before the next request of its kind, by an answer's `throttle_time_ms`; at most 30 seconds.
#[must_use]
pub fn throttle_time(throttle_time_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(throttle_time_ms).unwrap_or(0).min(MAX_THROTTLE_MS))
}

impl FetchRequest {
    /// How long entries may wait: `max_wait_ms`, clamped to 0 ..= 60 seconds.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.max_wait_ms).unwrap_or(0).min(MAX_WAIT_MS))
    }
}
