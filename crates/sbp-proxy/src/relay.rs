//! One direction of a connection, without the sockets: bytes in, decisions, bytes out.

use std::mem;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sbp_frame::{MAGIC, PRELUDE_LENGTH, Prelude};
use tokio::sync::oneshot;

use crate::held::HeldDecision;
use crate::outgoing::Outgoing;
use crate::rulebook::Decision;
use crate::{Direction, Held, Seen};

/// Decides about frames.
pub(crate) trait Judge {
    fn decide(&self, seen: &Seen) -> Decision;
    /// Bytes were received that are not a frame; the rest of the direction will not be examined.
    fn note_foreign(&self);
}

/// The state of one direction.
#[derive(Debug)]
enum State {
    /// Before a frame, or inside its first sixteen bytes.
    Between,
    /// Inside a frame that is passed on as it arrives, each piece at `due` or later.
    Passing { left: u64, due: Instant },
    /// Inside a frame that is not passed on.
    Skipping { left: u64 },
    /// Inside a frame that must be complete before its fault can happen.
    Gathering { seen: Seen, then: Whole },
    /// A hook decides about the frame.
    Held { frame: Bytes },
    /// Before the byte at which the connection is cut.
    Cutting { left: u64 },
    /// After the byte at which the connection is cut.
    Cut,
    /// Bytes were received that are not a frame; everything is passed on unexamined.
    Foreign,
}

/// What happens to a frame once it is complete.
#[derive(Debug)]
enum Whole {
    Twice,
    Aside(u32),
    Hook(crate::Hook),
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Relay {
    connection: u64,
    direction: Direction,
    number: u64,
    /// The position of the buffer's first byte in the direction's bytes.
    position: u64,
    state: State,
    /// The receiver of a hook's decision, until [`Relay::take_verdict`] takes it.
    verdict: Option<oneshot::Receiver<HeldDecision>>,
    pub(crate) outgoing: Outgoing,
}

impl Relay {
    pub(crate) fn new(connection: u64, direction: Direction) -> Self {
        Self {
            connection,
            direction,
            number: 0,
            position: 0,
            state: State::Between,
            verdict: None,
            outgoing: Outgoing::default(),
        }
    }

    /// Handles as much of the buffer as possible now.
    pub(crate) fn advance(&mut self, buffer: &mut BytesMut, now: Instant, judge: &impl Judge) {
        loop {
            let state = mem::replace(&mut self.state, State::Between);
            let (next, goes_on) = self.step(state, buffer, now, judge);
            self.state = next;
            if !goes_on {
                return;
            }
        }
    }

    /// Does one step. Returns the next state, and whether another step is possible.
    fn step(&mut self, state: State, buffer: &mut BytesMut, now: Instant, judge: &impl Judge) -> (State, bool) {
        match state {
            State::Between => {
                self.outgoing.put_back_overdue(now);
                self.begin(buffer, now, judge)
            }
            State::Passing { left, due } => {
                let (bytes, left) = self.take(buffer, left);
                self.outgoing.push(bytes, due);
                if left > 0 {
                    return (State::Passing { left, due }, false);
                }
                self.outgoing.end_frame(now);
                (State::Between, true)
            }
            State::Skipping { left } => match self.take(buffer, left) {
                (_, 0) => (State::Between, true),
                (_, left) => (State::Skipping { left }, false),
            },
            State::Gathering { seen, then } => {
                if (buffer.len() as u64) < seen.length {
                    return (State::Gathering { seen, then }, false);
                }
                let (frame, _) = self.take(buffer, seen.length);
                (self.act_on_whole(seen, frame, then, now), true)
            }
            State::Cutting { left } => {
                let (bytes, left) = self.take(buffer, left);
                self.outgoing.push(bytes, now);
                if left > 0 {
                    (State::Cutting { left }, false)
                } else {
                    (State::Cut, false)
                }
            }
            State::Foreign => {
                let (bytes, _) = self.take(buffer, u64::MAX);
                self.outgoing.push(bytes, now);
                (State::Foreign, false)
            }
            state @ (State::Held { .. } | State::Cut) => (state, false),
        }
    }

    /// Reads the first bytes of a frame and decides what to do with it.
    fn begin(&mut self, buffer: &BytesMut, now: Instant, judge: &impl Judge) -> (State, bool) {
        if !may_be_frame(buffer) {
            judge.note_foreign();
            self.outgoing.put_back_all(now);
            return (State::Foreign, true);
        }
        let Some(prelude) = buffer.first_chunk::<PRELUDE_LENGTH>().map(Prelude::parse) else {
            return (State::Between, false);
        };
        self.number += 1;
        let seen = Seen::new(self.connection, self.direction, self.number, self.position, &prelude);
        let gathering = |then| State::Gathering { seen, then };
        let passing = |due| State::Passing { left: seen.length, due };
        let state = match judge.decide(&seen) {
            Decision::Pass => passing(now),
            Decision::Delay(time) => passing(now + time),
            Decision::Drop => State::Skipping { left: seen.length },
            Decision::Cut(keep) => State::Cutting { left: keep },
            Decision::Duplicate => gathering(Whole::Twice),
            Decision::Reorder(behind) => gathering(Whole::Aside(behind)),
            Decision::Hold(hook) => gathering(Whole::Hook(hook)),
        };
        if !matches!(state, State::Skipping { .. }) {
            self.outgoing.begin_frame(seen.call_id, now);
        }
        (state, true)
    }

    fn act_on_whole(&mut self, seen: Seen, frame: Bytes, then: Whole, now: Instant) -> State {
        match then {
            Whole::Twice => {
                self.outgoing.push(frame.clone(), now);
                self.outgoing.push(frame, now);
                self.outgoing.end_frame(now);
                State::Between
            }
            Whole::Aside(behind) => {
                self.outgoing.set_aside(seen.call_id, behind, frame, now);
                State::Between
            }
            Whole::Hook(hook) => {
                let (held, verdict) = Held::new(seen, frame.clone());
                self.verdict = Some(verdict);
                hook.call(held);
                State::Held { frame }
            }
        }
    }

    /// Takes up to `left` bytes from the buffer; returns them, and how many are left to take.
    fn take(&mut self, buffer: &mut BytesMut, left: u64) -> (Bytes, u64) {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.position += count as u64;
        (buffer.split_to(count).freeze(), left - count as u64)
    }

    /// The sender has ended: passes on what was received, even if incomplete.
    pub(crate) fn finish(&mut self, buffer: &mut BytesMut, now: Instant) {
        let gathered = !matches!(self.state, State::Skipping { .. } | State::Cut);
        self.outgoing.put_back_all(now);
        if gathered {
            let (bytes, _) = self.take(buffer, u64::MAX);
            self.outgoing.push(bytes, now);
        }
    }

    /// Inserts answers that were held back for long enough, if no frame is under way.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.state, State::Between) {
            self.outgoing.put_back_overdue(now);
        }
    }

    /// When to call [`Relay::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Between => self.outgoing.next_overdue(),
            _ => None,
        }
    }

    /// Takes the receiver of the decision about the held frame.
    pub(crate) fn take_verdict(&mut self) -> Option<oneshot::Receiver<HeldDecision>> {
        self.verdict.take()
    }

    /// Carries out the hook's decision.
    pub(crate) fn handle_verdict(&mut self, verdict: HeldDecision, now: Instant) {
        let State::Held { frame } = mem::replace(&mut self.state, State::Between) else {
            return;
        };
        match verdict {
            HeldDecision::Pass => {
                self.outgoing.push(frame, now);
                self.outgoing.end_frame(now);
            }
            HeldDecision::Discard => {}
            HeldDecision::Cut => self.state = State::Cut,
        }
    }

    /// Whether the byte has been reached at which the connection is cut.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.state, State::Cut)
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }
}

/// Whether the bytes received so far can be the beginning of a frame.
fn may_be_frame(buffer: &BytesMut) -> bool {
    let length = buffer.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
    let magic = buffer.get(4).copied();
    length.is_none_or(Prelude::is_possible_length) && magic.is_none_or(|magic| magic == MAGIC)
}

#[cfg(test)]
mod tests;
