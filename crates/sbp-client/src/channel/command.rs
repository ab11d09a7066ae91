//! What a connection can be told to do.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_frame::{Frame, OpCode};
use sbp_messages::Token;
use smallvec::SmallVec;
use tokio::sync::{mpsc, oneshot};

use crate::channel::credit::Charge;
use crate::failure::Failure;
use crate::features::Features;
use crate::submission::{AttemptSink, Submissions};

/// What a connection is told to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send these appends, in their order.
    Appends(Submissions),
    /// Make one call and gather its answer.
    Call(Box<Call>),
    /// Measure a round trip.
    Ping(Box<Ping>),
    /// Make one FETCH and pass its answers on as they come.
    Fetch(Box<Fetch>),
    /// End the FETCHes at the server whose answers nobody waits for any more.
    Withdraw,
    /// Have a writer send what its callers gave it.
    Pump(Arc<dyn AttemptSink>),
    /// The token that the connection has asked for, or why there is none.
    Token(Result<Token, String>),
    /// Finish what is on its way, then close.
    Close,
    /// Take nothing new any more; what waits here goes to another connection.
    Drain,
}

impl Command {
    /// When its caller gives up; appends have one deadline each.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Call(call) => Some(call.deadline),
            Self::Ping(ping) => Some(ping.deadline),
            Self::Fetch(fetch) => Some(fetch.deadline),
            Self::Appends(_) | Self::Withdraw | Self::Pump(_) | Self::Token(_) | Self::Close | Self::Drain => None,
        }
    }

    /// What its peer has to be able to do.
    pub(crate) fn needs(&self) -> Need {
        match self {
            Self::Call(call) => call.needs,
            Self::Fetch(_) => Need::BoundedFetch,
            _ => Need::Nothing,
        }
    }

    /// Whether others can answer it while its server is silent. Appends are judged by their streams.
    pub(crate) fn has_elsewhere(&self) -> bool {
        match self {
            Self::Call(call) => call.has_elsewhere,
            Self::Fetch(fetch) => fetch.has_elsewhere,
            _ => false,
        }
    }

    /// Whether it is sent as soon as it comes. Appends wait for the peer's features anyway.
    pub(crate) fn is_for_the_peer(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Ping(_) | Self::Fetch(_))
    }

    /// Tells its caller that it failed; one that is gone has given up on it. Appends are told by their channel.
    pub(crate) fn fail(self, failure: Failure) {
        match self {
            Self::Call(call) => drop(call.reply.send(Err(failure))),
            Self::Ping(ping) => drop(ping.reply.send(Err(failure))),
            Self::Fetch(fetch) => fetch.fail(failure),
            Self::Appends(_) | Self::Withdraw | Self::Pump(_) | Self::Token(_) | Self::Close | Self::Drain => {}
        }
    }
}

/// A PING.
#[derive(Debug)]
pub(crate) struct Ping {
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Duration, Failure>>,
}

/// A feature without which a call makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Works with every peer.
    Nothing,
    /// Works with every peer, once it has shown that it serves: must not be done twice, so it is only sent where its
    /// answer is likely to come back.
    Answer,
    /// The peer knows names of streams.
    Names,
    /// The peer knows bounds in FETCH.
    BoundedFetch,
}

impl Need {
    /// What a peer with these features lacks.
    pub(crate) fn lacking(self, features: &Features) -> Option<&'static str> {
        match self {
            Self::Names if !features.names => Some(sbp_messages::features::NAMES),
            Self::BoundedFetch if !features.bounded_fetch => Some(sbp_messages::features::BOUNDED_FETCH),
            _ => None,
        }
    }
}

/// A call whose whole answer is wanted at once.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) opcode: OpCode,
    pub(crate) header: Bytes,
    pub(crate) needs: Need,
    pub(crate) deadline: Instant,
    /// Whether others can answer it while its server is silent.
    pub(crate) has_elsewhere: bool,
    pub(crate) reply: oneshot::Sender<Result<Answer, Failure>>,
}

/// All frames of an answer, the last with END.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) frames: SmallVec<[Frame; 1]>,
    pub(crate) endpoint: Arc<str>,
    /// The pause that it asks for; set by whoever reads it.
    pub(crate) throttle_ms: Cell<i32>,
}

/// A FETCH, whose answers come one by one.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) header: Bytes,
    pub(crate) deadline: Instant,
    /// Whether others can answer it while its server is silent.
    pub(crate) has_elsewhere: bool,
    /// Whether it may wait for data that is not there yet.
    pub(crate) waits: bool,
    /// What the answers may hold; kept by the connection until END.
    pub(crate) charge: Charge,
    /// Given back with every event, so that one receiver can follow several FETCHes.
    pub(crate) tag: u32,
    pub(crate) events: mpsc::UnboundedSender<FetchEvent>,
    /// Gets the header of the first large answer before its payload is here.
    pub(crate) begins: Option<oneshot::Sender<Bytes>>,
}

impl Fetch {
    /// Whether nobody waits for its answers any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    /// Tells that nothing more comes; a receiver that is gone has given up on it.
    pub(crate) fn fail(&self, failure: Failure) {
        let tag = self.tag;
        drop(self.events.send(FetchEvent::Failed { tag, failure }));
    }

    /// Passes a frame of the answer on, with credit for what it holds: nobody asked for more than was charged, but a server
    /// returns at least one whole batch.
    pub(crate) fn pass_on(&mut self, frame: Frame, end: bool, endpoint: &Arc<str>) {
        drop(self.events.send(FetchEvent::Frame {
            tag: self.tag,
            charge: self.charge.split(frame.payload.len()),
            frame,
            end,
            endpoint: Arc::clone(endpoint),
        }));
    }
}

/// What became of a FETCH.
#[derive(Debug)]
pub(crate) enum FetchEvent {
    /// One frame of the answer, with credit for its payload.
    Frame {
        tag: u32,
        frame: Frame,
        charge: Charge,
        end: bool,
        endpoint: Arc<str>,
    },
    /// Nothing more comes.
    Failed { tag: u32, failure: Failure },
}
