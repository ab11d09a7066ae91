//! How much of sealed ranges is sent to other servers, so that copies leave room for appends.

use std::num::NonZeroU64;
use std::time::Duration;

/// What may be sent ahead of its time: links look at the pace a few times a second only.
const AHEAD: Duration = Duration::from_millis(100);

/// Bounds the bytes that are sent each second, over all servers that get copies. The time is an argument, counted from any moment.
#[derive(Debug, Default)]
pub(in crate::range) struct Pace {
    /// `None`: there is no bound.
    bytes_per_second: Option<NonZeroU64>,
    /// When everything that was sent would have been sent at that rate.
    paid_at: Duration,
}

impl Pace {
    /// So many bytes a second; 0: no bound.
    pub(in crate::range) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: NonZeroU64::new(bytes_per_second),
            paid_at: Duration::ZERO,
        }
    }

    /// When more may be sent; `None`: now.
    pub(in crate::range) fn waits_until(&self, now: Duration) -> Option<Duration> {
        let at = self.paid_at.saturating_sub(AHEAD);
        (self.bytes_per_second.is_some() && now < at).then_some(at)
    }

    /// So many bytes are sent.
    pub(in crate::range) fn sent(&mut self, bytes: usize, now: Duration) {
        let Some(rate) = self.bytes_per_second else { return };
        let nanos = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000) / u128::from(rate.get());
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.paid_at = self.paid_at.max(now).saturating_add(takes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Sends frames of this size whenever that is allowed. Returns how many bytes were sent until then.
    fn sent_until(pace: &mut Pace, mut now: Duration, end: Duration, frame: usize) -> usize {
        let mut sent = 0;
        while now < end {
            match pace.waits_until(now) {
                Some(at) => now = at,
                None => {
                    pace.sent(frame, now);
                    sent += frame;
                }
            }
        }
        sent
    }

    #[test]
    fn in_ten_seconds_ten_times_the_bound_is_sent_and_a_frame_more_at_most() {
        let seconds = Duration::from_secs;
        for frame in [1, 4] {
            let mut pace = Pace::new(64 << 20);
            let sent = sent_until(&mut pace, seconds(0), seconds(10), frame * MIB);
            let ahead = 7 + frame;
            assert!((640 * MIB..=(640 + ahead) * MIB).contains(&sent), "{frame}: {sent}");
            // A pause is not made up for.
            let sent = sent_until(&mut pace, seconds(100), seconds(101), frame * MIB);
            assert!((64 * MIB..=(64 + ahead) * MIB).contains(&sent), "{frame}: {sent}");
        }
    }

    #[test]
    fn a_frame_larger_than_a_second_takes_is_sent_and_paid_for_afterwards() {
        let mut pace = Pace::new(1 << 20);
        assert_eq!(pace.waits_until(Duration::ZERO), None);
        pace.sent(4 * MIB, Duration::ZERO);
        assert_eq!(pace.waits_until(Duration::ZERO), Some(Duration::from_millis(3_900)));
        assert_eq!(pace.waits_until(Duration::from_millis(3_900)), None);
    }

    #[test]
    fn without_a_bound_nothing_waits() {
        let mut pace = Pace::new(0);
        pace.sent(usize::MAX, Duration::ZERO);
        assert_eq!(pace.waits_until(Duration::ZERO), None);
    }
}
