//! One end of a connection as a state machine.

mod endpoint;
mod input;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sbp_wire::{Arrival, Core, OwnCalls, Pace, Patience};
use thiserror::Error;

use self::input::Stage;
use crate::answer::{Answer, Asked};
use crate::coding::{Collector, queue_frame};
use crate::event::{Call, CloseReason, Event};
use crate::fault::Fault;
use crate::request::{PING, Request};

/// How a client's end is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientConfig {
    /// How long the broker may take to greet.
    pub greeting: Duration,
    /// How long a Produce may take.
    pub produce: Duration,
    /// How long a Consume may take beside the time it waits for messages, and how long each bundle of its answer.
    pub consume: Duration,
    /// How long any other request may take.
    pub other: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            greeting: Duration::from_secs(2),
            produce: Duration::from_secs(32),
            consume: Duration::from_secs(10),
            other: Duration::from_secs(32),
        }
    }
}

/// How a broker's end is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerConfig {
    /// After how long without a byte to write it sends a Ping.
    pub ping_every: Duration,
    /// Requests that may be under way.
    pub calls: usize,
    /// Bytes of them.
    pub request_bytes: usize,
    /// Bytes of answers that may wait for the client to take them.
    pub answer_bytes: usize,
    /// How fast a request has to arrive that has begun to.
    pub pace: Pace,
    /// How long the client may say nothing while no request is under way, and take nothing.
    pub patience: Patience,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(10),
            calls: 1_024,
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
    /// Complete frames received.
    pub frames_in: u64,
    /// Answers to no request that is under way: it ran out of time, or never was.
    pub unknown_answers: u64,
    /// Pings received.
    pub pings: u64,
}

/// Why a request or an answer was not queued.
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

#[derive(Debug)]
enum Role {
    Client {
        config: ClientConfig,
        /// Until when the broker has to greet.
        greeted_by: Option<Instant>,
        calls: OwnCalls<u32, OwnCall>,
        /// The id of the last request.
        last: u32,
    },
    Server {
        config: ServerConfig,
        calls: HashMap<u64, PeerCall>,
        last: u64,
        /// Bytes of the requests that are under way.
        bytes: usize,
        ping_at: Instant,
        /// How fast the next request arrives. A client has deadlines for its answers instead.
        arrival: Arrival,
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
    id: u32,
    bytes: usize,
}

/// One end of a connection, a client's or a broker's.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    core: Core<Event, CloseReason>,
    stage: Stage,
    stats: Stats,
}

impl Connection {
    /// A client's end of a new connection. It may be used once it is [`Event::Greeted`].
    #[must_use]
    pub fn client(config: ClientConfig, now: Instant) -> Self {
        let role = Role::Client {
            config,
            greeted_by: Some(now + config.greeting),
            calls: OwnCalls::new(),
            last: 0,
        };
        Self::new(role, Patience::default(), now)
    }

    /// A broker's end of a new connection, which begins with a Ping.
    #[must_use]
    pub fn server(config: ServerConfig, now: Instant) -> Self {
        let role = Role::Server {
            config,
            calls: HashMap::new(),
            last: 0,
            bytes: 0,
            ping_at: now,
            arrival: Arrival::new(config.pace),
        };
        let mut connection = Self::new(role, config.patience, now);
        connection.ping();
        connection
    }

    fn new(role: Role, patience: Patience, now: Instant) -> Self {
        Self {
            role,
            core: Core::new(patience, now),
            stage: Stage::Head,
            stats: Stats::default(),
        }
    }

    /// Queues a request. It ends with [`Event::Answered`], [`Event::ConsumeEnded`] or [`Event::CallFailed`], each with `user`.
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
        let id = next_id(calls, last);
        let (message, frame) = request.collect(id)?;
        let (asked, patience) = match request {
            Request::Produce(produce) => {
                let partitions = produce.topics.iter().map(|topic| topic.partitions.len());
                (Asked::Produce(partitions.collect()), config.produce)
            }
            Request::Consume { wait_ms, .. } => {
                let wait = Duration::from_millis((*wait_ms).min(LONGEST_WAIT_MS));
                (Asked::Consume, config.consume + wait)
            }
            Request::DiscoverPartitions { .. } => (Asked::Partitions, config.other),
            Request::CreateTopic { .. } => (Asked::Create, config.other),
            Request::Status => (Asked::Status, config.other),
            Request::DiscoverTopics => (Asked::Topics, config.other),
            Request::Topology => (Asked::Topology, config.other),
        };
        calls.insert(id, OwnCall { user, asked }, now + patience, self.core.queue.pushed());
        self.queue_frame(message, frame);
        Ok(())
    }

    /// Answers a request of the client.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued then, and the request is over only if the connection is closed.
    pub fn answer(&mut self, call: Call, answer: &Answer, now: Instant) -> Result<(), Refused> {
        self.core.advance_time(now);
        let Role::Server { calls, bytes, .. } = &mut self.role else {
            return Err(Refused::UnknownCall);
        };
        let Some(of_peer) = calls.get(&call.0) else {
            return Err(Refused::UnknownCall);
        };
        let collected = match self.core.is_open() {
            true => Some(answer.collect(of_peer.id)?),
            false => None,
        };
        *bytes = bytes.saturating_sub(of_peer.bytes);
        calls.remove(&call.0);
        let Some((message, frame)) = collected else {
            return Err(Refused::Closed);
        };
        self.queue_frame(message, frame);
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

    fn ping(&mut self) {
        self.queue_frame(PING, Collector::default());
    }

    fn queue_frame(&mut self, message: u8, frame: Collector) {
        queue_frame(message, frame, &mut self.core.queue);
        self.core.keepalive.note_queued(self.core.now);
        if let Role::Server { config, ping_at, .. } = &mut self.role {
            *ping_at = self.core.now + config.ping_every;
        }
    }
}

/// An id that no request has.
fn next_id(calls: &OwnCalls<u32, OwnCall>, last: &mut u32) -> u32 {
    loop {
        *last = last.wrapping_add(1);
        if !calls.contains(*last) {
            return *last;
        }
    }
}

/// Longer waits than this are taken for it: 2^32 milliseconds.
const LONGEST_WAIT_MS: u64 = 1 << 32;

#[cfg(test)]
mod tests;
