//! How often a client may PING: a server puts up with bursts and with a steady pace, and discards what goes beyond.

use std::time::{Duration, Instant};

use sbp_locks::Mutex;

/// PINGs in a burst: half of what servers put up with.
const BURST: u32 = 100;
/// Between two PINGs of a steady pace. Servers put up with a hundred a second.
const INTERVAL: Duration = Duration::from_millis(20);

/// Gives each PING its turn.
#[derive(Debug, Default)]
pub(crate) struct PingPace {
    /// The turn of the next PING at the steady pace; a burst runs ahead of it.
    next: Mutex<Option<Instant>>,
}

impl PingPace {
    /// Takes a turn; how long it is away.
    pub(crate) fn turn(&self, now: Instant) -> Duration {
        let mut next = self.next.lock();
        let earliest = now.checked_sub(INTERVAL * (BURST - 1)).unwrap_or(now);
        let turn = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(turn + INTERVAL);
        turn.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{BURST, INTERVAL, PingPace};

    #[test]
    fn a_burst_goes_at_once_and_more_at_the_steady_pace() {
        let pace = PingPace::default();
        let start = Instant::now() + Duration::from_secs(3_600);
        for _ in 0..BURST {
            assert_eq!(pace.turn(start), Duration::ZERO);
        }
        assert_eq!(pace.turn(start), INTERVAL);
        assert_eq!(pace.turn(start), INTERVAL * 2);
        let later = start + INTERVAL * (BURST + 2);
        for _ in 0..BURST {
            assert_eq!(
                pace.turn(later),
                Duration::ZERO,
                "a pause lets the burst grow again, and no further"
            );
        }
        assert_eq!(pace.turn(later), INTERVAL);
    }
}
