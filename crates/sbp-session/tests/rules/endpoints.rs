//! Two endpoints, a wire that carries as much as it likes, and a clock: whatever both do, and whenever.
//!
//! A run is a list of steps that nobody chose. Beside the two sessions a model keeps what was asked, started, answered
//! and told, and holds against it what each side says.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use sbp_frame::{CallId, OpCode, PayloadPart};
use sbp_session::{CallFailure, Event, Limits, Outgoing, SendError, Session, SessionConfig};

use crate::{
    pair::{Pair, events, move_bytes},
    script::pattern,
};

#[derive(Debug, Clone)]
enum Step {
    Call {
        payload: usize,
        timeout_ms: Option<u64>,
        charge: u32,
    },
    Cancel(usize),
    Answer {
        which: usize,
        end: bool,
        payload: usize,
    },
    Refuse(usize),
    Wait(usize),
    Carry {
        up: usize,
        down: usize,
    },
    CarryAll,
    Pass(u64),
    Ping {
        by_client: bool,
    },
    GoAway {
        by_client: bool,
    },
    Close {
        by_client: bool,
    },
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let length = || prop_oneof![8 => 0_usize..300, 1 => 30_000_usize..140_000];
    let charge = prop_oneof![Just(0), Just(70_000_u32), Just(1 << 20)];
    prop_oneof![
        20 => (length(), prop::option::of(1_u64..8_000), charge)
            .prop_map(|(payload, timeout_ms, charge)| Step::Call { payload, timeout_ms, charge }),
        3 => any::<usize>().prop_map(Step::Cancel),
        24 => (any::<usize>(), any::<bool>(), length())
            .prop_map(|(which, end, payload)| Step::Answer { which, end, payload }),
        2 => any::<usize>().prop_map(Step::Refuse),
        3 => any::<usize>().prop_map(Step::Wait),
        8 => (0_usize..4_000, 0_usize..4_000).prop_map(|(up, down)| Step::Carry { up, down }),
        20 => Just(Step::CarryAll),
        8 => prop_oneof![4 => 0_u64..900, 1 => 900_u64..40_000].prop_map(Step::Pass),
        3 => any::<bool>().prop_map(|by_client| Step::Ping { by_client }),
        1 => any::<bool>().prop_map(|by_client| Step::GoAway { by_client }),
        1 => prop_oneof![9 => Just(Step::CarryAll), 1 => any::<bool>().prop_map(|by_client| Step::Close { by_client })],
        1 => prop_oneof![9 => Just(Step::CarryAll), 1 => Just(Step::Cut)],
    ]
}

/// How a call ended for its caller.
#[derive(Debug, Clone, PartialEq)]
enum Ended {
    Answered,
    Cancelled,
    Failed { failure: CallFailure, bytes_sent: bool },
}

#[derive(Debug)]
struct Call {
    id: CallId,
    deadline: Option<std::time::Instant>,
    payload: usize,
    /// Bytes that the caller has room for.
    charge: usize,
    /// The server has been told that it waits.
    waits: bool,
    /// Frames of the answer that were queued, and that came.
    queued: usize,
    came: usize,
    /// Which of the frames was announced last.
    begun: Option<usize>,
    /// The server was told of it.
    started: bool,
    /// The server's last frame is queued.
    finished: bool,
    ended: Option<Ended>,
}

struct World {
    pair: Pair,
    calls: Vec<Call>,
    /// Calls by id that the server has and has not finished.
    open: BTreeMap<u32, usize>,
    client_left: bool,
    closed: [usize; 2],
}

impl World {
    fn new() -> Self {
        let now = std::time::Instant::now();
        let limits = Limits {
            calls: 6,
            waits: 3,
            request_bytes: 200_000,
            answer_bytes: 300_000,
            ..Limits::default()
        };
        let server = SessionConfig {
            limits,
            ..SessionConfig::server()
        };
        let client = SessionConfig {
            announce_answers: true,
            ..SessionConfig::client()
        };
        let pair = Pair {
            client: Session::new(client, now),
            server: Session::new(server, now),
            now,
        };
        Self {
            pair,
            calls: Vec::new(),
            open: BTreeMap::new(),
            client_left: false,
            closed: [0; 2],
        }
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Call {
                payload,
                timeout_ms,
                charge,
            } => self.call(*payload, *timeout_ms, *charge),
            Step::Cancel(which) => {
                if let Some(call) = pick(&mut self.calls, *which) {
                    self.pair.client.cancel(call.id);
                    if call.ended.is_none() {
                        call.ended = Some(Ended::Cancelled);
                    }
                }
            }
            Step::Answer { which, end, payload } => self.answer(*which, *end, *payload),
            Step::Refuse(which) => {
                if let Some(index) = self.pick_open(*which) {
                    let call = &mut self.calls[index];
                    if self.pair.server.close_reason().is_none() {
                        (call.queued, call.finished) = (call.queued + 1, true);
                    }
                    self.pair.server.send_system_error(call.id.raw(), OpCode::APPEND, b"no");
                    self.open.remove(&call.id.raw());
                }
            }
            Step::Wait(which) => {
                if let Some(index) = self.pick_open(*which) {
                    let call = &mut self.calls[index];
                    call.waits |= self.pair.server.mark_waiting(call.id);
                }
            }
            Step::Carry { up, down } => {
                move_bytes(&mut self.pair.client, &mut self.pair.server, self.pair.now, *up);
                move_bytes(&mut self.pair.server, &mut self.pair.client, self.pair.now, *down);
            }
            Step::CarryAll => self.pair.carry(),
            Step::Pass(milliseconds) => self.pass(Duration::from_millis(*milliseconds)),
            Step::Ping { by_client } => {
                let now = self.pair.now;
                let _ = self.side(*by_client).send_ping(now, u64::MAX, None);
            }
            Step::GoAway { by_client } => {
                let now = self.pair.now;
                self.side(*by_client).go_away(b"bye", now);
                self.client_left |= by_client;
            }
            Step::Close { by_client } => self.side(*by_client).close(),
            Step::Cut => {
                for by_client in [true, false] {
                    let now = self.pair.now;
                    let broken = std::io::ErrorKind::ConnectionReset.into();
                    self.side(by_client).handle_transport_error(broken, now);
                }
            }
        }
        self.listen();
        self.check_limits();
    }

    fn side(&mut self, client: bool) -> &mut Session {
        match client {
            true => &mut self.pair.client,
            false => &mut self.pair.server,
        }
    }

    fn pick_open(&self, which: usize) -> Option<usize> {
        let indices: Vec<_> = self.open.values().copied().collect();
        (!indices.is_empty()).then(|| indices[which % indices.len()])
    }

    fn call(&mut self, payload: usize, timeout_ms: Option<u64>, charge: u32) {
        let deadline = timeout_ms.map(|timeout| self.pair.now + Duration::from_millis(timeout));
        let bytes = pattern(payload);
        let request = Outgoing {
            opcode: OpCode::APPEND,
            header: b"ask",
            payload: &[PayloadPart::Copy(&bytes)],
            user: self.calls.len() as u64,
            deadline,
            receive_charge: charge,
        };
        let going = self.pair.client.is_going_away();
        match self.pair.client.send_request(self.pair.now, request) {
            Ok(id) => {
                assert!(!going && !self.client_left, "nothing starts on a connection that goes");
                let last = self.calls.last().map_or(0, |call| call.id.raw());
                assert!(id.raw() > last, "ids grow");
                self.calls.push(Call {
                    id,
                    deadline,
                    payload,
                    charge: charge as usize,
                    waits: false,
                    queued: 0,
                    came: 0,
                    begun: None,
                    started: false,
                    finished: false,
                    ended: None,
                });
            }
            Err(SendError::GoingAway | SendError::Closed) => assert!(going),
            Err(other) => panic!("{other}"),
        }
    }

    fn answer(&mut self, which: usize, end: bool, payload: usize) {
        let Some(index) = self.pick_open(which) else { return };
        let call = &mut self.calls[index];
        // Each frame says whose it is and which one.
        let header = format!("{index} {}", call.queued);
        let bytes = pattern(payload);
        let part = [PayloadPart::Copy(&bytes)];
        let sent = self
            .pair
            .server
            .send_response(call.id, OpCode::APPEND, end, header.as_bytes(), &part);
        match sent {
            Ok(()) => {
                call.queued += 1;
                call.finished |= end;
            }
            Err(error) => assert_eq!(error, SendError::Closed),
        }
        if end {
            self.open.remove(&call.id.raw());
        }
    }

    /// Moves time, stopping at each moment at which either side wants to be asked.
    fn pass(&mut self, time: Duration) {
        let end = self.pair.now + time;
        loop {
            let due = [&self.pair.client, &self.pair.server]
                .into_iter()
                .filter_map(Session::poll_timeout)
                .filter(|at| *at <= end)
                .min();
            let Some(at) = due else { break };
            self.pair.now = self.pair.now.max(at);
            for by_client in [true, false] {
                let now = self.pair.now;
                self.side(by_client).handle_timeout(now);
                let next = self.side(by_client).poll_timeout();
                assert!(next.is_none_or(|next| next > now), "a timer that stands still");
            }
            self.listen();
        }
        self.pair.now = end;
        self.listen();
        for call in &self.calls {
            let late = call.deadline.is_some_and(|deadline| deadline <= end);
            assert!(!late || call.ended.is_some(), "call {} outlived its deadline", call.id);
        }
    }

    /// Hears what both sides have to tell, and holds it against the model.
    fn listen(&mut self) {
        for event in events(&mut self.pair.server) {
            match event {
                Event::Request(frame) if frame.opcode == OpCode::APPEND => {
                    let index = self.calls.iter().position(|call| call.id == frame.call_id);
                    let index = index.expect("a request that was sent");
                    let call = &mut self.calls[index];
                    assert!(!call.started, "started twice");
                    assert_eq!(frame.payload.len(), call.payload);
                    call.started = true;
                    self.open.insert(call.id.raw(), index);
                }
                Event::Closing { .. } => self.closed[1] += 1,
                _ => {}
            }
        }
        for event in events(&mut self.pair.client) {
            match event {
                Event::ResponseBegins { user, call, header } => {
                    let known = &mut self.calls[usize::try_from(user).expect("an index")];
                    assert_eq!((known.id, &known.ended), (call, &None), "a beginning behind the end");
                    assert_ne!(known.begun.replace(known.came), Some(known.came), "a frame begins once");
                    assert_eq!(header, format!("{user} {}", known.came), "the frame that comes next");
                }
                Event::Response { user, call, frame, end } => {
                    let known = &mut self.calls[usize::try_from(user).expect("an index")];
                    assert_eq!((known.id, &known.ended), (call, &None), "an answer behind the end");
                    assert!(known.started);
                    known.came += 1;
                    let length = frame.payload.len();
                    if length <= known.charge {
                        assert!(frame.payload.chunks().len() <= 1, "what was charged lies in one piece");
                    }
                    known.charge = known.charge.saturating_sub(length);
                    if end {
                        assert!(known.finished && known.came == known.queued, "END is the last frame");
                        known.ended = Some(Ended::Answered);
                    } else {
                        assert_eq!(frame.header, format!("{user} {}", known.came - 1), "frames in order");
                    }
                }
                // A PING that did not come back.
                Event::CallFailed { user: u64::MAX, .. } => {}
                Event::CallFailed {
                    user,
                    failure,
                    bytes_sent,
                    ..
                } => {
                    let call = &mut self.calls[usize::try_from(user).expect("an index")];
                    assert_eq!(call.ended, None, "ended twice");
                    if failure == CallFailure::DeadlineExceeded {
                        assert!(
                            call.deadline.is_some_and(|deadline| deadline <= self.pair.now),
                            "too early"
                        );
                    }
                    call.ended = Some(Ended::Failed { failure, bytes_sent });
                }
                Event::Closing { .. } => self.closed[0] += 1,
                _ => {}
            }
        }
        assert!(self.closed.iter().all(|told| *told <= 1), "the end is told once");
    }

    fn check_limits(&self) {
        let server = &self.pair.server;
        assert!(server.peer_calls() <= 6 && server.waiting() <= 3);
        if server.close_reason().is_none() {
            assert_eq!(
                server.peer_calls() + server.waiting(),
                self.open.len(),
                "none lost, none twice"
            );
            let active = self.open.values().map(|index| &self.calls[*index]);
            let mut bytes: Vec<_> = active.filter(|call| !call.waits).map(|call| call.payload).collect();
            // It is taken in while there is any room, and the next one only then.
            bytes.pop();
            assert!(bytes.iter().sum::<usize>() < 200_000, "{bytes:?}");
        }
    }

    /// Ends the run: time without end, and a wire that carries everything.
    fn finish(&mut self) {
        for _ in 0..200 {
            self.pair.carry();
            self.listen();
            if self.pair.client.is_closed() && self.pair.server.is_closed() {
                break;
            }
            let closed = |session: &Session| session.is_closed();
            // A socket that one side has closed reads as its end for the other.
            if closed(&self.pair.server) && !closed(&self.pair.client) {
                self.pair.client.handle_eof(self.pair.now);
            } else if closed(&self.pair.client) && !closed(&self.pair.server) {
                self.pair.server.handle_eof(self.pair.now);
            } else {
                self.pair.client.close();
            }
            self.pass(Duration::from_secs(40));
        }
        self.listen();
        assert!(self.pair.client.is_closed() && self.pair.server.is_closed());
        assert_eq!(self.closed, [1, 1]);
        assert_eq!(self.pair.client.own_calls(), 0);
        for call in &self.calls {
            match &call.ended {
                None => panic!("call {} was forgotten", call.id),
                // What is said never to have been started must not have been: it will be sent again.
                Some(Ended::Failed {
                    failure: CallFailure::NotStarted,
                    ..
                }) => assert!(!call.started, "{}", call.id),
                Some(Ended::Failed { bytes_sent: false, .. }) => assert!(!call.started, "{}", call.id),
                Some(_) => {}
            }
        }
        let started: Vec<_> = self
            .calls
            .iter()
            .filter(|call| call.started)
            .map(|call| call.id)
            .collect();
        assert!(started.is_sorted());
    }
}

fn pick(calls: &mut [Call], which: usize) -> Option<&mut Call> {
    let count = calls.len();
    calls.get_mut(which.checked_rem(count)?)
}

proptest! {
    #[test]
    fn whatever_both_sides_do_every_call_ends_once(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.play(step);
        }
        world.finish();
    }
}
