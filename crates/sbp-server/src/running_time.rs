//! The time in which this process ran.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many interruptions are remembered.
const REMEMBERED: usize = 16;

/// A clock that stands still while its process does: stopped by a signal, or on a machine that was suspended. It has to be looked
/// at regularly. What passes between two looks counts at most as twice the time that should: the rest is time in which
/// nobody could look.
#[derive(Debug)]
pub(crate) struct RunningTime {
    ran: Duration,
    looked_at: Instant,
    /// The most that counts between two looks.
    most: Duration,
    /// The last times without a look that were longer than that: from when to when.
    interruptions: VecDeque<(Instant, Instant)>,
}

impl RunningTime {
    /// A clock that is looked at after each `pause`.
    pub(crate) fn new(now: Instant, pause: Duration) -> Self {
        Self {
            ran: Duration::ZERO,
            looked_at: now,
            most: 2 * pause,
            interruptions: VecDeque::new(),
        }
    }

    /// The time since it was made.
    pub(crate) fn at(&self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.looked_at);
        self.ran.saturating_add(since.min(self.most))
    }

    /// How much of the time from `began` to `ended`, which is not long ago, the process ran. Of an interruption as much counts as
    /// passes between two looks: nobody knows when in it the process ran.
    pub(crate) fn within(&self, began: Instant, ended: Instant) -> Duration {
        let took = ended.saturating_duration_since(began);
        let interruptions = self.interruptions.iter().copied();
        let stopped = interruptions.chain([(self.looked_at, ended)]).map(|(from, to)| {
            let shared = to.min(ended).saturating_duration_since(from.max(began));
            if shared > self.most {
                shared.saturating_sub(self.most / 2)
            } else {
                Duration::ZERO
            }
        });
        took.saturating_sub(stopped.sum())
    }

    /// The regular look.
    pub(crate) fn go_on(&mut self, now: Instant) {
        self.ran = self.at(now);
        if now.saturating_duration_since(self.looked_at) > self.most {
            if self.interruptions.len() == REMEMBERED {
                self.interruptions.pop_front();
            }
            self.interruptions.push_back((self.looked_at, now));
        }
        self.looked_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);
    const HOUR: Duration = Duration::from_secs(3_600);

    /// Looks as it should until that much time has passed.
    fn run(time: &mut RunningTime, now: &mut Instant, long: Duration) {
        let end = *now + long;
        while *now < end {
            *now += PAUSE;
            time.go_on(*now);
        }
    }

    #[test]
    fn what_takes_long_while_the_process_runs_counts_whole() {
        let mut now = Instant::now();
        let mut time = RunningTime::new(now, PAUSE);
        run(&mut time, &mut now, PAUSE * 3);
        let began = now;
        run(&mut time, &mut now, PAUSE * 70);
        assert_eq!(time.within(began, now), PAUSE * 70);
        assert_eq!(time.within(began, now + PAUSE), PAUSE * 71, "with no look at its end");
    }

    #[test]
    fn a_stop_in_the_middle_counts_as_one_pause() {
        let mut now = Instant::now();
        let mut time = RunningTime::new(now, PAUSE);
        run(&mut time, &mut now, PAUSE * 3);
        let began = now;
        now += HOUR;
        assert_eq!(time.within(began, now), PAUSE, "before anybody has looked");
        time.go_on(now);
        assert_eq!(time.within(began, now), PAUSE);
        let second = now;
        run(&mut time, &mut now, PAUSE * 5);
        assert_eq!(time.within(began, now), PAUSE * 6);
        assert_eq!(time.within(second, now), PAUSE * 5, "what began behind it");
        for _ in 0..3 * REMEMBERED {
            now += HOUR;
            time.go_on(now);
        }
        assert_eq!(time.interruptions.len(), REMEMBERED);
    }

    #[test]
    fn what_was_quick_stays_so_where_nobody_had_looked_for_long() {
        let start = Instant::now();
        let time = RunningTime::new(start, PAUSE);
        let began = start + HOUR;
        assert_eq!(time.within(began, began + PAUSE / 20), PAUSE / 20);
    }
}
