//! The application above one session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::{
    CreateStreamsRequest, DecodeError, DescribeRangesRequest, DescribeStreamsRequest, ErrorCode, GoAway,
    HeartbeatRequest, HeartbeatResponse, ListRangesRequest, Message, Status, requested_timeout,
};
use sbp_session::{CloseReason, Event, Session};
use sbp_transport::Application;

use super::append::Appends;
use super::describe;
use super::fetch::{FetchTurn, Fetches};
use super::port::{ConnectionCommand, Port};
use super::reject::reject_status;
use super::replier::Replier;
use super::streams;
use crate::node::Node;
use crate::placement::{Command, MetadataJob, Reply, TokenError};
use crate::refusal::Refusal;

/// One connection: what its peer asked for and has not been answered yet.
#[derive(Debug)]
pub(crate) struct Connection {
    node: Arc<Node>,
    port: Arc<Port>,
    replier: Replier,
    appends: Appends,
    fetches: Fetches,
    /// CREATE_STREAMS under way: the names asked for.
    creating: HashMap<CallId, Vec<String>>,
    /// What the first HEARTBEAT was answered, and every later one is.
    greeting: Option<HeartbeatResponse>,
}

/// Why a request was not acted upon: the whole of it, with a system error.
pub(super) enum Fault {
    Header(DecodeError),
    Refused(Refusal),
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Header(error)
    }
}

impl From<sbp_messages::Refusal> for Fault {
    fn from(refusal: sbp_messages::Refusal) -> Self {
        Self::Header(refusal.into())
    }
}

impl From<TokenError> for Fault {
    fn from(error: TokenError) -> Self {
        Self::Refused(Refusal::invalid(error.to_string()))
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Connection {
    pub(crate) fn new(node: Arc<Node>, port: Arc<Port>) -> Self {
        Self {
            node,
            port,
            replier: Replier::default(),
            appends: Appends::default(),
            fetches: Fetches::default(),
            creating: HashMap::new(),
            greeting: None,
        }
    }

    fn handle_request(&mut self, session: &mut Session, now: Instant, frame: Frame) {
        let (call, opcode) = (frame.call_id, frame.opcode);
        let status = match self.dispatch(session, now, frame) {
            Ok(()) => return,
            Err(Fault::Refused(refusal)) => refusal.into(),
            Err(Fault::Header(error)) => {
                if error.costs_debt() {
                    session.handle_malformed_header(now);
                }
                error.to_status()
            }
        };
        self.replier.refuse(session, call.raw(), opcode, status);
    }

    fn dispatch(&mut self, session: &mut Session, now: Instant, frame: Frame) -> Result<(), Fault> {
        let call = frame.call_id;
        match frame.opcode {
            OpCode::APPEND => {
                self.node.ranges()?;
                Ok(self.appends.handle_request(frame, now)?)
            }
            OpCode::FETCH => {
                self.node.ranges()?;
                let (fetches, mut turn) = self.fetch_turn(session, now);
                Ok(fetches.handle_request(&mut turn, &frame)?)
            }
            OpCode::HEARTBEAT => self.handle_heartbeat(session, &frame),
            OpCode::CREATE_STREAMS => self.handle_create(session, now, &frame),
            OpCode::DESCRIBE_STREAMS => {
                let request = DescribeStreamsRequest::decode(&frame.header)?;
                request.validate()?;
                streams::handle_describe(session, &mut self.replier, &self.node, call, request)
            }
            OpCode::LIST_RANGES => {
                let request = ListRangesRequest::decode(&frame.header)?;
                request.validate()?;
                describe::handle_list(session, &mut self.replier, &self.node, call, request)
            }
            OpCode::DESCRIBE_RANGES => {
                let request = DescribeRangesRequest::decode(&frame.header)?;
                request.validate()?;
                Ok(describe::handle_describe(
                    session,
                    &mut self.replier,
                    &self.node,
                    call,
                    &request,
                )?)
            }
            other => {
                let message = format!("{other} is not served by this version of the server");
                Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into())
            }
        }
    }

    fn handle_heartbeat(&mut self, session: &mut Session, frame: &Frame) -> Result<(), Fault> {
        let request = HeartbeatRequest::decode(&frame.header)?;
        let (node, id) = (&self.node, self.port.id);
        let greeting = self
            .greeting
            .get_or_insert_with(|| node.offer.answer(&node.identity, id, request));
        self.replier.finish(session, frame.call_id, greeting);
        Ok(())
    }

    fn handle_create(&mut self, session: &mut Session, now: Instant, frame: &Frame) -> Result<(), Fault> {
        let request = CreateStreamsRequest::decode(&frame.header)?;
        request.validate()?;
        let deadline = now + requested_timeout(request.timeout_ms).unwrap_or(self.node.limits.default_timeout);
        let names = request.streams.iter().map(|stream| stream.name.clone()).collect();
        let wanted = request.streams.into_iter().map(streams::new_stream).collect();
        let call = frame.call_id;
        let job = MetadataJob {
            port: Arc::clone(&self.port),
            call,
            deadline,
            command: Command::CreateStreams(wanted),
        };
        if self.node.placement()?.submit(job) {
            self.creating.insert(call, names);
        } else {
            let refusal = Refusal::new(ErrorCode::SHUTTING_DOWN, "the server is shutting down");
            self.replier.refuse_call(session, call, OpCode::CREATE_STREAMS, refusal);
        }
        Ok(())
    }

    fn handle_changed(&mut self, session: &mut Session, call: CallId, answer: Result<Reply, Refusal>) {
        let names = self.creating.remove(&call).unwrap_or_default();
        match answer {
            Ok(Reply::Created(results)) => {
                streams::answer_created(session, &mut self.replier, &self.node, call, names, results);
            }
            Err(refusal) => self.replier.refuse_call(session, call, OpCode::CREATE_STREAMS, refusal),
        }
    }

    /// Tells the peer that nothing more is started, and ends what waits.
    fn go_away(&mut self, session: &mut Session, now: Instant) {
        let grace = i32::try_from(self.node.limits.shutdown_grace.as_millis()).unwrap_or(i32::MAX);
        let status = Status::error(ErrorCode::SHUTTING_DOWN, "the server is shutting down");
        session.go_away(
            self.replier.encode(&GoAway {
                status,
                grace_ms: grace,
            }),
            now,
        );
        let (fetches, mut turn) = self.fetch_turn(session, now);
        fetches.end_all(&mut turn);
    }

    fn fetch_turn<'a>(&'a mut self, session: &'a mut Session, now: Instant) -> (&'a mut Fetches, FetchTurn<'a>) {
        let turn = FetchTurn {
            session,
            replier: &mut self.replier,
            node: &self.node,
            port: &self.port,
            now,
        };
        (&mut self.fetches, turn)
    }
}

impl Application for Connection {
    type Command = ConnectionCommand;

    fn handle_command(&mut self, session: &mut Session, now: Instant, command: ConnectionCommand) {
        match command {
            ConnectionCommand::Appended(mut done) => {
                self.appends
                    .handle_done(session, &mut self.replier, &self.node, &mut done);
            }
            ConnectionCommand::Advanced(streams) => {
                let (fetches, mut turn) = self.fetch_turn(session, now);
                fetches.handle_advanced(&mut turn, &streams);
            }
            ConnectionCommand::Read { call, done } => {
                let (fetches, mut turn) = self.fetch_turn(session, now);
                fetches.handle_read(&mut turn, call, done);
            }
            ConnectionCommand::Changed { call, answer } => self.handle_changed(session, call, answer),
            ConnectionCommand::GoAway => self.go_away(session, now),
        }
    }

    fn handle_event(&mut self, session: &mut Session, now: Instant, event: Event) {
        match event {
            Event::Request(frame) => self.handle_request(session, now, frame),
            Event::Reject {
                raw_call_id,
                opcode,
                reason,
                must_answer: true,
            } => {
                self.replier.refuse(session, raw_call_id, opcode, reject_status(reason));
            }
            Event::PeerGoAway { .. } => {
                let (fetches, mut turn) = self.fetch_turn(session, now);
                fetches.end_all(&mut turn);
            }
            Event::Closing { reason } if reason.is_peers_fault() => {
                tracing::warn!(connection = self.port.id, %reason, "closing a connection");
            }
            // This side sends no requests, so nothing else concerns it.
            _ => {}
        }
    }

    fn finish_turn(&mut self, session: &mut Session, now: Instant) {
        self.appends
            .finish_turn(session, &mut self.replier, &self.node, &self.port);
        let (fetches, mut turn) = self.fetch_turn(session, now);
        fetches.finish_turn(&mut turn);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.fetches.poll_timeout()
    }

    fn handle_timeout(&mut self, session: &mut Session, now: Instant) {
        let (fetches, mut turn) = self.fetch_turn(session, now);
        fetches.handle_timeout(&mut turn);
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        tracing::debug!(connection = self.port.id, %reason, "connection closed");
        self.fetches.handle_closed(&self.node, &self.port);
    }
}
