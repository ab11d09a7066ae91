//! Distributions of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets in nanoseconds, ascending: 50 µs to 10 s. What took longer is counted behind them.
const BOUNDS: [u64; 17] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];
const BUCKETS: usize = BOUNDS.len() + 1;
const NANOS_PER_SECOND: f64 = 1e9;

/// Counts durations by size, without a lock: one for all threads.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Histogram {
    /// Counts a duration that `count` things took, each of them.
    pub fn observe(&self, took: Duration, count: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|bound| *bound < nanos);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(count, Ordering::Relaxed);
            self.nanos.fetch_add(nanos.saturating_mul(count), Ordering::Relaxed);
        }
    }

    /// The counts now.
    #[must_use]
    pub fn snapshot(&self) -> Durations {
        Durations {
            buckets: std::array::from_fn(|place| self.buckets.get(place).map_or(0, |b| b.load(Ordering::Relaxed))),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

/// How long things took: counts of durations by size, since whoever counts them began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    buckets: [u64; BUCKETS],
    nanos: u64,
}

impl Durations {
    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum in seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn sum(&self) -> f64 {
        self.nanos as f64 / NANOS_PER_SECOND
    }

    /// The buckets: the upper bound of each in seconds, infinity for the last, with how many durations lie between the
    /// bound before it and this one.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / NANOS_PER_SECOND);
        bounds.chain([f64::INFINITY]).zip(self.buckets)
    }

    /// The durations that were counted since `before` was taken of the same histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut rest = *self;
        for (bucket, then) in rest.buckets.iter_mut().zip(before.buckets) {
            *bucket = bucket.saturating_sub(then);
        }
        rest.nanos = rest.nanos.saturating_sub(before.nanos);
        rest
    }

    /// The mean; zero if nothing was counted.
    #[must_use]
    pub fn mean(&self) -> Duration {
        self.nanos
            .checked_div(self.count())
            .map_or(Duration::ZERO, Duration::from_nanos)
    }

    /// The duration in seconds that this share of all did not exceed, estimated within its bucket; `None` if nothing was
    /// counted. Of those beyond the last bound only that bound is known.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::suboptimal_flops,
        reason = "a figure for people"
    )]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = self.count() as f64 * share;
        let (mut below, mut from) = (0.0, 0.0);
        for (to, count) in self.buckets() {
            let count = count as f64;
            if count > 0.0 && below + count >= wanted {
                let to = if to.is_finite() { to } else { from };
                return Some(from + (to - from) * ((wanted - below) / count).clamp(0.0, 1.0));
            }
            below += count;
            from = if to.is_finite() { to } else { from };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_their_buckets_and_none_is_lost() {
        let histogram = Histogram::default();
        let took = [1, 50_000, 50_001, 10_000_000_000, 10_000_000_001, u64::MAX / 4];
        for nanos in took {
            histogram.observe(Duration::from_nanos(nanos), 1);
        }
        histogram.observe(Duration::from_millis(3), 10);
        let counted = histogram.snapshot();
        let counts: Vec<_> = counted.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts.iter().take(2).copied().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(counts.iter().rev().take(2).copied().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(counted.count(), 16);
        assert_eq!(counted.since(&counted), Durations::default());
    }

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().quantile(0.5), None);
        histogram.observe(Duration::from_micros(200), 98);
        histogram.observe(Duration::from_millis(40), 1);
        histogram.observe(Duration::from_secs(60), 1);
        let counted = histogram.snapshot();
        let quantile = |share| counted.quantile(share).unwrap();
        assert!((0.000_1..=0.000_25).contains(&quantile(0.5)));
        assert!((0.025..=0.05).contains(&quantile(0.99)));
        assert!((quantile(1.0) - 10.0).abs() < 1e-9, "beyond the last bound");
        assert_eq!(counted.mean(), Duration::from_nanos(600_596_000));
    }
}
