//! The application that handles the events of one session.

use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{Frame, OpCode};
use sbp_messages::{
    ClientRole, DescribePlacementDriverClusterRequest, DescribeRangesRequest, DescribeStreamsRequest, GoAway,
    HeartbeatRequest, HeartbeatResponse, ListRangesRequest, Message, ReportMetricsRequest, ServerState, Status,
    SyncRangesRequest, features,
};
use sbp_session::{CloseReason, Event, RejectReason, Session};
use sbp_transport::{Application, Place};
use sbp_types::ServerId;

use super::append::Appends;
use super::changes::decode;
use super::cluster;
use super::fault::Fault;
use super::fetch::{self, Fetches};
use super::handle::{ConnectionCommand, ConnectionHandle, Turn};
use super::identification::Identification;
use super::metadata::MetadataCalls;
use super::range_server;
use super::replier::Replier;
use super::streams;
use crate::access::Gate;
use crate::cluster_id::check_greeting;
use crate::node::Node;
use crate::offer::cluster_for;
use crate::origin::Origin;
use crate::range::Requester;
use crate::refusal::Refusal;
use crate::reject::reject_status;

/// One connection, with the requests of its peer that are not answered yet.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) node: Arc<Node>,
    pub(super) handle: Arc<ConnectionHandle>,
    origin: Origin,
    /// Where it counts.
    pub(super) place: Arc<Place>,
    /// The same handle, as the range server uses it.
    requester: Arc<dyn Requester>,
    pub(super) replier: Replier,
    pub(super) work: Work,
    /// What the peer may do.
    pub(super) gate: Gate,
    pub(super) identification: Identification,
    /// The role that the peer gave in its first HEARTBEAT.
    peer_role: ClientRole,
    /// The range server that the peer said it is in its first HEARTBEAT.
    peer_server: Option<ServerId>,
    /// The range server at the other end, if the peer has sent a HEARTBEAT as one.
    present: Option<ServerId>,
    /// The answer to the first HEARTBEAT, which is also the answer to every later one.
    greeting: Option<HeartbeatResponse>,
    /// The peer is a server of another cluster, for which nothing is done.
    foreign: Option<Refusal>,
    /// Whether the peer has sent any request. A PING is none.
    has_asked: bool,
}

/// The requests that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) appends: Appends,
    pub(super) fetches: Fetches,
    metadata: MetadataCalls,
}

impl Connection {
    pub(crate) fn new(node: Arc<Node>, handle: Arc<ConnectionHandle>, origin: Origin, place: Arc<Place>) -> Self {
        Self {
            node,
            requester: Arc::clone(&handle) as Arc<dyn Requester>,
            handle,
            origin,
            place,
            replier: Replier::default(),
            work: Work::default(),
            gate: Gate::default(),
            identification: Identification::default(),
            peer_role: ClientRole::UNSPECIFIED,
            peer_server: None,
            present: None,
            greeting: None,
            foreign: None,
            has_asked: false,
        }
    }

    /// Who is at the other end.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The requests under way, with the parts of the connection that are needed to answer them.
    pub(super) fn turn<'a>(&'a mut self, session: &'a mut Session, now: Instant) -> (&'a mut Work, Turn<'a>) {
        let turn = Turn {
            session,
            replier: &mut self.replier,
            node: &self.node,
            handle: &self.handle,
            requester: &self.requester,
            gate: &self.gate,
            origin: &self.origin,
            asker: self.peer_role,
            asking_server: self.peer_server,
            now,
        };
        (&mut self.work, turn)
    }

    fn handle_request(&mut self, session: &mut Session, now: Instant, frame: Frame) {
        self.has_asked = true;
        let (call, opcode) = (frame.call_id, frame.opcode);
        let status: Status = match self.dispatch(session, now, frame) {
            Ok(()) => return,
            Err(Fault::Refused(refusal)) => refusal.into(),
            Err(Fault::Header(error)) => {
                if error.costs_debt() {
                    session.handle_malformed_header(now);
                }
                error.to_status()
            }
        };
        self.turn(session, now).1.note(opcode, &status);
        self.replier.refuse(session, call.raw(), opcode, status);
    }

    fn dispatch(&mut self, session: &mut Session, now: Instant, frame: Frame) -> Result<(), Fault> {
        let begun = self.replier.begin_call();
        if frame.opcode == OpCode::HEARTBEAT {
            return self.handle_heartbeat(session, now, &frame);
        }
        if let Some(refusal) = &self.foreign {
            return Err(refusal.clone().into());
        }
        // A peer that gives up what it waits for makes room.
        if let Err(refusal) = begun
            && !fetch::is_withdrawal(&frame)
        {
            return Err(refusal.into());
        }
        self.gate.check_request(frame.opcode)?;
        let call = frame.call_id;
        let (work, mut turn) = self.turn(session, now);
        let (node, turn) = (turn.node, &mut turn);
        if range_server::answers(frame.opcode)
            && let Some(role) = node.range_role_for(turn.asker)
        {
            return range_server::handle_request(role, turn, &frame);
        }
        match frame.opcode {
            OpCode::APPEND => {
                node.ranges()?;
                Ok(work.appends.handle_request(turn, &frame)?)
            }
            OpCode::FETCH => {
                node.ranges()?;
                Ok(work.fetches.handle_request(turn, &frame)?)
            }
            OpCode::DESCRIBE_STREAMS => {
                streams::handle_describe(turn, call, decode(&frame, DescribeStreamsRequest::validate)?)
            }
            OpCode::LIST_RANGES => {
                let request = decode(&frame, ListRangesRequest::validate)?;
                MetadataCalls::handle_list(turn, call, request)
            }
            OpCode::DESCRIBE_RANGES => {
                let request = decode(&frame, DescribeRangesRequest::validate)?;
                work.metadata.handle_describe(turn, call, &request)
            }
            OpCode::SYNC_RANGES => {
                let request = decode(&frame, SyncRangesRequest::validate)?;
                MetadataCalls::handle_sync(turn, call, &request)
            }
            OpCode::REPORT_METRICS => {
                let request = ReportMetricsRequest::decode(&frame.header)?;
                match request.wanted {
                    ServerState::UNSPECIFIED => Ok(cluster::handle_report(turn, call, request)?),
                    _ => work.metadata.handle_change(turn, &frame),
                }
            }
            OpCode::DESCRIBE_PD_CLUSTER => {
                DescribePlacementDriverClusterRequest::decode(&frame.header)?;
                Ok(cluster::handle_cluster(turn, call)?)
            }
            _ => work.metadata.handle_change(turn, &frame),
        }
    }

    fn handle_heartbeat(&mut self, session: &mut Session, now: Instant, frame: &Frame) -> Result<(), Fault> {
        let request = decode(frame, HeartbeatRequest::validate)?;
        let node = Arc::clone(&self.node);
        if let Err(refusal) = self.identify(session, now, &request) {
            let answer = node.offer.refusal(None, request, refusal.into());
            self.replier.finish(session, frame.call_id, &answer);
            // It may say nothing more until its time is up.
            self.replier.shrink();
            if self.identification.is_hopeless() {
                session.close();
            }
            return Ok(());
        }
        let (node, id) = (&self.node, self.handle.id);
        if let Err(refusal) = check_greeting(&node.cluster, &request) {
            let from = &self.origin;
            tracing::warn!(connection = id, %from, why = %refusal.message, "a server of another cluster is refused");
            let answer = node.offer.refusal(node.cluster.get(), request, refusal.clone().into());
            self.replier.finish(session, frame.call_id, &answer);
            self.foreign = Some(refusal);
            return Ok(());
        }
        match cluster::handle_presence(node, id, &request) {
            Ok(Some(server)) => self.present = Some(server),
            Ok(None) => {}
            Err(refusal) => {
                let from = &self.origin;
                tracing::warn!(connection = id, %from, why = %refusal.message, "a range server is not registered");
                let answer = node.offer.refusal(node.cluster.get(), request, refusal.into());
                self.replier.finish(session, frame.call_id, &answer);
                return Ok(());
            }
        }
        if self.greeting.is_none() {
            self.peer_role = request.client_role;
            let server = request.range_server.as_ref().map(|server| server.server_id);
            self.peer_server = server.filter(|_| request.client_role == ClientRole::RANGE_SERVER);
        }
        // What a range server tells the placement driver of this process says nothing of its link to the range server.
        if let (Some(server), Some(ranges), None) = (self.peer_server, &node.ranges, self.present) {
            ranges.hear(server, ranges.running_for());
        }
        let cluster = node.cluster.get().filter(|_| self.is_told_the_cluster(&request));
        let told = cluster_for(cluster, &request);
        let greeting = self
            .greeting
            .get_or_insert_with(|| node.offer.answer(&node.identity, cluster, id, request));
        // It was not known yet when the first one was answered.
        if let Some(told) = told
            && features::find(&greeting.features, features::CLUSTER).is_none()
        {
            greeting.features.push(told);
        }
        self.replier.finish(session, frame.call_id, greeting);
        Ok(())
    }

    /// Whether this peer may take the cluster for its own: a range server whose number was not given out here may not.
    fn is_told_the_cluster(&self, request: &HeartbeatRequest) -> bool {
        let registers = request.client_role == ClientRole::RANGE_SERVER
            && request
                .range_server
                .as_ref()
                .is_some_and(|server| !server.advertise_addr.is_empty());
        !registers || self.present.is_some() || self.node.placement.is_none()
    }

    /// Tells the peer that no more calls are started, and answers the fetches that wait.
    fn go_away(&mut self, session: &mut Session, now: Instant) {
        let going = GoAway {
            status: Refusal::shutting_down().into(),
            grace_ms: i32::try_from(self.node.limits.shutdown_grace.as_millis()).unwrap_or(i32::MAX),
        };
        session.go_away(self.replier.encode(&going), now);
        let (work, mut turn) = self.turn(session, now);
        work.fetches.end_all(&mut turn);
    }
}

impl Application for Connection {
    type Endpoint = Session;
    type Command = ConnectionCommand;

    fn handle_command(&mut self, session: &mut Session, now: Instant, command: ConnectionCommand) {
        let (work, mut turn) = self.turn(session, now);
        let turn = &mut turn;
        match command {
            ConnectionCommand::Appended(mut done) => work.appends.handle_done(turn, &mut done, now),
            ConnectionCommand::Advanced { streams, arrived } => work.fetches.handle_advanced(turn, &streams, arrived),
            ConnectionCommand::Read { call, done } => work.fetches.handle_read(turn, call, done),
            ConnectionCommand::Changed { call, answer } => work.metadata.handle_changed(turn, call, answer),
            ConnectionCommand::Ends { call, keys, ends } => work.metadata.handle_ends(turn, call, &keys, &ends),
            ConnectionCommand::Answered { call, answer } => answer.give(turn, call, ()),
            ConnectionCommand::AccessChanged => self.look_again(session, now),
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
                let status = match reason {
                    RejectReason::NotAuthenticated => self.not_authenticated(),
                    reason => reject_status(reason),
                };
                self.turn(session, now).1.note(opcode, &status);
                // What is counted here ends with the answer.
                let _ = self.replier.begin_call();
                self.replier.refuse(session, raw_call_id, opcode, status);
            }
            Event::PeerGoAway { .. } => {
                let (work, mut turn) = self.turn(session, now);
                work.fetches.end_all(&mut turn);
            }
            Event::Closing { reason } => {
                if reason.is_peers_fault()
                    && let Some(left_out) = self.node.faults.due(now)
                {
                    tracing::warn!(connection = self.handle.id, %reason, left_out, "closing a connection");
                }
                let (work, mut turn) = self.turn(session, now);
                work.fetches.abandon(&mut turn);
            }
            // The other events concern requests that this side has sent, and it sends none.
            _ => {}
        }
    }

    fn finish_turn(&mut self, session: &mut Session, now: Instant) {
        let (work, mut turn) = self.turn(session, now);
        work.appends.finish_turn(&mut turn);
        work.fetches.finish_turn(&mut turn);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let fetches = self.work.fetches.poll_timeout();
        fetches.into_iter().chain(self.identification.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, session: &mut Session, now: Instant) {
        let (work, mut turn) = self.turn(session, now);
        work.fetches.handle_timeout(&mut turn);
        self.check_expiry(session, now);
    }

    fn held_bytes(&self) -> usize {
        self.work.fetches.reading()
    }

    fn is_settled(&self) -> bool {
        // Who is not known stays with those who only come and go.
        self.has_asked && self.is_known()
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        tracing::debug!(connection = self.handle.id, %reason, "connection closed");
        self.work.fetches.handle_closed(&self.node, &self.requester);
        if let (Some(server), Some(placement)) = (self.present, &self.node.placement) {
            placement.closed(server, self.handle.id);
        }
    }
}
