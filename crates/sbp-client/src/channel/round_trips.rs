//! How long answers take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps within one doubling: a figure is at most one part in sixteen above the truth.
const STEPS: usize = 16;
const STEP_BITS: usize = 4;
/// Doublings above the first sixteen microseconds; the last one ends at more than an hour.
const DOUBLINGS: usize = 28;
const BUCKETS: usize = STEPS * (DOUBLINGS + 1);

/// Round trips of one client, counted by length: filled by connections and read by anybody, without a lock.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    counts: Box<[AtomicU64]>,
    longest_us: AtomicU64,
}

/// Round trips of a client from a request's send to its last answer, FETCHes and HEARTBEATs left out. A quantile is at
/// most a sixteenth above the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTripStats {
    /// How many were measured.
    pub count: u64,
    /// Half of them were no longer.
    pub p50: Duration,
    /// Nine in ten were no longer.
    pub p90: Duration,
    /// 99 in a hundred were no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for RoundTrips {
    fn default() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            longest_us: AtomicU64::new(0),
        }
    }
}

impl RoundTrips {
    pub(crate) fn record(&self, taken: Duration) {
        let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get(bucket(micros)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if micros > self.longest_us.load(Ordering::Relaxed) {
            self.longest_us.fetch_max(micros, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> RoundTripStats {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let longest = self.longest_us.load(Ordering::Relaxed);
        let quantile = |percent: u64| {
            let wanted = (total * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            let micros = found.map_or(0, |index| upper_end(index).min(longest));
            Duration::from_micros(micros)
        };
        RoundTripStats {
            count: total,
            p50: quantile(50),
            p90: quantile(90),
            p99: quantile(99),
            max: Duration::from_micros(longest),
        }
    }
}

/// Where a length is counted.
fn bucket(micros: u64) -> usize {
    let doubling = (64 - STEP_BITS).saturating_sub(usize::try_from((micros | 1).leading_zeros()).unwrap_or(64));
    if doubling == 0 {
        return usize::try_from(micros).unwrap_or(0);
    }
    let step = usize::try_from(micros >> (doubling - 1)).unwrap_or(0) - STEPS;
    (doubling * STEPS + step).min(BUCKETS - 1)
}

/// The longest length that is counted there.
fn upper_end(index: usize) -> u64 {
    let (doubling, step) = (index / STEPS, u64::try_from(index % STEPS).unwrap_or(0));
    if doubling == 0 {
        return step;
    }
    let steps = u64::try_from(STEPS).unwrap_or(0);
    ((steps + step + 1) << (doubling - 1)) - 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BUCKETS, RoundTrips, bucket, upper_end};

    #[test]
    fn every_length_lies_in_its_bucket() {
        for micros in (0..100_000).chain([1 << 31, (1 << 31) + 7]) {
            let index = bucket(micros);
            assert!(micros <= upper_end(index), "{micros}");
            assert!(index == 0 || micros > upper_end(index - 1), "{micros}");
            assert!(upper_end(index) <= micros + micros / 16, "{micros}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_near_the_truth() {
        let trips = RoundTrips::default();
        assert_eq!(trips.snapshot(), super::RoundTripStats::default());
        for micros in 1..=1_000 {
            trips.record(Duration::from_micros(micros));
        }
        let found = trips.snapshot();
        let near = |duration: Duration, micros: u64| {
            let found = u64::try_from(duration.as_micros()).unwrap_or(0);
            found >= micros && found <= micros + micros / 16
        };
        assert!(
            near(found.p50, 500) && near(found.p90, 900) && near(found.p99, 990),
            "{found:?}"
        );
        assert_eq!((found.count, found.max), (1_000, Duration::from_millis(1)));
    }
}
