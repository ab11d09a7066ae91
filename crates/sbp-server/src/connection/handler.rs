//! The application that handles the events of one session.

use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{Frame, OpCode};
use sbp_messages::{
    ClientRole, DescribePlacementDriverClusterRequest, DescribeRangesRequest, DescribeStreamsRequest, ErrorCode,
    GoAway, HeartbeatRequest, HeartbeatResponse, ListRangesRequest, Message, ReportMetricsRequest, Status,
    SyncRangesRequest,
};
use sbp_session::{CloseReason, Event, Session};
use sbp_transport::Application;
use sbp_types::ServerId;

use super::append::Appends;
use super::changes::{Changes, decode};
use super::cluster;
use super::fault::Fault;
use super::fetch::{FetchTurn, Fetches};
use super::handle::{ConnectionCommand, ConnectionHandle};
use super::range_server;
use super::ranges::RangeQueries;
use super::replier::Replier;
use super::streams;
use super::turn::RangeTurn;
use crate::node::Node;
use crate::range::Requester;
use crate::refusal::Refusal;
use crate::reject::reject_status;

/// One connection, with the requests of its peer that are not answered yet.
#[derive(Debug)]
pub(crate) struct Connection {
    node: Arc<Node>,
    handle: Arc<ConnectionHandle>,
    /// The same handle, as the range server uses it.
    requester: Arc<dyn Requester>,
    replier: Replier,
    appends: Appends,
    fetches: Fetches,
    range_work: RangeWork,
    /// The role that the peer gave in its first HEARTBEAT.
    peer_role: ClientRole,
    /// The range server at the other end, if the peer has sent a HEARTBEAT as one.
    present: Option<ServerId>,
    /// The answer to the first HEARTBEAT, which is also the answer to every later one.
    greeting: Option<HeartbeatResponse>,
    /// Whether the peer has sent any request. A PING is none.
    has_asked: bool,
}

/// The requests that wait for the placement driver or for range servers.
#[derive(Debug, Default)]
struct RangeWork {
    queries: RangeQueries,
    changes: Changes,
}

impl Connection {
    pub(crate) fn new(node: Arc<Node>, handle: Arc<ConnectionHandle>) -> Self {
        Self {
            node,
            requester: Arc::clone(&handle) as Arc<dyn Requester>,
            handle,
            replier: Replier::default(),
            appends: Appends::default(),
            fetches: Fetches::default(),
            range_work: RangeWork::default(),
            peer_role: ClientRole::UNSPECIFIED,
            present: None,
            greeting: None,
            has_asked: false,
        }
    }

    fn handle_request(&mut self, session: &mut Session, now: Instant, frame: Frame) {
        self.has_asked = true;
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
        if let Some(role) = &self.node.range_role
            && range_server::answers(frame.opcode)
        {
            return range_server::handle_request(role, &self.node, &self.handle, self.peer_role, &frame);
        }
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
            OpCode::CREATE_STREAMS
            | OpCode::UPDATE_STREAMS
            | OpCode::DELETE_STREAMS
            | OpCode::TRIM_STREAMS
            | OpCode::SEAL_RANGES
            | OpCode::CREATE_RANGE
            | OpCode::ALLOCATE_ID => self
                .range_work
                .changes
                .handle_request(&self.node, &self.handle, now, &frame),
            OpCode::DESCRIBE_STREAMS => {
                let request = decode(&frame, DescribeStreamsRequest::validate)?;
                streams::handle_describe(session, &mut self.replier, &self.node, call, request)
            }
            OpCode::LIST_RANGES => {
                let request = decode(&frame, ListRangesRequest::validate)?;
                let (work, mut turn) = self.range_turn(session);
                work.queries.handle_list(&mut turn, call, request)
            }
            OpCode::DESCRIBE_RANGES => {
                let request = decode(&frame, DescribeRangesRequest::validate)?;
                let (work, mut turn) = self.range_turn(session);
                work.queries.handle_describe(&mut turn, call, &request)
            }
            OpCode::SYNC_RANGES => {
                let request = decode(&frame, SyncRangesRequest::validate)?;
                let (work, mut turn) = self.range_turn(session);
                work.queries.handle_stored(&mut turn, call, &request)
            }
            OpCode::REPORT_METRICS => {
                let request = ReportMetricsRequest::decode(&frame.header)?;
                Ok(cluster::handle_report(
                    session,
                    &mut self.replier,
                    &self.node,
                    call,
                    request,
                )?)
            }
            OpCode::DESCRIBE_PD_CLUSTER => {
                DescribePlacementDriverClusterRequest::decode(&frame.header)?;
                Ok(cluster::handle_cluster(session, &mut self.replier, &self.node, call)?)
            }
            other => {
                let message = format!("{other} is not served by this version of the server");
                Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into())
            }
        }
    }

    fn handle_heartbeat(&mut self, session: &mut Session, frame: &Frame) -> Result<(), Fault> {
        let request = decode(frame, HeartbeatRequest::validate)?;
        let (node, id) = (&self.node, self.handle.id);
        match cluster::handle_presence(node, id, &request) {
            Ok(Some(server)) => self.present = Some(server),
            Ok(None) => {}
            Err(refusal) => {
                tracing::warn!(connection = id, why = %refusal.message, "a range server is not registered");
                let answer = node.offer.refusal(request, refusal.into());
                self.replier.finish(session, frame.call_id, &answer);
                return Ok(());
            }
        }
        if self.greeting.is_none() {
            self.peer_role = request.client_role;
        }
        let greeting = self
            .greeting
            .get_or_insert_with(|| node.offer.answer(&node.identity, id, request));
        self.replier.finish(session, frame.call_id, greeting);
        Ok(())
    }

    /// Tells the peer that no more calls are started, and answers the fetches that wait.
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

    /// The metadata requests under way, with the parts of the connection needed to answer them.
    fn range_turn<'a>(&'a mut self, session: &'a mut Session) -> (&'a mut RangeWork, RangeTurn<'a>) {
        let turn = RangeTurn {
            session,
            replier: &mut self.replier,
            node: &self.node,
            handle: &self.handle,
            asker: self.peer_role,
        };
        (&mut self.range_work, turn)
    }

    fn fetch_turn<'a>(&'a mut self, session: &'a mut Session, now: Instant) -> (&'a mut Fetches, FetchTurn<'a>) {
        let turn = FetchTurn {
            session,
            replier: &mut self.replier,
            node: &self.node,
            requester: &self.requester,
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
            ConnectionCommand::Changed { call, answer } => {
                let (work, mut turn) = self.range_turn(session);
                work.changes.handle_changed(&mut turn, call, answer);
            }
            ConnectionCommand::Ends { call, keys, ends } => {
                let (work, mut turn) = self.range_turn(session);
                if !work.queries.handle_ends(&mut turn, call, &keys, &ends) {
                    work.changes.handle_ends(&mut turn, call, &keys, &ends);
                }
            }
            ConnectionCommand::Answered { call, answer } => answer.send(session, &mut self.replier, call),
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
            Event::Closing { reason } => {
                if reason.is_peers_fault()
                    && let Some(left_out) = self.node.faults.due(now)
                {
                    tracing::warn!(connection = self.handle.id, %reason, left_out, "closing a connection");
                }
                let (fetches, mut turn) = self.fetch_turn(session, now);
                fetches.abandon(&mut turn);
            }
            // The other events concern requests that this side has sent, and it sends none.
            _ => {}
        }
    }

    fn finish_turn(&mut self, session: &mut Session, now: Instant) {
        self.appends
            .finish_turn(session, &mut self.replier, &self.node, &self.requester);
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

    fn held_bytes(&self) -> usize {
        self.fetches.reading()
    }

    fn is_settled(&self) -> bool {
        self.has_asked
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        tracing::debug!(connection = self.handle.id, %reason, "connection closed");
        self.fetches.handle_closed(&self.node, &self.requester);
        if let (Some(server), Ok(placement)) = (self.present, self.node.placement()) {
            placement.closed(server, self.handle.id);
        }
    }
}
