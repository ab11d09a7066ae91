//! When a channel dials, when it waits, and which connection takes its work: without sockets, clock and chance.
//!
//! ```text
//!            want                  next                dialled
//!   Idle ----------> Waiting ------------> Dialling ------------> Ready
//!    ^                  ^  \ not wanted       |                     |
//!    |                  |   \ any more        | dial_failed         | drains, lost, move_on
//!    |                  +----\----------------+                     |
//!    +------------------------+-------------------------------------+
//! ```
//!
//! One task, the runner, exists for as long as the phase is `Waiting` or `Dialling`: [`Reconnect::want`] asks for it and
//! [`Next::End`] ends it, or it goes on with the connection that it has made. A connection that takes no new work any more
//! is not waited for: the next one is made while it finishes.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

/// Pauses that double with each failure in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackOff {
    /// The bound of the first pause.
    pub first: Duration,
    /// The highest bound.
    pub longest: Duration,
    /// Which share of the bound is waited in any case, 0 to 1; the rest is left to chance, so that those who failed
    /// together do not come back together.
    pub least: f64,
}

impl BackOff {
    /// The longest pause after so many failures, counted from 1.
    #[must_use]
    pub fn bound(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// The pause after so many failures, counted from 1. `draw` is drawn from 0 to 1.
    #[must_use]
    pub fn pause(&self, failures: u32, draw: f64) -> Duration {
        let share = self.least + draw * (1.0 - self.least);
        self.bound(failures).mul_f64(share.clamp(0.0, 1.0))
    }
}

/// How attempts to connect follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReconnectPolicy {
    /// The addresses, tried in turn: each failure moves on to the next one.
    pub addresses: usize,
    /// Attempts that follow each other without a pause: so many failures are one round, and a pause follows each round.
    pub attempts_per_round: u32,
    /// The pauses between rounds.
    pub back_off: BackOff,
    /// The longest pause while nobody was ever reached: the peer may be starting.
    pub longest_before_reached: Duration,
    /// Whether failures are forgotten while nobody wants a connection: who wants one later begins anew, with the first
    /// address.
    pub forgets_when_idle: bool,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Connect to the address with this index, or go on connecting to it.
    Dial {
        /// Below [`ReconnectPolicy::addresses`].
        address: usize,
    },
    /// Ask again at this time, or when something has changed.
    WaitUntil(Instant),
    /// The new connection takes the channel's work.
    Serve {
        /// Its number: higher than that of each one before.
        generation: u64,
    },
    /// This runner is not needed any more.
    End,
}

/// What became of the attempts to connect so far, and so which one is next, and when.
#[derive(Debug)]
pub struct Attempts {
    policy: ReconnectPolicy,
    /// Which of the addresses is next, before it is reduced to those there are.
    candidate: usize,
    /// Failures since a peer was reached last.
    failures: u32,
    /// The end of the pause after the last round.
    not_before: Option<Instant>,
    /// When the first attempt failed of those that began before any peer was reached.
    failing_since: Option<Instant>,
    ever_reached: bool,
}

/// The state of a channel whose connections come and go. `R` is how work is handed to the connection that is ready.
#[derive(Debug)]
pub struct Reconnect<R> {
    /// What became of the attempts so far. Who knows more of the peer tells it that one was reached, or given up.
    pub attempts: Attempts,
    phase: Phase<R>,
    /// Counts connections.
    generation: u64,
    closed: bool,
}

#[derive(Debug)]
enum Phase<R> {
    /// No connection takes work, and nobody makes one.
    Idle,
    /// A runner is there and waits until it may dial.
    Waiting,
    /// The runner dials.
    Dialling { address: usize },
    /// A connection takes the work.
    Ready { generation: u64, ready: R },
}

impl<R> Reconnect<R> {
    /// Not connected yet. `ever_reached`: that there is a peer is known from elsewhere.
    pub(crate) fn new(policy: ReconnectPolicy, ever_reached: bool) -> Self {
        Self {
            attempts: Attempts {
                policy,
                candidate: 0,
                failures: 0,
                not_before: None,
                failing_since: None,
                ever_reached,
            },
            phase: Phase::Idle,
            generation: 0,
            closed: false,
        }
    }

    /// There is work for a connection. Returns whether a runner has to be started: there is none yet, and no connection.
    pub(crate) fn want(&mut self, now: Instant) -> bool {
        if self.closed || !matches!(self.phase, Phase::Idle) {
            return false;
        }
        self.attempts.begin(now);
        self.phase = Phase::Waiting;
        true
    }

    /// What the runner does now. `wanted`: there still is work. Asked again while it waits or dials, whenever something may
    /// have changed; [`Next::End`] means that the attempt under way is given up.
    pub(crate) fn next(&mut self, now: Instant, wanted: bool) -> Next {
        match &self.phase {
            Phase::Idle | Phase::Ready { .. } => Next::End,
            Phase::Waiting | Phase::Dialling { .. } if self.closed || !wanted => {
                self.phase = Phase::Idle;
                Next::End
            }
            Phase::Dialling { address } => Next::Dial { address: *address },
            Phase::Waiting => match self.attempts.pause_left(now) {
                Some(until) => Next::WaitUntil(until),
                None => {
                    let address = self.attempts.address();
                    self.phase = Phase::Dialling { address };
                    Next::Dial { address }
                }
            },
        }
    }

    /// Before a runner dials: addresses of which this is so are passed over, unless it is so of all.
    pub(crate) fn pass_over(&mut self, is_tried_last: impl Fn(usize) -> bool) {
        if matches!(self.phase, Phase::Waiting) {
            self.attempts.pass_over(is_tried_last);
        }
    }

    /// The runner has connected: [`Next::Serve`], or [`Next::End`] where nobody needs the connection any more.
    pub(crate) fn dialled(&mut self, ready: R) -> Next {
        match &self.phase {
            Phase::Idle | Phase::Waiting | Phase::Ready { .. } => Next::End,
            Phase::Dialling { .. } if self.closed => {
                self.phase = Phase::Idle;
                Next::End
            }
            Phase::Dialling { .. } => {
                self.generation += 1;
                let generation = self.generation;
                self.phase = Phase::Ready { generation, ready };
                Next::Serve { generation }
            }
        }
    }

    /// The runner could not connect. `draw` is drawn from 0 to 1.
    pub(crate) fn dial_failed(&mut self, now: Instant, draw: f64) {
        if let Phase::Dialling { .. } = &self.phase {
            self.phase = Phase::Waiting;
            self.attempts.count_failure(now, draw);
        }
    }

    /// A connection has failed, whether it took work or only finished what it had: the next attempt waits, or goes to the
    /// next address. `draw` is drawn from 0 to 1. That it takes no work any more is [`Self::drains`].
    pub(crate) fn lost(&mut self, now: Instant, draw: f64) {
        self.attempts.count_failure(now, draw);
    }

    /// A connection takes no new work any more: it was told to leave, or it has ended. Returns whether it took work until
    /// now.
    pub fn drains(&mut self, generation: u64) -> bool {
        let is_ready = self.is_ready(generation);
        if is_ready {
            self.phase = Phase::Idle;
        }
        is_ready
    }

    /// The next connection is to the next address. Returns the connection that took work until now; it is to finish what it
    /// has.
    pub(crate) fn move_on(&mut self) -> Option<(u64, R)> {
        self.attempts.candidate = self.attempts.candidate.wrapping_add(1);
        if !matches!(self.phase, Phase::Ready { .. }) {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Ready { generation, ready } => Some((generation, ready)),
            Phase::Idle | Phase::Waiting | Phase::Dialling { .. } => None,
        }
    }

    /// No connection is made any more. The one that is there goes on until it ends. Returns whether it was open until now.
    pub(crate) fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.closed, true)
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The connection that takes work, by its number.
    #[must_use]
    pub fn ready(&self) -> Option<(u64, &R)> {
        match &self.phase {
            Phase::Ready { generation, ready } => Some((*generation, ready)),
            Phase::Idle | Phase::Waiting | Phase::Dialling { .. } => None,
        }
    }

    /// The connection with this number, if it takes work.
    pub fn ready_mut(&mut self, wanted: u64) -> Option<&mut R> {
        match &mut self.phase {
            Phase::Ready { generation, ready } if *generation == wanted => Some(ready),
            Phase::Idle | Phase::Waiting | Phase::Dialling { .. } | Phase::Ready { .. } => None,
        }
    }

    /// Whether it is this connection that takes work.
    #[must_use]
    pub fn is_ready(&self, generation: u64) -> bool {
        self.ready().is_some_and(|(ready, _)| ready == generation)
    }
}

impl Attempts {
    /// A peer has shown that it serves: the next failure is the first again.
    pub fn reached(&mut self) {
        self.failures = 0;
        self.not_before = None;
        self.ever_reached = true;
    }

    /// The attempts were given up: whoever wants a connection next begins anew, at once.
    pub fn start_over(&mut self) {
        self.failures = 0;
        self.not_before = None;
        self.failing_since = None;
    }

    /// Failures since a peer was reached last.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How many rounds so many failures are.
    #[must_use]
    pub fn rounds(&self, failures: u32) -> u32 {
        failures / self.policy.attempts_per_round.max(1)
    }

    /// Whether any peer was ever reached.
    #[must_use]
    pub fn ever_reached(&self) -> bool {
        self.ever_reached
    }

    /// How long attempts have failed without any peer being reached; nothing if none has.
    #[must_use]
    pub fn failing_for(&self, now: Instant) -> Duration {
        let since = self.failing_since.map(|since| now.saturating_duration_since(since));
        since.unwrap_or_default()
    }

    /// A runner begins: nobody wanted a connection before.
    fn begin(&mut self, now: Instant) {
        if self.policy.forgets_when_idle && self.pause_left(now).is_none() {
            self.failures = 0;
            self.candidate = 0;
        }
    }

    fn address(&self) -> usize {
        self.candidate % self.policy.addresses.max(1)
    }

    fn pass_over(&mut self, is_tried_last: impl Fn(usize) -> bool) {
        let addresses = self.policy.addresses.max(1);
        let mut next = (0..addresses).map(|step| self.candidate.wrapping_add(step));
        if let Some(candidate) = next.find(|candidate| !is_tried_last(candidate % addresses)) {
            self.candidate = candidate;
        }
    }

    /// The end of the pause that is not over yet.
    fn pause_left(&self, now: Instant) -> Option<Instant> {
        self.not_before.filter(|until| *until > now)
    }

    fn count_failure(&mut self, now: Instant, draw: f64) {
        self.failures = self.failures.saturating_add(1);
        self.candidate = self.candidate.wrapping_add(1);
        let rounds = self.rounds(self.failures);
        let mut pause = self.policy.back_off.pause(rounds, draw);
        if !self.ever_reached {
            self.failing_since.get_or_insert(now);
            pause = pause.min(self.policy.longest_before_reached);
        }
        self.not_before = (rounds > 0).then(|| now + pause);
    }
}
