//! When a connection is kept alive, and when it counts as dead.

use std::time::{Duration, Instant};

use crate::SessionConfig;

/// An interval below this would be nothing but timers.
const SHORTEST: Duration = Duration::from_millis(1);
/// However short the intervals, a machine that hiccups for less than this is not dead.
const LEAST_SILENCE: Duration = Duration::from_secs(2);
/// "Never" has to be a time that can be added to another.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a look at the clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due {
    /// An interval has passed: a client sends a HEARTBEAT, an idle connection gives memory back.
    pub(crate) interval: bool,
    /// Nothing came for as long as is allowed, and no call excuses it.
    pub(crate) silent: bool,
    /// Written bytes did not move for so long, which is as long as is allowed.
    pub(crate) stalled: Option<Duration>,
}

/// How far writing is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing {
    /// All bytes ever written.
    pub(crate) written: u64,
    /// Whether bytes wait to be written.
    pub(crate) pending: bool,
    /// Whether as many wait as may.
    pub(crate) full: bool,
}

/// The timers that frames do not touch: a frame only leaves a mark, and a timer that fires looks for it.
#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    silence: Duration,
    stall: Duration,
    full_stall: Duration,
    interval_due: Instant,
    last_received: Instant,
    silence_due: Instant,
    /// While bytes wait to be written: when to look again, and how far writing was at the last look.
    stall_due: Option<(Instant, u64)>,
    /// The same while as many bytes wait as may.
    full_due: Option<(Instant, u64)>,
}

impl Keepalive {
    pub(crate) fn new(config: &SessionConfig, now: Instant) -> Self {
        let interval = config.heartbeat_interval.clamp(SHORTEST, LONGEST);
        let silence = interval
            .saturating_mul(config.silent_intervals)
            .clamp(LEAST_SILENCE, LONGEST);
        Self {
            interval,
            silence,
            stall: config.stall_timeout.min(LONGEST),
            full_stall: config.full_stall_timeout.min(LONGEST),
            interval_due: now + interval,
            last_received: now,
            silence_due: now + silence,
            stall_due: None,
            full_due: None,
        }
    }

    /// How long nothing may come.
    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// A complete frame came: a sign of life, whatever it is.
    pub(crate) fn note_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Bytes were queued behind `written` written ones.
    pub(crate) fn note_queued(&mut self, written: u64, now: Instant) {
        if self.stall_due.is_none() {
            self.stall_due = Some((now + self.stall, written));
        }
    }

    /// As many bytes wait behind `written` written ones as may.
    pub(crate) fn note_full(&mut self, written: u64, now: Instant) {
        if self.full_due.is_none() {
            self.full_due = Some((now + self.full_stall, written));
        }
    }

    /// The next moment at which [`Keepalive::check`] can find something.
    pub(crate) fn next(&self) -> Instant {
        let first = self.interval_due.min(self.silence_due);
        let stalls = [self.stall_due, self.full_due].into_iter().flatten();
        stalls.fold(first, |first, (at, _)| first.min(at))
    }

    /// Looks what is due. `busy` says whether calls are in flight.
    pub(crate) fn check(&mut self, now: Instant, busy: bool, writing: Writing) -> Due {
        let mut due = Due::default();
        if self.interval_due <= now {
            due.interval = true;
            self.interval_due += self.interval;
            if self.interval_due <= now {
                // Missed ones are not made up for.
                self.interval_due = now + self.interval;
            }
        }
        if self.silence_due <= now {
            let silent_since = self.last_received + self.silence;
            due.silent = silent_since <= now && !busy;
            self.silence_due = if silent_since > now {
                silent_since
            } else {
                now + self.interval
            };
        }
        let Writing { written, pending, full } = writing;
        for (watched, goes_on, patience) in [
            (&mut self.stall_due, pending, self.stall),
            (&mut self.full_due, full, self.full_stall),
        ] {
            if let Some((at, mark)) = *watched
                && at <= now
            {
                if goes_on && mark == written {
                    due.stalled = Some(patience);
                }
                *watched = goes_on.then_some((now + patience, written));
            }
        }
        due
    }
}
