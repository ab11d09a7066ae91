//! What an idempotent writer does next: which batch is sent, what an attempt's end means, who is told what.
//!
//! Does no I/O and reads no clock. Batches have sequences without holes; the server stores them in that order and knows
//! those it has stored already, so a batch whose fate is unknown is sent again with the same sequence. A batch that was
//! certainly not stored and never will be leaves a hole that the server would wait for. A writer whose name is its own
//! secret gives those behind it other sequences, once nothing of them is on its way any more. Of a writer that was given
//! its name a sequence is a place in its input, so it stops: nothing behind the hole is stored until it is opened again.
//!
//! ```text
//!             push                 poll_send               stored
//!   caller ---------> Waiting ------------------> InFlight --------> Over
//!                        ^                           |
//!                        | refused for the moment,   | refused for good, or out of time
//!                        | or its fate is unknown    v
//!                        +---------------------- or Hole: those behind wait until it is mended
//! ```

mod holes;
mod opening;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sbp_messages::ErrorCode;

use self::opening::OpeningQuestion;
use crate::clock::earlier;
use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::outcome::Ack;
use crate::retry::{CallFacts, Decision, Repeat, Target, Wait, decide, duration_of};
use crate::submission::attempt::AttemptEnd;

/// How a writer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// With this sequence.
    At(i64),
    /// Where it stands in its epoch, which the server is asked for.
    Asks,
    /// In the next epoch, which the server is asked to make current; with this sequence, or where the one before stood.
    TakesOver { first_sequence: Option<i64> },
}

/// What a writer is set up with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Of one that takes over: the first that is tried.
    pub(crate) epoch: i64,
    pub(crate) opening: Opening,
    /// When a writer that is not open yet gives up.
    pub(crate) open_by: Instant,
    pub(crate) kind: Kind,
    /// Batches that may be on their way.
    pub(crate) max_in_flight: usize,
    /// After this long an attempt counts as lost.
    pub(crate) attempt_timeout: Duration,
    pub(crate) policy: RetryPolicy,
}

/// Who a writer's id belongs to, and so what the writer may do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nobody else writes under its id, and nobody will open it again: it raises its epoch by itself, and leaves out what is
    /// not stored.
    Anonymous,
    /// Its sequences are places in its input, so it does neither. Errors that end it say that it can be opened again under
    /// its name, and goes on where it stood.
    Named,
    /// Its batches travel with those of many others in one frame, for a caller who has all of the input at hand. What is
    /// sent behind a batch that is missing is refused, however much it is: so after a failure nothing is sent until
    /// everything on its way has come back, a lost connection is followed by a pause, and then the first batch goes alone.
    /// The others send what failed again at once, and do not wait for what follows it.
    Bulk,
}

/// How long a batch is tried to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    /// Until then, sent or not.
    At(Instant),
    /// For so long after it was sent first.
    AfterFirstSend(Duration),
}

/// How far the writer is.
#[derive(Debug)]
enum Phase {
    /// Where the writer stands at the server is not known yet.
    Asking(OpeningQuestion),
    /// Batches are sent.
    Open,
    /// Nothing is sent any more, for the reason that whoever comes now is told.
    Stopped(ClientError),
}

/// Where one batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be sent, or sent again.
    Waiting,
    /// On its way.
    InFlight {
        /// All batches before it were stored when it was sent: a gap is then nobody else's fault.
        as_head: bool,
    },
    /// Never stored, as far as is known, and not sent again.
    Hole {
        /// It may have been stored after all.
        doubtful: bool,
    },
    /// Its caller was told.
    Over,
}

#[derive(Debug)]
struct Batch<P> {
    base_sequence: i64,
    count: i64,
    limit: TimeLimit,
    state: State,
    /// Attempts so far. The last one's number tells its end from those of older ones.
    attempts: u32,
    /// An attempt since the last numbering ended without a clear answer: it may have been stored, or be stored yet.
    floating: bool,
    /// The last attempt counts as lost without having ended; it may still be answered.
    presumed_lost: bool,
    /// When the last attempt was sent, counted in sends.
    sent: u64,
    /// And by the clock.
    sent_at: Option<Instant>,
    /// What the last attempt failed of.
    failure: Option<Box<Failure>>,
    payload: Option<P>,
}

/// A batch to be sent now.
#[derive(Debug)]
pub(crate) struct ToSend<'a, P> {
    /// Given back with the attempt's end; see [`Machine::handle_end`].
    pub(crate) token: u64,
    pub(crate) epoch: i64,
    pub(crate) base_sequence: i64,
    pub(crate) deadline: Instant,
    pub(crate) content: Content<'a, P>,
}

/// What is to be sent.
#[derive(Debug)]
pub(crate) enum Content<'a, P> {
    Batch(&'a mut P),
    /// The question where the writer stands.
    Question,
    /// That the epoch becomes current.
    Fence,
}

/// What the shell has to do.
#[derive(Debug)]
pub(crate) enum Action<P> {
    /// Tell a caller.
    Tell(P, Result<Ack, ClientError>),
    /// Ask where the stream is now, then call [`Machine::handle_refreshed`], or [`Machine::handle_deleted`].
    Refresh,
    /// The connection has not answered for as long as an attempt may take: go on over another one.
    Reconnect,
}

/// The writer's decisions. `P` is whatever the shell needs to send a batch and to tell its caller.
#[derive(Debug)]
pub(crate) struct Machine<P> {
    setup: Setup,
    phase: Phase,
    epoch: i64,
    /// The sequence of the next batch.
    next_sequence: i64,
    batches: VecDeque<Batch<P>>,
    /// The number of the first of `batches`, counted from the writer's first.
    first_number: u64,
    in_flight: usize,
    /// No batch before this place waits.
    cursor: usize,
    /// Sends so far: tells which of two attempts went out first.
    sends: u64,
    /// No batch is out of time before. May be too early after batches have left.
    earliest_deadline: Option<Instant>,
    /// When anything was last answered, or given up on for lack of an answer.
    answered_at: Option<Instant>,
    /// When the server last showed that it knows the writer in its epoch.
    known_at: Option<Instant>,
    /// Nothing is sent before.
    not_before: Option<Instant>,
    /// Refusals in a row since a batch was stored.
    refusals: u32,
    refreshing: bool,
    /// A batch failed and others are on their way still: nothing is sent until they have come back.
    draining: bool,
    question_attempts: u32,
    actions: VecDeque<Action<P>>,
}

/// How long a silent writer is surely remembered. Servers forget after seven days, or what they were told instead.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// Attempt numbers are kept in the upper part of a token, batch numbers in the lower.
const NUMBER_BITS: u32 = 44;
const QUESTION: u64 = (1 << NUMBER_BITS) - 1;
/// Attempt numbers wrap here; an end would have to be that many attempts late to be taken for another's.
const ATTEMPTS: u32 = (1 << (64 - NUMBER_BITS)) - 1;

fn token(number: u64, attempt: u32) -> u64 {
    (number & QUESTION) | (u64::from(attempt) << NUMBER_BITS)
}

impl<P> Machine<P> {
    pub(crate) fn new(setup: Setup) -> Self {
        let (phase, first_sequence) = match setup.opening {
            Opening::At(first_sequence) => (Phase::Open, first_sequence),
            Opening::Asks | Opening::TakesOver { .. } => (Phase::Asking(OpeningQuestion::Due), 0),
        };
        Self {
            phase,
            epoch: setup.epoch,
            next_sequence: first_sequence,
            setup,
            batches: VecDeque::new(),
            first_number: 0,
            in_flight: 0,
            cursor: 0,
            sends: 0,
            earliest_deadline: None,
            answered_at: None,
            known_at: None,
            not_before: None,
            refusals: 0,
            refreshing: false,
            draining: false,
            question_attempts: 0,
            actions: VecDeque::new(),
        }
    }

    /// Takes a batch, or gives it back with why the writer takes no more.
    pub(crate) fn push(&mut self, count: i64, limit: TimeLimit, payload: P) -> Result<(), (ClientError, P)> {
        if let Phase::Stopped(error) = &self.phase {
            return Err((error.clone(), payload));
        }
        self.batches.push_back(Batch {
            base_sequence: self.next_sequence,
            count,
            limit,
            state: State::Waiting,
            attempts: 0,
            floating: false,
            presumed_lost: false,
            sent: 0,
            sent_at: None,
            failure: None,
            payload: Some(payload),
        });
        self.note_deadline(limit.deadline());
        self.next_sequence = self.next_sequence.saturating_add(count);
        Ok(())
    }

    fn note_deadline(&mut self, deadline: Option<Instant>) {
        self.earliest_deadline = earlier(self.earliest_deadline, deadline);
    }

    /// The server remembers no more than this many batches.
    pub(crate) fn limit_in_flight(&mut self, window: usize) {
        self.setup.max_in_flight = self.setup.max_in_flight.min(window.max(1));
    }

    /// Batches that may be on their way.
    pub(crate) fn max_in_flight(&self) -> u64 {
        widen(self.setup.max_in_flight)
    }

    pub(crate) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// The sequence that the next batch gets, once it is known.
    pub(crate) fn next_sequence(&self) -> Option<i64> {
        match self.phase {
            Phase::Asking(_) => None,
            Phase::Open | Phase::Stopped(_) => Some(self.next_sequence),
        }
    }

    /// Why the writer takes no more.
    pub(crate) fn stopped(&self) -> Option<ClientError> {
        match &self.phase {
            Phase::Stopped(error) => Some(error.clone()),
            Phase::Asking(_) | Phase::Open => None,
        }
    }

    /// Whether a batch that is not over may be stored.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.batches.iter().any(Batch::may_be_stored)
    }

    /// The number of the first batch that is not over; all before it are.
    pub(crate) fn first_unfinished(&self) -> u64 {
        self.first_number
    }

    /// How many batches were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.first_number + widen(self.batches.len())
    }

    /// What waits and may be sent now: what [`Self::poll_send`] returns next, unless that is a question.
    pub(crate) fn peek_send(&mut self, now: Instant) -> Option<&P> {
        if !self.may_send(now) || !matches!(self.phase, Phase::Open) {
            return None;
        }
        let place = self.next_waiting(now)?;
        self.batches.get(place)?.payload.as_ref()
    }

    /// The next batch to be sent. To be called until there is none.
    pub(crate) fn poll_send(&mut self, now: Instant) -> Option<ToSend<'_, P>> {
        if !self.may_send(now) {
            return None;
        }
        match self.phase {
            Phase::Stopped(_) | Phase::Asking(OpeningQuestion::InFlight(_)) => None,
            Phase::Asking(OpeningQuestion::Due) => Some(self.question(now)),
            Phase::Open => self.send_next(now),
        }
    }

    fn may_send(&mut self, now: Instant) -> bool {
        if self.refreshing || self.draining || self.not_before.is_some_and(|at| now < at) {
            return false;
        }
        self.not_before = None;
        true
    }

    /// The place of the first batch that waits, if there is room for it among those on their way.
    fn next_waiting(&mut self, now: Instant) -> Option<usize> {
        while matches!(self.batches.get(self.cursor), Some(batch) if !matches!(batch.state, State::Waiting | State::Hole { .. }))
        {
            self.cursor += 1;
        }
        // By place, not by count: so that every batch that may be repeated is among the last that the server remembers.
        if self.cursor >= self.room(now) {
            return None;
        }
        let batch = self.batches.get(self.cursor)?;
        (batch.state == State::Waiting).then_some(self.cursor)
    }

    fn send_next(&mut self, now: Instant) -> Option<ToSend<'_, P>> {
        let place = self.next_waiting(now)?;
        let as_head = place == 0;
        let number = self.first_number + widen(place);
        let deadline = self.batches.get_mut(place)?.limit.begin(now);
        self.note_deadline(Some(deadline));
        let batch = self.batches.get_mut(place)?;
        batch.state = State::InFlight { as_head };
        batch.attempts = (batch.attempts + 1) & ATTEMPTS;
        batch.floating |= std::mem::take(&mut batch.presumed_lost);
        batch.sent = self.sends;
        batch.sent_at = Some(now);
        self.sends += 1;
        self.in_flight += 1;
        self.cursor += 1;
        Some(ToSend {
            token: token(number, batch.attempts),
            epoch: self.epoch,
            base_sequence: batch.base_sequence,
            deadline: deadline.min(now + self.setup.attempt_timeout),
            content: batch.payload.as_mut().map(Content::Batch)?,
        })
    }

    /// How many batches may be on their way. A server lets a writer that it does not know start anywhere, and a new epoch
    /// at two sequences, so the first batch goes alone: were it refused, another could be taken for the first.
    fn room(&self, now: Instant) -> usize {
        match self.known_at {
            Some(at) if now.saturating_duration_since(at) < REMEMBERED => self.setup.max_in_flight,
            Some(_) | None => 1,
        }
    }

    /// What the shell has to do now. To be called until there is nothing.
    pub(crate) fn poll_action(&mut self) -> Option<Action<P>> {
        self.actions.pop_front()
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let deadline = if self.batches.is_empty() {
            None
        } else {
            self.earliest_deadline
        };
        let opening = match self.phase {
            Phase::Asking(OpeningQuestion::Due) => Some(self.setup.open_by),
            // The attempt has its own end, which is no later.
            Phase::Asking(OpeningQuestion::InFlight(_)) | Phase::Open | Phase::Stopped(_) => None,
        };
        earlier(self.not_before, earlier(deadline, opening))
    }

    /// Time has passed: batches that wait and are out of time are over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.earliest_deadline.is_some_and(|at| at <= now) {
            for place in 0..self.batches.len() {
                let late = |batch: &Batch<P>| {
                    batch.state == State::Waiting && batch.limit.deadline().is_some_and(|at| at <= now)
                };
                if self.batches.get(place).is_some_and(late) {
                    self.give_up(place);
                }
            }
            // What is in flight has its deadline at its connection.
            let deadlines = self.batches.iter().filter_map(|batch| batch.limit.deadline());
            self.earliest_deadline = deadlines.filter(|&deadline| deadline > now).min();
        }
        if self.not_before.is_some_and(|at| at <= now) {
            self.not_before = None;
        }
        if matches!(self.phase, Phase::Asking(OpeningQuestion::Due)) && self.setup.open_by <= now {
            self.stop_opening(None);
        }
        self.settle();
    }

    /// A batch that is sent from now on is waited for so long before it is sent again.
    pub(crate) fn limit_attempts(&mut self, attempt_timeout: Duration) {
        self.setup.attempt_timeout = attempt_timeout;
    }

    /// The server that was sent batches is silent, and others may have the stream by now: nothing is sent until that is known.
    pub(crate) fn look_elsewhere(&mut self) {
        if !std::mem::replace(&mut self.refreshing, true) {
            self.actions.push_back(Action::Refresh);
        }
    }

    /// It was asked where the stream is.
    pub(crate) fn handle_refreshed(&mut self) {
        self.refreshing = false;
    }

    /// It was asked where the stream is, and there is no such stream any more: nobody will ever store its batches.
    pub(crate) fn handle_deleted(&mut self, error: ClientError) {
        self.refreshing = false;
        if !matches!(self.phase, Phase::Stopped(_)) {
            self.stop(error);
            self.settle();
        }
    }

    /// An attempt has ended.
    pub(crate) fn handle_end(&mut self, now: Instant, token: u64, end: AttemptEnd) {
        let attempt = u32::try_from(token >> NUMBER_BITS).unwrap_or(u32::MAX);
        let number = token & QUESTION;
        if number == QUESTION {
            return self.handle_answer(now, attempt, end);
        }
        let place = number.checked_sub(self.first_number & QUESTION);
        let Some(place) = place.and_then(|place| usize::try_from(place).ok()) else {
            return;
        };
        let current = self.batches.get(place).filter(|batch| batch.attempts == attempt);
        let Some(State::InFlight { as_head }) = current.map(|batch| batch.state) else {
            return self.handle_late(now, place, attempt, end);
        };
        self.in_flight -= 1;
        match end.outcome {
            Ok(ack) => {
                self.refusals = 0;
                self.known_at = Some(now);
                self.answered_at = Some(now);
                self.tell(place, Ok(ack));
            }
            Err(failure) => self.handle_failure(now, place, as_head, failure, end.next_sequence),
        }
        self.settle();
    }

    /// The end of an attempt that counted as lost already. That it was stored is news all the same.
    fn handle_late(&mut self, now: Instant, place: usize, attempt: u32, end: AttemptEnd) {
        let Some(batch) = self.batches.get_mut(place) else {
            return;
        };
        match (batch.state, end.outcome) {
            (State::Waiting, Ok(ack)) => self.tell(place, Ok(ack)),
            (State::InFlight { .. }, Ok(ack)) => {
                self.in_flight -= 1;
                self.tell(place, Ok(ack));
            }
            // Not sent again yet, so nothing is in doubt.
            (State::Waiting, Err(failure)) if batch.presumed_lost && batch.attempts == attempt => {
                batch.presumed_lost = false;
                self.handle_failure(now, place, false, failure, end.next_sequence);
            }
            (State::Waiting | State::InFlight { .. } | State::Hole { .. } | State::Over, _) => {}
        }
        self.settle();
    }

    fn handle_failure(
        &mut self,
        now: Instant,
        place: usize,
        as_head: bool,
        failure: Box<Failure>,
        next_sequence: Option<i64>,
    ) {
        let Some(batch) = self.batches.get_mut(place) else {
            return;
        };
        let deadline = batch.limit.deadline();
        let cause = failure.cause.clone();
        let sent_at = batch.sent_at;
        batch.floating |= cause.may_have_been_done();
        batch.failure = Some(failure);
        batch.state = State::Waiting;
        self.cursor = self.cursor.min(place);
        self.draining |= self.setup.kind == Kind::Bulk;
        match &cause {
            Cause::Refused { .. } => self.answered_at = Some(now),
            Cause::Deadline { sent: true, .. } if self.answered_at < sent_at => {
                self.answered_at = Some(now);
                self.actions.push_back(Action::Reconnect);
            }
            _ => {}
        }
        if let Phase::Stopped(why) = &self.phase {
            let why = why.clone();
            let doubtful = self.batches.get(place).is_some_and(|batch| batch.floating);
            return if doubtful {
                self.refuse(place, false);
            } else {
                self.tell(place, Err(why));
            };
        }
        if let Cause::Refused { code, .. } = &cause {
            match *code {
                ErrorCode::SEQUENCE_GAP if !as_head => return self.handle_gap(place, next_sequence),
                ErrorCode::SEQUENCE_GAP | ErrorCode::SEQUENCE_OVERLAP | ErrorCode::WRITER_FENCED => {
                    return self.stop_at(place, next_sequence);
                }
                _ => {}
            }
        }
        match self.decide(&cause) {
            Decision::Final { may_have_been_done } => self.refuse(place, may_have_been_done),
            Decision::Again { after, at } => {
                let after = match (after, at) {
                    (Wait::None, Target::Same) if self.setup.kind == Kind::Bulk => Wait::BackOff,
                    _ => after,
                };
                let wait = self.pause(now, after, at);
                if deadline.is_some_and(|deadline| now + wait >= deadline) {
                    self.give_up(place);
                }
            }
        }
    }

    /// However often: until the batch's deadline, which is another one than the attempt's.
    fn decide(&self, cause: &Cause) -> Decision {
        let attempts = self.refusals.saturating_add(1);
        let attempts = attempts.min(self.setup.policy.max_attempts.saturating_sub(1));
        match cause {
            Cause::Deadline { .. } => Decision::Again {
                after: Wait::None,
                at: Target::Same,
            },
            cause => decide(
                cause,
                CallFacts::append(Repeat::Deduplicated),
                attempts,
                &self.setup.policy,
            ),
        }
    }

    /// Sends nothing for as long as was decided. Many batches that fail together pause once.
    fn pause(&mut self, now: Instant, after: Wait, at: Target) -> Duration {
        if matches!(at, Target::Refreshed | Target::Elsewhere | Target::Leader) && !self.refreshing {
            self.look_elsewhere();
            // At once only the first time.
            if after == Wait::None {
                self.refusals = self.refusals.saturating_add(1);
            }
        }
        let paused = self
            .not_before
            .map(|at| at.saturating_duration_since(now))
            .unwrap_or_default();
        let wait = match after {
            Wait::None => return Duration::ZERO,
            Wait::BackOff | Wait::Soon if !paused.is_zero() => paused,
            Wait::Throttled(asked) if !paused.is_zero() => paused.max(asked),
            after @ (Wait::BackOff | Wait::Soon | Wait::Throttled(_)) => {
                self.refusals = self.refusals.saturating_add(1);
                duration_of(after, self.refusals, &self.setup.policy)
            }
        };
        self.not_before = Some(now + wait);
        wait
    }

    /// The server misses what comes before this batch. Those whose attempts went before this one and are not answered
    /// yet did not arrive, or were refused and their answers were overtaken: either way they have to be sent first.
    fn handle_gap(&mut self, place: usize, next_sequence: Option<i64>) {
        let (Some(next_sequence), Some(sent)) = (next_sequence, self.batches.get(place).map(|batch| batch.sent)) else {
            return;
        };
        for (before, batch) in self.batches.iter_mut().enumerate().take(place) {
            let missing = batch.base_sequence >= next_sequence && batch.sent < sent;
            if missing && matches!(batch.state, State::InFlight { .. }) {
                batch.state = State::Waiting;
                batch.presumed_lost = true;
                self.in_flight -= 1;
                self.cursor = self.cursor.min(before);
            }
        }
    }

    /// Tells the caller of a batch, which is over.
    fn tell(&mut self, place: usize, result: Result<Ack, ClientError>) {
        self.tell_as(place, State::Over, result);
    }

    /// Tells the caller of a batch, of which this is the state from now on.
    fn tell_as(&mut self, place: usize, state: State, result: Result<Ack, ClientError>) {
        let Some(batch) = self.batches.get_mut(place) else {
            return;
        };
        batch.state = state;
        if let Some(payload) = batch.payload.take() {
            self.actions.push_back(Action::Tell(payload, result));
        }
    }

    /// Forgets what is over at the front, and mends the hole that is at the front when nothing is on its way any more.
    fn settle(&mut self) {
        if self.draining && self.in_flight == 0 {
            self.draining = false;
            self.known_at = None;
        }
        loop {
            while self.batches.front().is_some_and(|batch| batch.state == State::Over) {
                self.pop_front();
            }
            let Some(State::Hole { doubtful }) = self.batches.front().map(|batch| batch.state) else {
                return;
            };
            if let Phase::Stopped(_) = self.phase {
                self.pop_front();
                continue;
            }
            if self.in_flight > 0 {
                return;
            }
            self.mend(doubtful);
        }
    }

    fn pop_front(&mut self) {
        self.batches.pop_front();
        self.first_number += 1;
        self.cursor = self.cursor.saturating_sub(1);
    }

    /// Gives all batches sequences without holes. Only while nothing is in flight.
    fn number_from(&mut self, start: i64) {
        let mut next = start;
        self.cursor = 0;
        for batch in &mut self.batches {
            match batch.state {
                State::Waiting | State::InFlight { .. } => {
                    batch.base_sequence = next;
                    batch.floating = false;
                    batch.presumed_lost = false;
                    next = next.saturating_add(batch.count);
                }
                State::Hole { .. } => batch.base_sequence = next,
                State::Over => {}
            }
        }
        self.next_sequence = next;
    }
}

impl<P> Batch<P> {
    /// Whether it may be stored, or be yet, although nobody has said so.
    fn may_be_stored(&self) -> bool {
        self.floating || self.presumed_lost
    }
}

impl TimeLimit {
    /// When the batch's time is over; not known of one that was never sent and has time from then on.
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::At(deadline) => Some(deadline),
            Self::AfterFirstSend(_) => None,
        }
    }

    /// The batch is sent: when its time is over.
    fn begin(&mut self, now: Instant) -> Instant {
        let deadline = match *self {
            Self::At(deadline) => deadline,
            Self::AfterFirstSend(time) => now + time,
        };
        *self = Self::At(deadline);
        deadline
    }
}

fn widen(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod lives;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) mod unreliable;
