//! The clocks of a client.

use std::time::{Duration, Instant, SystemTime};

use sbp_types::TimestampMs;

/// The monotonic clock, tokio's: a test that stops it stops deadlines too.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock, for timestamps of records whose writer gives none.
#[must_use]
pub fn wall_clock() -> TimestampMs {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The time that is left, which is never none: a call without time says itself that it is over.
pub(crate) fn left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(now()).max(Duration::from_millis(1)))
}
