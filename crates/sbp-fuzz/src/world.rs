//! Two sessions, two wires and a clock: what the operations of the target `session` act on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::BufMut;
use sbp_frame::{CallId, Flags, Frame, OpCode, PayloadPart};
use sbp_session::{CloseReason, Event, Limits, Outgoing, Role, SendError, Session, SessionConfig};

/// One end with what it was told.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) session: Session,
    /// Bytes on their way to this end.
    pub(crate) incoming: VecDeque<u8>,
    /// Own calls that have not ended, by token.
    open: BTreeMap<u64, CallId>,
    /// Own calls that were given up.
    cancelled: BTreeSet<u64>,
    /// The peer's requests that want an answer, oldest first.
    pub(crate) asked: Vec<(CallId, OpCode)>,
    /// Frames that the other end sends, in order, as long as nobody meddles with the wire.
    expected: VecDeque<Sent>,
    reason: Option<CloseReason>,
}

/// What was handed to the other end's session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    opcode: OpCode,
    answer: bool,
    call: CallId,
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A connection under attack.
#[derive(Debug)]
pub(crate) struct World {
    client: End,
    server: End,
    now: Instant,
    /// Somebody put bytes on a wire that no session wrote, or took some away.
    meddled: bool,
    /// Frames were sent that `expected` does not list.
    unlisted: bool,
    /// PINGs so far: peers put up with few.
    pings: usize,
    next_user: u64,
}

/// Below the burst that is answered.
const MAX_PINGS: usize = 100;

/// Small, so that short inputs reach them.
fn limits() -> Limits {
    Limits {
        calls: 4,
        waits: 2,
        own_calls: 8,
        request_bytes: 4 << 10,
        answer_bytes: 4 << 10,
        orphans: 3,
        ..Limits::default()
    }
}

impl End {
    fn new(role: Role, now: Instant) -> Self {
        let config = SessionConfig {
            limits: limits(),
            announce_answers: true,
            ..SessionConfig::new(role)
        };
        Self {
            session: Session::new(config, now),
            incoming: VecDeque::new(),
            open: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            asked: Vec::new(),
            expected: VecDeque::new(),
            reason: None,
        }
    }

    /// An own call has ended.
    fn ended(&mut self, user: u64) {
        assert!(
            !self.cancelled.contains(&user),
            "call {user} was given up, and is heard of"
        );
        assert!(
            self.open.remove(&user).is_some(),
            "call {user} ended twice, or never began"
        );
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            client: End::new(Role::Client, now),
            server: End::new(Role::Server, now),
            now,
            meddled: false,
            unlisted: false,
            pings: 0,
            next_user: 1,
        }
    }

    pub(crate) fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// A request of `length` bytes that names itself.
    pub(crate) fn ask(&mut self, side: Side, opcode: OpCode, length: usize, deadline_ms: Option<u64>) {
        let now = self.now;
        let user = self.next_user;
        let is_ping = opcode == OpCode::PING;
        self.pings += usize::from(is_ping);
        if is_ping && self.pings > MAX_PINGS {
            return;
        }
        let header = if is_ping {
            Vec::new()
        } else {
            user.to_be_bytes().to_vec()
        };
        let payload = vec![user.to_le_bytes()[0]; if is_ping { 0 } else { length }];
        let request = Outgoing {
            opcode,
            header: &header,
            payload: &[PayloadPart::Copy(&payload)],
            user,
            deadline: deadline_ms.map(|ms| now + Duration::from_millis(ms)),
            receive_charge: 1 << 20,
        };
        let end = self.end(side);
        let going_away = end.session.is_going_away();
        let Ok(call) = end.session.send_request(now, request) else {
            return;
        };
        assert!(!going_away, "a connection that goes away takes no request");
        end.open.insert(user, call);
        self.next_user += 1;
        let sent = Sent {
            opcode,
            answer: false,
            call,
            header,
            payload,
        };
        self.end(side.other()).expected.push_back(sent);
    }

    /// A frame of the answer to one of the requests at hand.
    pub(crate) fn answer(&mut self, side: Side, which: usize, length: usize, last: bool) {
        let end = self.end(side);
        let Some(which) = which.checked_rem(end.asked.len()) else {
            return;
        };
        let (call, opcode) = end.asked[which];
        let (header, payload) = (vec![0xa5; 3], vec![0x5a; length]);
        let parts = [PayloadPart::Copy(&payload)];
        let sent = end.session.send_response(call, opcode, last, &header, &parts);
        let unsent = matches!(
            sent,
            Err(SendError::FrameTooLarge(_) | SendError::HeaderTooLarge { .. })
        );
        if last && !unsent {
            end.asked.remove(which);
        }
        if sent.is_ok() {
            let sent = Sent {
                opcode,
                answer: true,
                call,
                header,
                payload,
            };
            self.end(side.other()).expected.push_back(sent);
        }
    }

    /// A system error for one of the requests at hand.
    pub(crate) fn refuse(&mut self, side: Side, which: usize) {
        let end = self.end(side);
        let Some(which) = which.checked_rem(end.asked.len()) else {
            return;
        };
        let (call, opcode) = end.asked.remove(which);
        end.session.send_system_error(call.raw(), opcode, b"no");
        self.forget_order();
    }

    /// Makes one of the requests at hand wait.
    pub(crate) fn wait(&mut self, side: Side, which: usize) {
        let end = self.end(side);
        let Some(which) = which.checked_rem(end.asked.len()) else {
            return;
        };
        let (call, _) = end.asked[which];
        end.session.mark_waiting(call);
        assert!(end.session.waiting() <= limits().waits, "more wait than may");
    }

    /// Gives up one of the own calls.
    pub(crate) fn cancel(&mut self, side: Side, which: usize) {
        let end = self.end(side);
        let Some(which) = which.checked_rem(end.open.len()) else {
            return;
        };
        let Some((user, call)) = end.open.iter().nth(which).map(|(user, call)| (*user, *call)) else {
            return;
        };
        end.session.cancel(call);
        end.open.remove(&user);
        end.cancelled.insert(user);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        self.client.session.handle_timeout(now);
        self.server.session.handle_timeout(now);
    }

    pub(crate) fn go_away(&mut self, side: Side) {
        let now = self.now;
        self.end(side).session.go_away(b"", now);
    }

    pub(crate) fn close(&mut self, side: Side) {
        self.end(side).session.close();
    }

    pub(crate) fn hang_up(&mut self, side: Side) {
        let now = self.now;
        self.meddled = true;
        self.end(side).session.handle_eof(now);
    }

    /// Bytes that nobody wrote.
    pub(crate) fn inject(&mut self, side: Side, bytes: &[u8]) {
        self.meddled = true;
        self.end(side).incoming.extend(bytes);
    }

    /// One byte of those under way, changed.
    pub(crate) fn corrupt(&mut self, side: Side, place: usize, bits: u8) {
        let wire = &mut self.end(side).incoming;
        let Some(place) = place.checked_rem(wire.len()) else {
            return;
        };
        if let Some(byte) = wire.get_mut(place) {
            *byte ^= bits;
            self.meddled = true;
        }
    }

    /// Moves at most `count` bytes from a session to its wire.
    pub(crate) fn write(&mut self, side: Side, count: usize) {
        let mut left = count;
        let mut moved = Vec::new();
        let now = self.now;
        let session = &mut self.end(side).session;
        while left > 0 && session.transmit_len() > 0 {
            let mut slices = [std::io::IoSlice::new(&[]); 1];
            session.transmit(&mut slices);
            let some = slices[0].len().min(left);
            moved.extend_from_slice(&slices[0][..some]);
            session.handle_written(some, now);
            left -= some;
        }
        self.end(side.other()).incoming.extend(moved);
    }

    /// Moves at most `count` bytes from the wire into a session.
    pub(crate) fn read(&mut self, side: Side, count: usize) {
        let now = self.now;
        let end = self.end(side);
        let mut left = count;
        while left > 0 && !end.incoming.is_empty() && end.session.wants_read() {
            let mut buffer = end.session.recv_buffer();
            let some = left.min(end.incoming.len()).min(buffer.remaining_mut());
            let bytes: Vec<u8> = end.incoming.drain(..some).collect();
            buffer.put_slice(&bytes);
            end.session.handle_received(some, now);
            left -= some;
        }
    }

    /// Takes every event of both ends and checks what must hold at any time.
    pub(crate) fn settle(&mut self) {
        for side in [Side::Client, Side::Server] {
            while let Some(event) = self.end(side).session.poll_event() {
                self.take(side, event);
            }
            let end = self.end(side);
            let is_server = end.session.config().role == Role::Server;
            assert!(
                !is_server || end.session.peer_calls() <= limits().calls,
                "a server holds more calls than it may"
            );
            let reason = end.reason.clone();
            let is_fault = matches!(
                reason,
                Some(CloseReason::Violation(_) | CloseReason::NotSbp | CloseReason::SpeaksTls)
            );
            assert!(self.meddled || !is_fault, "well-behaved sessions came to {reason:?}");
        }
    }

    fn take(&mut self, side: Side, event: Event) {
        match event {
            Event::Request(frame) => {
                self.check_order(side, &frame, false);
                let end = self.end(side);
                let known = end.asked.iter().any(|(call, _)| *call == frame.call_id);
                assert!(!known, "request {} came while it is in flight", frame.call_id);
                end.asked.push((frame.call_id, frame.opcode));
            }
            Event::Response {
                user, frame, end: last, ..
            } => {
                if !frame.flags.contains(Flags::SYSTEM_ERROR) {
                    self.check_order(side, &frame, true);
                }
                let end = self.end(side);
                assert!(end.open.contains_key(&user), "an answer to call {user}, which is over");
                if last {
                    end.ended(user);
                }
            }
            Event::Reject {
                raw_call_id, opcode, ..
            } => {
                self.forget_order();
                self.end(side).session.send_system_error(raw_call_id, opcode, b"no");
            }
            Event::CallFailed { user, .. } | Event::Pong { user, .. } => self.end(side).ended(user),
            Event::Closing { reason } => self.end(side).reason = Some(reason),
            Event::ResponseBegins { user, .. } => {
                let is_open = self.end(side).open.contains_key(&user);
                assert!(is_open, "an answer begins to call {user}, which is over");
            }
            Event::HeartbeatDue | Event::PeerGoAway { .. } => {}
        }
    }

    /// System errors are frames that are not listed: from now on the order is not looked at.
    fn forget_order(&mut self) {
        self.unlisted = true;
    }

    /// What comes is what was sent, in that order; what was sent and is not told of (PINGs, answers to calls that were
    /// given up) is passed over.
    fn check_order(&mut self, side: Side, frame: &Frame, answer: bool) {
        if self.meddled || self.unlisted {
            return;
        }
        let found = Sent {
            opcode: frame.opcode,
            answer,
            call: frame.call_id,
            header: frame.header.to_vec(),
            payload: frame.payload.chunks().concat(),
        };
        let expected = &mut self.end(side).expected;
        while let Some(next) = expected.pop_front() {
            if next == found {
                return;
            }
        }
        panic!("{found:?} was not sent, or came out of order");
    }

    /// The end: no bytes come any more, and every call that was not given up is heard of.
    pub(crate) fn finish(mut self) {
        for side in [Side::Client, Side::Server] {
            self.hang_up(side);
        }
        self.settle();
        self.pass(Duration::from_secs(600));
        self.settle();
        for end in [&self.client, &self.server] {
            assert!(end.open.is_empty(), "calls that nobody hears of: {:?}", end.open);
            assert!(end.reason.is_some(), "a connection without end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> World {
        let mut world = World::new();
        world.ask(Side::Client, OpCode::APPEND, 10, None);
        world.write(Side::Client, usize::MAX);
        world
    }

    #[test]
    fn a_call_goes_there_and_back() {
        let mut world = asked();
        world.read(Side::Server, usize::MAX);
        world.settle();
        world.answer(Side::Server, 0, 10, true);
        world.write(Side::Server, usize::MAX);
        world.read(Side::Client, usize::MAX);
        world.settle();
        assert!(world.client.open.is_empty() && world.server.asked.is_empty());
        world.finish();
    }

    #[test]
    #[should_panic(expected = "well-behaved sessions came to")]
    fn bytes_that_change_on_the_way_are_noticed() {
        let mut world = asked();
        let last = world.server.incoming.len() - 1;
        world.server.incoming[last] ^= 1;
        world.read(Side::Server, usize::MAX);
        world.settle();
    }

    #[test]
    #[should_panic(expected = "was not sent, or came out of order")]
    fn a_frame_that_nobody_sent_is_noticed() {
        let mut world = asked();
        world.server.expected.clear();
        world.read(Side::Server, usize::MAX);
        world.settle();
    }

    #[test]
    #[should_panic(expected = "ended twice, or never began")]
    fn a_call_that_ends_twice_is_noticed() {
        let mut world = asked();
        world.client.ended(1);
        world.client.ended(1);
    }

    #[test]
    #[should_panic(expected = "calls that nobody hears of")]
    fn a_call_without_end_is_noticed() {
        let mut world = asked();
        world.client.open.insert(99, CallId::FIRST);
        world.finish();
    }
}
