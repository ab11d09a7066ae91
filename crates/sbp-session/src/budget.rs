//! A leaky bucket.

use std::time::Instant;

/// A budget of points, of which some are given back every second.
#[derive(Debug)]
pub(crate) struct Budget {
    capacity: f64,
    per_second: f64,
    points: f64,
    updated: Instant,
}

impl Budget {
    pub(crate) fn new(capacity: u32, per_second: u32, now: Instant) -> Self {
        let capacity = f64::from(capacity);
        Self {
            capacity,
            per_second: f64::from(per_second),
            points: capacity,
            updated: now,
        }
    }

    /// Takes `cost` points; if there are fewer, takes none and returns false.
    pub(crate) fn take(&mut self, cost: u32, now: Instant) -> bool {
        let back = now.saturating_duration_since(self.updated).as_secs_f64() * self.per_second;
        self.points = (self.points + back).min(self.capacity);
        self.updated = self.updated.max(now);
        let left = self.points - f64::from(cost);
        if left < 0.0 {
            return false;
        }
        self.points = left;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_capped_and_comes_back_with_time() {
        let start = Instant::now();
        let mut budget = Budget::new(3, 2, start);
        assert!((0..3).all(|_| budget.take(1, start)));
        assert!(!budget.take(1, start));
        assert!(!budget.take(1, start + Duration::from_millis(499)));
        assert!(budget.take(1, start + Duration::from_millis(500)));
        let later = start + Duration::from_secs(3600);
        assert!(budget.take(2, later));
        assert!(!budget.take(2, later), "no more than the capacity comes back");
        assert!(budget.take(1, later));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut budget = Budget::new(1, 1, start);
        assert!(budget.take(1, start));
        assert!(!budget.take(1, start.checked_sub(Duration::from_secs(5)).unwrap_or(start)));
        assert!(!budget.take(1, start));
    }
}
