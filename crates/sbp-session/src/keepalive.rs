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

/// The timers that frames do not touch: a frame only leaves a mark, and a timer that fires looks for it.
#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    silence: Duration,
    stall: Duration,
    short_stall: Duration,
    interval_due: Instant,
    last_received: Instant,
    silence_due: Instant,
    /// While bytes wait to be written: since when none of them moves.
    still_since: Option<Instant>,
    /// While memory is short: since when.
    short_since: Option<Instant>,
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
            short_stall: config.short_stall_timeout.min(LONGEST),
            interval_due: now + interval,
            last_received: now,
            silence_due: now + silence,
            still_since: None,
            short_since: None,
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

    /// Bytes were queued.
    pub(crate) fn note_queued(&mut self, now: Instant) {
        self.still_since.get_or_insert(now);
    }

    /// Bytes were written; `pending` says whether others wait.
    pub(crate) fn note_written(&mut self, pending: bool, now: Instant) {
        self.still_since = pending.then_some(now);
    }

    /// Whether memory is short.
    pub(crate) fn note_short(&mut self, short: bool, now: Instant) {
        self.short_since = short.then(|| self.short_since.unwrap_or(now));
    }

    /// When the peer counts as gone that takes nothing, and after how long that is.
    fn stall(&self) -> Option<(Instant, Duration)> {
        let still_since = self.still_since?;
        let usual = (still_since + self.stall, self.stall);
        let short = self.short_since.map(|since| {
            let since = since.max(still_since);
            (since + self.short_stall, self.short_stall)
        });
        short.into_iter().chain([usual]).min()
    }

    /// The next moment at which [`Keepalive::check`] can find something.
    pub(crate) fn next(&self) -> Instant {
        let first = self.interval_due.min(self.silence_due);
        self.stall().map_or(first, |(at, _)| first.min(at))
    }

    /// Looks what is due. `busy` says whether calls are in flight.
    pub(crate) fn check(&mut self, now: Instant, busy: bool) -> Due {
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
        due.stalled = self.stall().filter(|(at, _)| *at <= now).map(|(_, patience)| patience);
        due
    }
}
