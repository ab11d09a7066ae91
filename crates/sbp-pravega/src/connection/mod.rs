//! One end of a connection as a state machine.

mod endpoint;
mod input;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use sbp_wire::{Arrival, Collector, Core, OwnCalls, Pace, Patience};
use thiserror::Error;

use crate::coding::WriterId;
use crate::event::{Call, CloseReason, Event};
use crate::fault::Fault;
use crate::kinds::{HELLO, KEEP_ALIVE};
use crate::limits::{HIGH_VERSION, LOW_VERSION};
use crate::reply::Reply;
use crate::request::Request;

/// Bytes in front of every frame: the type and the length.
const HEAD: usize = 8;
/// Writers that one connection of a client may have.
const WRITERS: usize = 4_096;

/// How a client's end is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientConfig {
    /// How long the server may take to say Hello.
    pub greeting: Duration,
    /// How long a reply may take.
    pub reply: Duration,
    /// How often a KeepAlive is sent; a server that says nothing for three times as long is gone.
    pub keep_alive: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            greeting: Duration::from_secs(10),
            reply: Duration::from_secs(60),
            keep_alive: Duration::from_secs(20),
        }
    }
}

/// How a server's end is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerConfig {
    /// Requests that may be under way.
    pub calls: usize,
    /// Bytes of them.
    pub request_bytes: usize,
    /// Bytes of replies that may wait for the client to take them.
    pub reply_bytes: usize,
    /// How fast a request has to arrive that has begun to.
    pub pace: Pace,
    /// How long the client may say nothing while no request is under way, and take nothing.
    pub patience: Patience,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            calls: 1_024,
            request_bytes: 64 << 20,
            reply_bytes: 64 << 20,
            pace: Pace::default(),
            patience: Patience::default(),
        }
    }
}

/// What a connection has counted since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Complete frames received.
    pub frames_in: u64,
    /// Replies to no request that is under way: it ran out of time, or never was.
    pub unknown_replies: u64,
}

/// Why a request or a reply was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The connection is closing.
    #[error("the connection is closed")]
    Closed,
    /// There is no such request under way.
    #[error("the request is not under way")]
    UnknownCall,
    /// It does not fit into a frame.
    #[error("it does not fit into a frame: {0}")]
    Unfit(#[from] Fault),
}

/// What a client has asked, as far as its reply is recognized by it.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Append(WriterId),
    Read {
        segment: String,
        offset: i64,
    },
    /// Something else; the type of the reply.
    Other(i32),
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a connection has one, and there is nothing beside it"
)]
enum Role {
    Client {
        config: ClientConfig,
        /// Until when the server has to say Hello.
        greeted_by: Option<Instant>,
        calls: OwnCalls<i64, OwnCall>,
        /// The id of the last request.
        last: i64,
    },
    Server {
        calls: HashMap<u64, PeerCall>,
        last: u64,
        /// Bytes of the requests that are under way.
        bytes: usize,
        config: ServerConfig,
        /// How fast the next request arrives. A client has deadlines for its replies instead.
        arrival: Arrival,
        /// The newest version that the client speaks.
        version: i32,
        /// Those that were set up, or are being.
        writers: HashSet<WriterId>,
        /// The append that has begun.
        block: Option<(WriterId, Bytes)>,
    },
}

/// A request of this side.
#[derive(Debug)]
struct OwnCall {
    /// The caller's token.
    user: u64,
    asked: Asked,
}

/// A request of the peer.
#[derive(Debug)]
struct PeerCall {
    id: i64,
    bytes: usize,
    /// The writer that it sets up.
    sets_up: Option<WriterId>,
}

/// One end of a connection, a client's or a segment store's.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    core: Core<Event, CloseReason>,
    /// The frame whose head was received: its type and length.
    head: Option<(i32, usize)>,
    stats: Stats,
}

impl Connection {
    /// A client's end of a new connection, which begins with a Hello. It may be used once it is [`Event::Greeted`].
    #[must_use]
    pub fn client(config: ClientConfig, now: Instant) -> Self {
        let role = Role::Client {
            config,
            greeted_by: Some(now + config.greeting),
            calls: OwnCalls::new(),
            last: 0,
        };
        let patience = Patience {
            interval: config.keep_alive,
            ..Patience::default()
        };
        let mut connection = Self::new(role, patience, now);
        connection.hello();
        connection
    }

    /// A server's end of a new connection, which answers the client's Hello.
    #[must_use]
    pub fn server(config: ServerConfig, now: Instant) -> Self {
        let role = Role::Server {
            config,
            calls: HashMap::new(),
            last: 0,
            bytes: 0,
            arrival: Arrival::new(config.pace),
            version: HIGH_VERSION,
            writers: HashSet::new(),
            block: None,
        };
        Self::new(role, config.patience, now)
    }

    fn new(role: Role, patience: Patience, now: Instant) -> Self {
        Self {
            role,
            core: Core::new(patience, now),
            head: None,
            stats: Stats::default(),
        }
    }

    /// Queues a request. It ends with [`Event::Answered`] or [`Event::CallFailed`], each with `user`.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued then.
    pub fn send(&mut self, request: &Request, user: u64, now: Instant) -> Result<(), Refused> {
        self.core.advance_time(now);
        if !self.core.is_open() {
            return Err(Refused::Closed);
        }
        let Role::Client {
            config, calls, last, ..
        } = &mut self.role
        else {
            return Err(Refused::UnknownCall);
        };
        let id = last.wrapping_add(1).max(1);
        let (kind, frame) = request.collect(id)?;
        *last = id;
        let asked = Asked::of(request);
        calls.insert(
            id,
            OwnCall { user, asked },
            self.core.now + config.reply,
            self.core.queue.pushed(),
        );
        self.queue_frame(kind, frame);
        Ok(())
    }

    /// Answers a request of the client.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued then, and the request is over only if the connection is closed.
    pub fn answer(&mut self, call: Call, reply: &Reply, now: Instant) -> Result<(), Refused> {
        self.core.advance_time(now);
        let is_open = self.core.is_open();
        let Role::Server {
            calls,
            bytes,
            version,
            writers,
            ..
        } = &mut self.role
        else {
            return Err(Refused::UnknownCall);
        };
        let Some(of_peer) = calls.get(&call.0) else {
            return Err(Refused::UnknownCall);
        };
        let collected = match is_open {
            true => Some(reply.collect(of_peer.id, *version)?),
            false => None,
        };
        *bytes = bytes.saturating_sub(of_peer.bytes);
        if let Some(writer) = of_peer.sets_up
            && !matches!(reply, Reply::AppendSetup { .. })
        {
            writers.remove(&writer);
        }
        calls.remove(&call.0);
        let Some(frame) = collected else {
            return Err(Refused::Closed);
        };
        self.queue_frame(reply.kind(), frame);
        Ok(())
    }

    /// The number of own requests that are not over.
    #[must_use]
    pub fn own_calls(&self) -> usize {
        match &self.role {
            Role::Client { calls, .. } => calls.len(),
            Role::Server { .. } => 0,
        }
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn hello(&mut self) {
        let mut frame = Collector::default();
        frame.head.put_i32(HIGH_VERSION);
        frame.head.put_i32(LOW_VERSION);
        self.queue_frame(HELLO, frame);
    }

    fn keep_alive(&mut self) {
        self.queue_frame(KEEP_ALIVE, Collector::default());
    }

    fn queue_frame(&mut self, kind: i32, frame: Collector) {
        let length = u32::try_from(frame.length()).unwrap_or(u32::MAX);
        let mut head = [0; HEAD];
        let (kind_bytes, length_bytes) = head.split_at_mut(4);
        kind_bytes.copy_from_slice(&kind.to_be_bytes());
        length_bytes.copy_from_slice(&length.to_be_bytes());
        frame.queue(&head, &mut self.core.queue);
        self.core.keepalive.note_queued(self.core.now);
    }
}

impl Asked {
    fn of(request: &Request) -> Self {
        match request {
            Request::Append { writer, .. } | Request::ConditionalAppend { writer, .. } => Self::Append(*writer),
            Request::Read { segment, offset, .. } => Self::Read {
                segment: segment.clone(),
                offset: *offset,
            },
            other => Self::Other(other.reply_kind()),
        }
    }

    /// Whether the reply is one to this.
    fn is_answered_by(&self, reply: &Reply) -> bool {
        self.is_named_by(reply) || *self == Self::Other(reply.kind()) || reply.is_failure()
    }

    /// Whether the reply itself says that it is one to this.
    fn is_named_by(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (
                Self::Append(writer),
                Reply::Appended { writer: of, .. }
                | Reply::ConditionFailed { writer: of, .. }
                | Reply::InvalidEventNumber { writer: of, .. },
            ) => writer == of,
            (
                Self::Read { segment, offset },
                Reply::Read {
                    segment: of,
                    offset: at,
                    ..
                },
            ) => segment == of && offset == at,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
