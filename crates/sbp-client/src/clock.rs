//! The clocks of a client, and waiting.

use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use sbp_types::TimestampMs;
use tokio::sync::Notify;

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

/// The earlier of two moments, where there are any.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Waits until that moment; without one, for ever.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits until `look` finds something. It looks at once, and again whenever `changed` is notified.
pub(crate) async fn wait_until<T>(changed: &Notify, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut notified = pin!(changed.notified());
        // From here on no notification is missed.
        notified.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        notified.await;
    }
}
