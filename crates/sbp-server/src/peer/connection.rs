//! The application above one connection to a peer.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::BytesMut;
use sbp_frame::{Flags, Frame, OpCode};
use sbp_messages::{
    Encoder, ErrorCode, GoAway, HeartbeatRequest, HeartbeatResponse, Message, Status, SystemErrorResponse, Token,
};
use sbp_session::{CallFailure, CloseReason, Event, Outgoing, RejectReason, SendError, Session};
use sbp_transport::{Application, is_loopback};
use tokio::sync::oneshot;

use super::call::{Call, Ended, PeerCommand};
use super::shared::Shared;
use crate::reject::reject_status;

#[derive(Debug)]
enum InFlight {
    Greeting,
    Call {
        reply: oneshot::Sender<Ended>,
        frames: Vec<Frame>,
    },
}

/// Whether the peer has been told who this is.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    Unsaid,
    /// The token is being read.
    Reading,
    /// It must not be told, for this reason.
    Secret(String),
    Said,
}

/// One connection: what was asked and is not answered yet.
#[derive(Debug)]
pub(super) struct PeerConnection {
    channel: Arc<Shared>,
    /// What was dialled.
    address: Arc<str>,
    /// Which of the channel's connections this is.
    generation: u64,
    hello: HeartbeatRequest,
    identity: Identity,
    /// Calls that wait until the peer has been told who this is.
    held: Vec<Call>,
    /// Calls for which the session has no room yet, in their order.
    waiting: VecDeque<Call>,
    header: BytesMut,
    encoder: Encoder,
    calls: HashMap<u64, InFlight>,
    last_user: u64,
    /// Why this side has closed the connection, if the two servers do not talk with each other.
    not_greeted: Option<String>,
}

/// What a peer is told first on a connection.
fn hello(channel: &Shared) -> HeartbeatRequest {
    let mut hello = channel.config.hello.clone();
    hello.features.push(channel.config.cluster.feature());
    hello
}

impl PeerConnection {
    pub(super) fn new(channel: Arc<Shared>, address: Arc<str>, generation: u64) -> Self {
        Self {
            hello: hello(&channel),
            identity: Identity::Unsaid,
            held: Vec::new(),
            waiting: VecDeque::new(),
            channel,
            address,
            generation,
            header: BytesMut::new(),
            encoder: Encoder::new(),
            calls: HashMap::new(),
            last_user: 0,
            not_greeted: None,
        }
    }

    /// Refuses a request of the peer: only the side that accepted a connection serves requests on it. Without an answer
    /// the peer would wait.
    fn refuse(&mut self, session: &mut Session, raw_call_id: u32, opcode: OpCode, reason: RejectReason) {
        self.header.clear();
        let status = reject_status(reason);
        SystemErrorResponse { status }.encode(&mut self.encoder, &mut self.header);
        session.send_system_error(raw_call_id, opcode, &self.header);
    }

    fn next_user(&mut self) -> u64 {
        self.last_user += 1;
        self.last_user
    }

    /// Sends a request, behind those that wait for room.
    fn start(&mut self, session: &mut Session, now: Instant, call: Call) {
        self.waiting.push_back(call);
        self.start_waiting(session, now);
    }

    /// Sends requests as long as the session has room for them. One whose caller has stopped waiting for the answer is not sent.
    fn start_waiting(&mut self, session: &mut Session, now: Instant) {
        while let Some(call) = self.waiting.pop_front() {
            if call.reply.is_closed() {
                continue;
            }
            let user = self.next_user();
            let outgoing = Outgoing {
                opcode: call.opcode,
                header: &call.header,
                payload: &call.payload,
                user,
                deadline: Some(call.deadline),
                receive_charge: 0,
            };
            match session.send_request(now, outgoing) {
                Ok(_) => {
                    let (reply, frames) = (call.reply, Vec::new());
                    self.calls.insert(user, InFlight::Call { reply, frames });
                }
                Err(SendError::TooManyCalls) => {
                    self.waiting.push_front(call);
                    return;
                }
                Err(error @ (SendError::HeaderTooLarge { .. } | SendError::FrameTooLarge(_))) => {
                    tell(call.reply, Ended::Unusable(error.to_string()));
                }
                Err(error) => tell(call.reply, Ended::Lost(self.why_closed(session, &error))),
            }
        }
    }

    /// Says who this is, which a peer wants to know first on a connection, and when it asks. A token is read first, where
    /// nobody is served meanwhile.
    fn say_who(&mut self, session: &mut Session, now: Instant) {
        let config = &self.channel.config;
        let Some(token) = &config.token else {
            self.identity = Identity::Said;
            return self.greet(session, now);
        };
        if config.tls.is_none() && !token.in_clear && !is_loopback(&self.address) {
            let (path, peer) = (token.path.display(), &self.address);
            let why = format!(
                "the token in {path} is not sent in clear to {peer}, where others on the network could read it: talk TLS \
                 between servers, or, where the network is trusted, say so (--peer-token-in-clear)"
            );
            if !self.channel.has_kept_secret.swap(true, Ordering::Relaxed) {
                tracing::error!("{why}");
            }
            self.not_greeted(session, why.clone());
            self.identity = Identity::Secret(why);
            return;
        }
        let (channel, path) = (Arc::clone(&self.channel), token.path.clone());
        let (generation, peer) = (self.generation, Arc::clone(&self.address));
        if self.identity == Identity::Unsaid {
            self.identity = Identity::Reading;
        }
        self.channel.channel.runtime().spawn_blocking(move || {
            let token = read_token(&path, &peer);
            // Where that connection is over, nobody wants it.
            let _ = channel.channel.lock().post(PeerCommand::Token { generation, token });
        });
    }

    /// The token is here: the peer is told who this is, and then what waited for that.
    fn handle_token(&mut self, session: &mut Session, now: Instant, token: Token) {
        self.identity = Identity::Said;
        self.hello.token = token;
        self.greet(session, now);
        self.hello.token = Token::default();
        for call in std::mem::take(&mut self.held) {
            self.start(session, now, call);
        }
    }

    fn greet(&mut self, session: &mut Session, now: Instant) {
        self.header.clear();
        if let (Some(me), Some(followed)) = (&mut self.hello.range_server, &self.channel.config.followed) {
            me.followed = i64::try_from(followed.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        }
        self.hello.encode(&mut self.encoder, &mut self.header);
        let user = self.next_user();
        let outgoing = Outgoing {
            opcode: HeartbeatRequest::OPCODE,
            header: &self.header,
            payload: &[],
            user,
            deadline: Some(now + self.channel.config.connect_timeout),
            receive_charge: 0,
        };
        if session.send_request(now, outgoing).is_ok() {
            self.calls.insert(user, InFlight::Greeting);
        }
    }

    /// The peer has answered a HEARTBEAT: it is what it should be, and the first time the channel may say so.
    fn greeted(&mut self, session: &mut Session, frame: &Frame) {
        let answer = match refusal(frame) {
            None => HeartbeatResponse::decode(&frame.header).map_err(|error| refused(&error)),
            Some(status) => Err(refused(&status)),
        };
        let cluster = &self.channel.config.cluster;
        let answer = answer.and_then(|answer| cluster.take(&self.address, &answer).map(|()| answer));
        match answer {
            Ok(answer) if answer.status.is_success() => {
                if self.hello.connection_id == 0 && answer.connection_id > 0 {
                    self.hello.connection_id = answer.connection_id;
                }
                self.channel.greeted(self.generation);
            }
            Ok(HeartbeatResponse { status, .. }) => self.not_greeted(session, refused(&status)),
            Err(why) => self.not_greeted(session, why),
        }
    }

    /// The two servers do not talk with each other.
    fn not_greeted(&mut self, session: &mut Session, why: String) {
        self.channel.not_greeted(why.clone());
        self.not_greeted = Some(why);
        session.close();
    }

    fn handle_response(&mut self, session: &mut Session, user: u64, frame: Frame, end: bool) {
        self.channel.note_heard();
        match self.calls.get_mut(&user) {
            None => return,
            Some(InFlight::Greeting) => {
                if end {
                    self.calls.remove(&user);
                    self.greeted(session, &frame);
                }
                return;
            }
            Some(InFlight::Call { frames, .. }) => frames.push(frame),
        }
        if end && let Some(InFlight::Call { reply, frames }) = self.calls.remove(&user) {
            let ended = match frames.last().and_then(refusal) {
                // It did not start the request, and never will.
                Some(status) if status.code == ErrorCode::SHUTTING_DOWN => Ended::Lost(status.to_string()),
                Some(status) => Ended::Refused(status),
                None => Ended::Answered(frames),
            };
            tell(reply, ended);
        }
    }

    fn handle_failed(&mut self, session: &Session, user: u64, failure: &CallFailure) {
        if let Some(InFlight::Call { reply, .. }) = self.calls.remove(&user) {
            let ended = match failure {
                CallFailure::OpCodeMismatch { .. } | CallFailure::BadAnswer(_) => Ended::Unusable(failure.to_string()),
                _ => Ended::Lost(self.why_closed(session, failure)),
            };
            tell(reply, ended);
        }
    }

    /// Why the connection ended, where it did; else what a call failed of.
    fn why_closed(&self, session: &Session, failure: &dyn std::fmt::Display) -> String {
        match (&self.not_greeted, session.close_reason()) {
            (Some(why), _) => why.clone(),
            (None, Some(reason)) => reason.to_string(),
            (None, None) => failure.to_string(),
        }
    }
}

/// Reads the token that says who calls; may wait for the disk.
fn read_token(path: &Path, peer: &str) -> Token {
    match std::fs::read_to_string(path) {
        Ok(text) => Token::new(text.trim()),
        Err(error) => {
            let path = path.display();
            tracing::error!(%peer, %path, %error, "cannot read the token for other servers");
            Token::default()
        }
    }
}

fn refused(why: &dyn std::fmt::Display) -> String {
    format!("the peer refused the greeting: {why}")
}

/// What a system error says.
fn refusal(frame: &Frame) -> Option<Status> {
    frame
        .flags
        .contains(Flags::SYSTEM_ERROR)
        .then(|| match SystemErrorResponse::decode(&frame.header) {
            Ok(answer) => answer.status,
            Err(error) => Status::error(ErrorCode::UNKNOWN, error.to_string()),
        })
}

/// A receiver that is gone has given up on the call.
fn tell(reply: oneshot::Sender<Ended>, ended: Ended) {
    drop(reply.send(ended));
}

impl Application for PeerConnection {
    type Endpoint = Session;
    type Command = PeerCommand;

    fn handle_command(&mut self, session: &mut Session, now: Instant, command: PeerCommand) {
        match command {
            PeerCommand::Call(call) => match &self.identity {
                Identity::Reading => self.held.push(call),
                Identity::Secret(why) => tell(call.reply, Ended::Unusable(why.clone())),
                Identity::Unsaid | Identity::Said => self.start(session, now, call),
            },
            PeerCommand::Token { generation, token } if generation == self.generation => {
                self.handle_token(session, now, token);
            }
            PeerCommand::Token { .. } => {}
            PeerCommand::Close => {
                self.header.clear();
                GoAway::default().encode(&mut self.encoder, &mut self.header);
                session.go_away(&self.header, now);
            }
        }
    }

    fn handle_event(&mut self, session: &mut Session, now: Instant, event: Event) {
        match event {
            Event::Response { user, frame, end, .. } => {
                self.handle_response(session, user, frame, end);
                self.start_waiting(session, now);
            }
            Event::CallFailed { user, failure, .. } => {
                self.handle_failed(session, user, &failure);
                self.start_waiting(session, now);
            }
            Event::HeartbeatDue => match self.identity {
                Identity::Unsaid => self.say_who(session, now),
                Identity::Reading | Identity::Secret(_) => {}
                Identity::Said => self.greet(session, now),
            },
            Event::PeerGoAway { .. } => {
                self.channel.drains(self.generation, None);
                // Those go to the next connection.
                self.start_waiting(session, now);
            }
            Event::Closing { reason } => self.channel.drains(self.generation, Some(&reason)),
            Event::Reject {
                raw_call_id,
                opcode,
                reason,
                must_answer: true,
            } => {
                self.refuse(session, raw_call_id, opcode, reason);
                if opcode == HeartbeatRequest::OPCODE {
                    // The peer asks who this is: the token is about to expire.
                    self.say_who(session, now);
                }
            }
            // A session that dialled lets no request through, and answers PING itself.
            Event::Request(_) | Event::Reject { .. } | Event::Pong { .. } | Event::ResponseBegins { .. } => {}
        }
    }

    fn finish_turn(&mut self, _session: &mut Session, _now: Instant) {}

    fn handle_closed(&mut self, reason: &CloseReason) {
        tracing::debug!(address = %self.address, %reason, "the connection to a peer ended");
        self.channel.ended(self.generation, reason);
        let reason = self.not_greeted.clone().unwrap_or_else(|| reason.to_string());
        for call in self.held.drain(..).chain(self.waiting.drain(..)) {
            tell(call.reply, Ended::Lost(reason.clone()));
        }
        for (_, call) in self.calls.drain() {
            if let InFlight::Call { reply, .. } = call {
                tell(reply, Ended::Lost(reason.clone()));
            }
        }
    }
}
