//! Limits how often a warning is logged that peers can cause at will.

use std::time::{Duration, Instant};

use sbp_locks::Mutex;

/// The shortest time between two warnings of one kind.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one warning per second through, and counts those left out.
#[derive(Debug, Default)]
pub struct LogRateLimiter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl LogRateLimiter {
    /// If a warning is due now: how many were left out since the last one.
    pub fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < INTERVAL)
        {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_in_a_second_and_it_tells_of_the_others() {
        let (log_rate_limiter, start) = (LogRateLimiter::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(log_rate_limiter.due(start), Some(0));
        assert_eq!((1..1_000).filter_map(|ms| log_rate_limiter.due(after(ms))).count(), 0);
        assert_eq!(log_rate_limiter.due(after(1_000)), Some(999));
        assert_eq!(log_rate_limiter.due(after(1_999)), None);
        assert_eq!(log_rate_limiter.due(after(10_000)), Some(1));
    }
}
