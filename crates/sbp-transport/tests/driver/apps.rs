//! The smallest client and server that tests need.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sbp_frame::{CallId, OpCode, PayloadPart};
use sbp_session::{CallFailure, CloseReason, Event, Outgoing, SendError, Session};
use sbp_transport::Application;
use tokio::sync::oneshot;

/// How a call ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Ended {
    Answered(Bytes),
    Failed(CallFailure),
    NotSent(SendError),
}

/// A call to be made by a [`Caller`].
pub(crate) struct Call {
    pub(crate) payload: Bytes,
    pub(crate) timeout: Option<Duration>,
    pub(crate) reply: oneshot::Sender<Ended>,
}

pub(crate) fn call(payload: impl Into<Bytes>) -> (Call, oneshot::Receiver<Ended>) {
    let (reply, receiver) = oneshot::channel();
    (
        Call {
            payload: payload.into(),
            timeout: None,
            reply,
        },
        receiver,
    )
}

/// What happened to an application, in order.
pub(crate) type Journal = Arc<Mutex<Vec<String>>>;

/// A client: sends APPENDs and HEARTBEATs, and completes calls at the end of each turn.
#[derive(Default)]
pub(crate) struct Caller {
    waiting: Vec<Option<oneshot::Sender<Ended>>>,
    finished: Vec<(oneshot::Sender<Ended>, Ended)>,
    pub(crate) journal: Journal,
}

impl Caller {
    fn end(&mut self, user: u64, ended: Ended) {
        let slot = usize::try_from(user).ok().and_then(|user| self.waiting.get_mut(user));
        if let Some(reply) = slot.and_then(Option::take) {
            self.finished.push((reply, ended));
        }
    }
}

impl Application for Caller {
    type Endpoint = Session;
    type Command = Call;

    fn handle_command(&mut self, session: &mut Session, now: Instant, command: Call) {
        let request = Outgoing {
            opcode: OpCode::APPEND,
            header: b"append",
            payload: &[PayloadPart::Share(command.payload)],
            user: self.waiting.len() as u64,
            deadline: command.timeout.map(|timeout| now + timeout),
            receive_charge: 0,
        };
        match session.send_request(now, request) {
            Ok(_) => self.waiting.push(Some(command.reply)),
            Err(error) => self.finished.push((command.reply, Ended::NotSent(error))),
        }
    }

    fn handle_event(&mut self, session: &mut Session, now: Instant, event: Event) {
        match event {
            Event::Response {
                user, frame, end: true, ..
            } => {
                self.end(user, Ended::Answered(frame.payload.into_contiguous()));
            }
            Event::CallFailed { user, failure, .. } => self.end(user, Ended::Failed(failure)),
            Event::HeartbeatDue => {
                let heartbeat = Outgoing {
                    opcode: OpCode::HEARTBEAT,
                    header: b"heartbeat",
                    payload: &[],
                    user: u64::MAX,
                    deadline: None,
                    receive_charge: 0,
                };
                let _ = session.send_request(now, heartbeat);
            }
            _ => {}
        }
    }

    fn finish_turn(&mut self, _session: &mut Session, _now: Instant) {
        for (reply, ended) in self.finished.drain(..) {
            let _ = reply.send(ended);
        }
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.journal.lock().expect("no panic").push(format!("closed: {reason}"));
    }
}

/// A server: answers with what was sent. HEARTBEATs at once, APPENDs at the end of the turn or when told to.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) journal: Journal,
    /// Answers only when a timer of its own fires, so long after the oldest request.
    pub(crate) delay: Option<Duration>,
    pub(crate) due: Option<Instant>,
    pub(crate) requests: Vec<(CallId, OpCode, Bytes)>,
    /// Settled from the first APPEND on.
    pub(crate) settled: bool,
}

impl Echo {
    fn answer(&mut self, session: &mut Session) {
        for (id, opcode, payload) in self.requests.drain(..) {
            let _ = session.send_response(id, opcode, true, b"echo", &[PayloadPart::Share(payload)]);
        }
    }
}

impl Application for Echo {
    type Endpoint = Session;
    /// Go away.
    type Command = ();

    fn handle_command(&mut self, session: &mut Session, now: Instant, (): ()) {
        session.go_away(b"bye", now);
    }

    fn handle_event(&mut self, _session: &mut Session, now: Instant, event: Event) {
        if let Event::Request(frame) = event {
            self.settled |= frame.opcode == OpCode::APPEND;
            self.journal.lock().expect("no panic").push(frame.opcode.to_string());
            self.requests
                .push((frame.call_id, frame.opcode, frame.payload.into_contiguous()));
            if let Some(delay) = self.delay {
                self.due.get_or_insert(now + delay);
            }
        }
    }

    fn finish_turn(&mut self, session: &mut Session, _now: Instant) {
        if self.delay.is_none() {
            self.answer(session);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn handle_timeout(&mut self, session: &mut Session, _now: Instant) {
        self.due = None;
        self.answer(session);
    }

    fn is_settled(&self) -> bool {
        self.settled
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.journal.lock().expect("no panic").push(format!("closed: {reason}"));
    }
}
