//! When to send a HEARTBEAT, and when a connection counts as dead.

use std::time::{Duration, Instant};

use crate::SessionConfig;

/// Shorter intervals are raised to this one, because they would only cause timers.
const SHORTEST: Duration = Duration::from_millis(1);
/// A peer that is silent for less than this is not dead, however short the intervals are.
const LEAST_SILENCE: Duration = Duration::from_secs(2);
/// Stands for "never": a duration that can still be added to a time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What is due at a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due {
    /// An interval has passed: a client sends a HEARTBEAT, an idle connection frees memory.
    pub(crate) interval: bool,
    /// Nothing was received for the time allowed, and no call is in flight.
    pub(crate) silent: bool,
    /// Queued bytes could not be written for this time, which is the time allowed.
    pub(crate) stalled: Option<Duration>,
}

/// The timers that a frame does not move: a received frame is only noted, and a timer that fires checks the note.
#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    silence: Duration,
    stall: Duration,
    short_stall: Duration,
    interval_due: Instant,
    last_received: Instant,
    silence_due: Instant,
    /// Since when queued bytes have not moved; `None` while nothing is queued.
    still_since: Option<Instant>,
    /// Since when memory is short; `None` while it is not.
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

    /// How long a connection may be silent.
    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// A complete frame was received, which proves the peer alive.
    pub(crate) fn note_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Bytes were queued for writing.
    pub(crate) fn note_queued(&mut self, now: Instant) {
        self.still_since.get_or_insert(now);
    }

    /// Bytes were written; `pending` says whether more are queued.
    pub(crate) fn note_written(&mut self, pending: bool, now: Instant) {
        self.still_since = pending.then_some(now);
    }

    /// Says whether memory is short.
    pub(crate) fn note_short(&mut self, short: bool, now: Instant) {
        self.short_since = short.then(|| self.short_since.unwrap_or(now));
    }

    /// When a peer that takes no bytes counts as gone, and the timeout after which that is.
    fn stall(&self) -> Option<(Instant, Duration)> {
        let still_since = self.still_since?;
        let usual = (still_since + self.stall, self.stall);
        let short = self.short_since.map(|since| {
            let since = since.max(still_since);
            (since + self.short_stall, self.short_stall)
        });
        short.into_iter().chain([usual]).min()
    }

    /// The earliest time at which [`Keepalive::check`] can find something due.
    pub(crate) fn next(&self) -> Instant {
        let first = self.interval_due.min(self.silence_due);
        self.stall().map_or(first, |(at, _)| first.min(at))
    }

    /// Checks what is due. `busy` says whether calls are in flight.
    pub(crate) fn check(&mut self, now: Instant, busy: bool) -> Due {
        let mut due = Due::default();
        if self.interval_due <= now {
            due.interval = true;
            self.interval_due += self.interval;
            if self.interval_due <= now {
                // Missed intervals are skipped.
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
