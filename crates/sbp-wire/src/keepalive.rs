//! When to send a HEARTBEAT, and when a connection counts as dead.

use std::time::{Duration, Instant};

/// Shorter intervals are raised to this one, because they would only cause timers.
const SHORTEST: Duration = Duration::from_millis(1);
/// A peer that is silent for less than this is not dead, however short the intervals are.
const LEAST_SILENCE: Duration = Duration::from_secs(2);
/// Stands for "never": a duration that can still be added to a time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a peer may say nothing, and take nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How often something is due on a connection that is used little.
    pub interval: Duration,
    /// A connection on which nothing was received for this many intervals, and at least for two seconds, is closed
    /// unless calls are in flight.
    pub silent_intervals: u32,
    /// How long queued bytes may remain unwritten before the peer counts as gone.
    pub stall: Duration,
    /// The same while memory is short and the connection has more than its share.
    pub short_stall: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            silent_intervals: 3,
            stall: Duration::from_secs(30),
            short_stall: Duration::from_millis(1_500),
        }
    }
}

/// What is due at a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due {
    /// An interval has passed: a client sends a HEARTBEAT, an idle connection frees memory.
    pub interval: bool,
    /// Nothing was received for the time allowed, and no call is in flight.
    pub silent: bool,
    /// Queued bytes could not be written for this time, which is the time allowed.
    pub stalled: Option<Duration>,
}

/// The timers that a frame does not move: a received frame is only noted, and a timer that fires checks the note.
#[derive(Debug)]
pub struct Keepalive {
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
    /// The connection begins now.
    #[must_use]
    pub fn new(patience: Patience, now: Instant) -> Self {
        let interval = patience.interval.clamp(SHORTEST, LONGEST);
        let silence = interval
            .saturating_mul(patience.silent_intervals)
            .clamp(LEAST_SILENCE, LONGEST);
        Self {
            interval,
            silence,
            stall: patience.stall.min(LONGEST),
            short_stall: patience.short_stall.min(LONGEST),
            interval_due: now + interval,
            last_received: now,
            silence_due: now + silence,
            still_since: None,
            short_since: None,
        }
    }

    /// How long a connection may be silent.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// A complete frame was received, which proves the peer alive.
    pub fn note_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Bytes were queued for writing.
    pub fn note_queued(&mut self, now: Instant) {
        self.still_since.get_or_insert(now);
    }

    /// Bytes were written; `pending` says whether more are queued.
    pub fn note_written(&mut self, pending: bool, now: Instant) {
        self.still_since = pending.then_some(now);
    }

    /// Says whether memory is short.
    pub fn note_short(&mut self, short: bool, now: Instant) {
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
    #[must_use]
    pub fn next(&self) -> Instant {
        let first = self.interval_due.min(self.silence_due);
        self.next_stall().map_or(first, |at| first.min(at))
    }

    /// The earliest time at which [`Keepalive::check`] can find that the peer takes no bytes.
    #[must_use]
    pub fn next_stall(&self) -> Option<Instant> {
        self.stall().map(|(at, _)| at)
    }

    /// Checks what is due. `busy` says whether calls are in flight.
    pub fn check(&mut self, now: Instant, busy: bool) -> Due {
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
