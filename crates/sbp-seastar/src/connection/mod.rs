//! One end of a connection as a state machine.

mod calls;
mod endpoint;
mod input;
mod output;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_wire::{Arrival, Core, Machine, OwnCalls, Pace, Patience};
use thiserror::Error;

use crate::codec::Codec;
use crate::event::{CloseReason, Event};
use crate::fault::Fault;
use crate::negotiation::Features;

/// How long a peer may take to negotiate.
const NEGOTIATION: Duration = Duration::from_secs(10);

/// How a client's end is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The ways to compress that the server is offered, the best first.
    pub codecs: Vec<Codec>,
    /// The isolation cookie, by which a server may choose how it schedules this connection.
    pub isolation: Option<Bytes>,
    /// The id of the connection that this one, which is to be a stream, belongs to.
    pub parent: Option<u64>,
    /// How long the server may take to negotiate.
    pub negotiation: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            codecs: Vec::new(),
            isolation: None,
            parent: None,
            negotiation: NEGOTIATION,
        }
    }
}

/// How a server's end is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// The ways to compress that it knows.
    pub codecs: Vec<Codec>,
    /// The id of this connection, where the server has streams.
    pub connection_id: Option<u64>,
    /// How long the client may take to negotiate.
    pub negotiation: Duration,
    /// Requests that may be under way.
    pub calls: usize,
    /// Bytes of them. A single one with more is answered with an exception.
    pub request_bytes: usize,
    /// Bytes that may wait for the client to take them.
    pub answer_bytes: usize,
    /// How fast a frame has to arrive that has begun to.
    pub pace: Pace,
    /// How long the client may take nothing. It may say nothing for ever: Seastar RPC has no message for that.
    pub patience: Patience,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            codecs: Codec::ALL.to_vec(),
            connection_id: None,
            negotiation: NEGOTIATION,
            calls: 4_096,
            request_bytes: 64 << 20,
            answer_bytes: 64 << 20,
            pace: Pace::default(),
            patience: Patience::default(),
        }
    }
}

/// What a connection has counted since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Complete frames received, that of the negotiation included.
    pub frames_in: u64,
    /// Responses to no request that is under way: it ran out of time, or never was.
    pub unknown_responses: u64,
    /// Replies that were not sent because the client has stopped waiting.
    pub late_replies: u64,
}

/// Why something was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The connection is closing.
    #[error("the connection is closed")]
    Closed,
    /// There is no such request under way.
    #[error("the request is not under way")]
    UnknownCall,
    /// The connection is not one that does this: a stream has no requests, and only a stream has messages. Or it has not
    /// negotiated yet.
    #[error("the connection is not one for this")]
    OtherKind,
    /// A stream has no empty messages.
    #[error("a stream has no empty messages")]
    Empty,
    /// It does not fit into a frame.
    #[error("it does not fit into a frame: {0}")]
    Unfit(#[from] Fault),
}

#[derive(Debug)]
enum Role {
    Client(Client),
    Server(Server),
}

#[derive(Debug)]
struct Client {
    offered: Vec<Codec>,
    /// By the ids of the requests, with the callers' tokens.
    calls: OwnCalls<i64, u64>,
    last: i64,
    /// Requests without a reply that are not written yet: where each begins and ends among all bytes ever queued, and the
    /// caller's token.
    unsent: VecDeque<Unsent>,
}

#[derive(Debug)]
struct Unsent {
    begins: u64,
    ends: u64,
    user: u64,
}

#[derive(Debug)]
struct Server {
    config: ServerConfig,
    /// The client's requests, by their ids.
    calls: HashMap<i64, PeerCall>,
    last: u64,
    /// Bytes of the requests that are under way.
    bytes: usize,
    /// How fast the next frame arrives. A client has deadlines for its responses instead.
    arrival: Arrival,
}

/// A request of the peer.
#[derive(Debug)]
struct PeerCall {
    number: u64,
    bytes: usize,
    begun: Instant,
    due: Option<Instant>,
}

/// What is being received.
///
/// ```text
/// Negotiation ------------> Frames <-> Skip
///             -> Admission -> Frames           a stream, at a server
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Negotiation,
    /// The server says whether there is the connection that the stream belongs to.
    Admission,
    Frames,
    /// A request that the server has no memory for.
    Skip {
        left: usize,
        id: i64,
        length: usize,
    },
}

/// What was agreed on.
#[derive(Debug, Clone, Copy, Default)]
struct Agreed {
    codec: Option<Codec>,
    timeout: bool,
    duration: bool,
}

/// What a stream has to remember.
#[derive(Debug, Clone, Copy, Default)]
struct StreamState {
    /// Messages that were told and not [taken](Connection::took), and their bytes.
    unread: usize,
    unread_bytes: usize,
    /// As many bytes wait to be written as may.
    is_full: bool,
    has_ended: bool,
    peer_has_ended: bool,
}

/// One end of a connection, a client's or a server's.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    /// What this side said, or will say.
    own: Features,
    /// It is a stream.
    stream: Option<StreamState>,
    agreed: Agreed,
    core: Core<Event, CloseReason>,
    /// Until when the peer has to negotiate, and how long that is.
    negotiate_by: Option<(Instant, Duration)>,
    stage: Stage,
    stats: Stats,
}

impl Connection {
    /// A client's end of a new connection. It may be used once it has [`Event::Negotiated`].
    #[must_use]
    pub fn client(config: ClientConfig, now: Instant) -> Self {
        let mut own = Features {
            // What is said on a stream is no request, and has no time to say.
            timeout: config.parent.is_none(),
            stream_parent: config.parent,
            isolation: config.isolation,
            handler_duration: true,
            ..Features::default()
        };
        own.offer(&config.codecs);
        let role = Role::Client(Client {
            offered: config.codecs,
            calls: OwnCalls::new(),
            last: 0,
            unsent: VecDeque::new(),
        });
        let is_stream = config.parent.is_some();
        let mut connection = Self::new(role, own, config.negotiation, Patience::default(), now);
        connection.stream = is_stream.then(StreamState::default);
        connection.queue_bytes(&connection.own.encode());
        connection
    }

    /// A server's end of a new connection.
    #[must_use]
    pub fn server(config: ServerConfig, now: Instant) -> Self {
        let own = Features {
            connection_id: config.connection_id,
            ..Features::default()
        };
        let (negotiation, patience) = (config.negotiation, config.patience);
        let role = Role::Server(Server {
            calls: HashMap::new(),
            last: 0,
            bytes: 0,
            arrival: Arrival::new(config.pace),
            config,
        });
        Self::new(role, own, negotiation, patience, now)
    }

    fn new(role: Role, own: Features, negotiation: Duration, patience: Patience, now: Instant) -> Self {
        Self {
            role,
            own,
            stream: None,
            agreed: Agreed::default(),
            core: Core::new(patience, now),
            negotiate_by: Some((now + negotiation, negotiation)),
            stage: Stage::Negotiation,
            stats: Stats::default(),
        }
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The number of own requests that are not over.
    #[must_use]
    pub fn own_calls(&self) -> usize {
        match &self.role {
            Role::Client(client) => client.calls.len() + client.unsent.len(),
            Role::Server(_) => 0,
        }
    }

    /// A peer that breaks the protocol is told nothing.
    fn end_for(&mut self, fault: Fault) {
        match self.negotiate_by {
            // Nothing was said yet that is worth being read.
            Some(_) => self.end_now(CloseReason::Violation(fault)),
            None => self.end_after_flush(CloseReason::Violation(fault)),
        }
    }

    fn queue_bytes(&mut self, bytes: &[u8]) {
        self.core.queue.push(bytes);
        self.core.keepalive.note_queued(self.core.now);
    }
}

#[cfg(test)]
mod tests;
