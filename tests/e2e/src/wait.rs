//! Waiting, never for ever.

use std::time::{Duration, Instant};

/// Longer than anything takes, shorter than anybody waits.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The same for scenes of many steps, and for processes that start and end.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits for a future, at most for [`PATIENCE`].
pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    bounded_by(PATIENCE, future).await
}

/// Waits for a future, at most so long.
pub async fn bounded_by<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, future)
        .await
        .expect("the test did not end in time")
}

/// Looks until there is something, at most for [`PATIENCE`]. `what` is named when that is over.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_by(PATIENCE, what, look)
}

/// The same, at most for so long.
pub fn until_by<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}
