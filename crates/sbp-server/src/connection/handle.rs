//! How other parts of the server reach a connection, and what it needs when they do.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{CallId, OpCode};
use sbp_messages::{ClientRole, Message};
use sbp_session::Session;
use sbp_transport::Mailbox;
use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::replier::Replier;
use crate::access::{Direction, Gate};
use crate::node::Node;
use crate::origin::Origin;
use crate::placement::Outcomes;
use crate::range::{AppendDone, Notification, ReadDone, Requester};
use crate::refusal::Refusal;

/// The id and mailbox of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    /// The connection's number, told to the peer in HEARTBEAT: above 0 and unique while the server runs.
    pub(crate) id: i64,
    pub(crate) mailbox: Mailbox<ConnectionCommand>,
}

/// What other parts of the server tell a connection.
#[derive(Debug)]
pub(crate) enum ConnectionCommand {
    /// The outcomes of this connection's batches in a group that the log has synced or failed to write.
    Appended(Vec<AppendDone>),
    /// Streams that fetches of this connection wait for have changed. The connection's registration for each is used up
    /// by this.
    Advanced {
        streams: Vec<StreamId>,
        /// When the first of the appends arrived that changed them, if appends did.
        arrived: Option<Instant>,
    },
    /// A reader thread has finished a read.
    Read { call: CallId, done: ReadDone },
    /// A change of metadata is durable or was refused as a whole.
    Changed {
        call: CallId,
        answer: Result<Outcomes, Refusal>,
    },
    /// A range server has told the confirmed ends of open ranges, for the answer to `call`.
    Ends {
        call: CallId,
        keys: Vec<RangeKey>,
        ends: Result<Vec<Option<Offset>>, Refusal>,
    },
    /// A range server in a process without the placement driver has done what the peer asked for.
    Answered { call: CallId, answer: Answer<()> },
    /// Who is known, or what somebody may do, has changed.
    AccessChanged,
    /// The server is shutting down.
    GoAway,
}

impl ConnectionHandle {
    /// Posts a command to the connection. Does nothing if the connection is closed: what is durable stays so.
    pub(crate) fn post(&self, command: ConnectionCommand) {
        let _gone = self.mailbox.post(command);
    }
}

impl Requester for ConnectionHandle {
    fn notify(&self, notification: Notification) {
        let Notification {
            appended,
            advanced: streams,
            arrived,
        } = notification;
        let mut commands = Vec::with_capacity(2);
        if !appended.is_empty() {
            commands.push(ConnectionCommand::Appended(appended));
        }
        if !streams.is_empty() {
            commands.push(ConnectionCommand::Advanced { streams, arrived });
        }
        let _gone = self.mailbox.post_all(&mut commands);
    }

    fn deliver(&self, call: CallId, found: ReadDone) {
        self.post(ConnectionCommand::Read { call, done: found });
    }

    fn is_gone(&self) -> bool {
        self.mailbox.is_closed()
    }
}

/// A connection while it handles one event: the parts of it that are needed to handle requests and to answer them.
pub(crate) struct Turn<'a> {
    pub(super) session: &'a mut Session,
    pub(super) replier: &'a mut Replier,
    pub(super) node: &'a Arc<Node>,
    pub(super) handle: &'a Arc<ConnectionHandle>,
    /// The same handle, as the range server uses it.
    pub(super) requester: &'a Arc<dyn Requester>,
    /// What the peer may do.
    pub(super) gate: &'a Gate,
    /// Where the peer is.
    pub(super) origin: &'a Origin,
    /// The role that the peer gave.
    pub(super) asker: ClientRole,
    /// The range server that the peer says it is.
    pub(super) asking_server: Option<ServerId>,
    pub(super) now: Instant,
}

impl Turn<'_> {
    /// Whether the peer may do this to the stream with this id.
    pub(super) fn check_stream(&self, opcode: OpCode, stream: StreamId) -> Result<(), Refusal> {
        let allowed = self
            .gate
            .check_id(opcode, stream, |stream, allowed| self.node.with_name(stream, allowed));
        match self.node.range_role.as_ref().filter(|_| self.node.metadata().is_none()) {
            // Also of a stream that is here: it may have another name by now. So who may not know of it learns nothing.
            Some(role) if allowed.is_err() && !role.knows_names() => Err(Refusal::names_unknown(stream)),
            Some(_) if allowed.is_err() && self.node.ranges()?.ask_for_name(stream) => {
                Err(Refusal::name_unknown(stream))
            }
            _ => allowed,
        }
    }

    /// Whether the peer may do this to a stream whose records may be lost by it.
    pub(super) fn check_forced(&self, opcode: OpCode, stream: StreamId) -> Result<(), Refusal> {
        let judge = |stream, allowed: &dyn Fn(Option<&str>) -> bool| self.node.with_name(stream, allowed);
        self.gate.check_forced(opcode, stream, judge)
    }

    /// How many milliseconds the quota of the peer's name asks it to wait; 0: not at all. Counted when it does.
    pub(super) fn quota_wait_ms(&self, direction: Direction) -> i32 {
        let Some(presence) = &self.replier.presence else {
            return 0;
        };
        let wait = presence.wait_ms(direction, self.now);
        if wait != 0 {
            let counters = &self.node.counters;
            let counter = match direction {
                Direction::In => &counters.throttled_in,
                Direction::Out => &counters.throttled_out,
            };
            counter.add(1);
        }
        wait
    }

    /// Sends the only or last frame of an answer.
    pub(super) fn finish<M: Message>(&mut self, call: CallId, message: &M) {
        self.replier.finish(self.session, call, message);
    }

    /// Ends a call with a system error.
    pub(super) fn refuse_call(&mut self, call: CallId, opcode: OpCode, refusal: Refusal) {
        let status = refusal.into();
        self.note(opcode, &status);
        self.replier.refuse(self.session, call.raw(), opcode, status);
    }
}

/// How a call is answered with a `T`, for which it waits.
pub(crate) struct Answer<T>(Box<GiveAnswer<T>>);

type GiveAnswer<T> = dyn FnOnce(&mut Turn<'_>, CallId, T) + Send;

impl<T> Answer<T> {
    pub(super) fn new(give: impl FnOnce(&mut Turn<'_>, CallId, T) + Send + 'static) -> Self {
        Self(Box::new(give))
    }

    pub(super) fn give(self, turn: &mut Turn<'_>, call: CallId, with: T) {
        (self.0)(turn, call, with);
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}
