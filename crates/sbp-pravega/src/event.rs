//! What happens on a connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sbp_wire::{MachineReason, Reason};
use thiserror::Error;

use crate::fault::Fault;
use crate::limits::{HIGH_VERSION, LOW_VERSION};
use crate::reply::Reply;
use crate::request::Request;

/// A request of a client, as the server's side knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub(crate) u64);

/// An event. Taken with [`sbp_wire::Endpoint::poll_event`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The server has said which versions it speaks, and they do: it serves this connection.
    Greeted,
    /// A request was answered.
    Answered {
        /// The caller's token.
        user: u64,
        /// The reply.
        reply: Reply,
    },
    /// A request ended without an answer. No more events come for it.
    CallFailed {
        /// The caller's token.
        user: u64,
        /// Why it ended.
        failure: CallFailure,
        /// False only if it is certain that no byte of the request was sent.
        bytes_sent: bool,
    },
    /// A client has sent a request, to be answered with [`crate::Connection::answer`].
    Request {
        /// What the reply is given for.
        call: Call,
        /// The request.
        request: Request,
    },
    /// The connection is closing: queued bytes are still written, nothing more is accepted.
    Closing {
        /// Why.
        reason: CloseReason,
    },
}

/// Why a request ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// No reply came for too long. The server may still carry out the request.
    #[error("no reply before the deadline")]
    DeadlineExceeded,
    /// The connection was closed before the reply came.
    #[error("the connection was closed before the reply came")]
    ConnectionClosed,
}

/// A violation of the protocol by the peer, which closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A type that there is not, or not from this side.
    #[error("type {0} is not one of the protocol here")]
    Type(i32),
    /// A frame whose content is not valid.
    #[error("a frame of type {kind} is not valid: {fault}")]
    Content {
        /// Its type.
        kind: i32,
        /// What is wrong with it.
        #[source]
        fault: Fault,
    },
    /// A reply of another kind than its request.
    #[error("a reply of type {kind} does not answer request {id}")]
    OtherReply {
        /// Its type.
        kind: i32,
        /// The request.
        id: i64,
    },
    /// The peer speaks other versions.
    #[error("the peer speaks versions {low} to {high}, and this side {LOW_VERSION} to {HIGH_VERSION}")]
    Versions {
        /// The newest one.
        high: i32,
        /// The oldest one.
        low: i32,
    },
    /// A part of an append by a writer that was not set up, or whose block is not the one that has begun.
    #[error("an append of a writer that is not expected")]
    Writer,
    /// More writers than one connection may have.
    #[error("more than {0} writers on one connection")]
    Writers(usize),
}

/// Why a connection was closed.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it.
    #[error("closed by this side")]
    Local,
    /// The peer closed the connection.
    #[error("closed by the peer")]
    Peer {
        /// Whether nothing was under way in either direction.
        is_idle: bool,
    },
    /// The peer broke the protocol.
    #[error("closed because the peer broke the protocol: {0}")]
    Violation(#[source] Violation),
    /// The server did not say which versions it speaks.
    #[error("the peer did not say Hello within {0:?}, as Pravega's servers do")]
    NotGreeted(Duration),
    /// Nothing was received for too long.
    #[error("nothing was received for {0:?}")]
    Silent(Duration),
    /// A request arrived too slowly.
    #[error("a request came in too slowly: {bytes} bytes of it within {within:?}")]
    TooSlow {
        /// Bytes received of the present part of the request (its head of 8 bytes, or the rest) after its first bytes.
        bytes: u64,
        /// The time since those first bytes.
        within: Duration,
    },
    /// Queued bytes could not be written for too long.
    #[error("the peer took no bytes for {0:?}")]
    Stalled(Duration),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Transport(#[source] Arc<io::Error>),
}

impl PartialEq for CloseReason {
    fn eq(&self, other: &Self) -> bool {
        // What a system says of an error is not compared.
        match (self, other) {
            (Self::Transport(one), Self::Transport(two)) => one.kind() == two.kind(),
            (Self::Violation(one), Self::Violation(two)) => one == two,
            (one, two) => one.to_string() == two.to_string(),
        }
    }
}

impl Reason for CloseReason {
    fn local() -> Self {
        Self::Local
    }

    fn lingers(&self) -> bool {
        !matches!(self, Self::Transport(_) | Self::Stalled(_))
    }

    fn is_orderly(&self) -> bool {
        matches!(self, Self::Local | Self::Peer { is_idle: true })
    }
}

impl MachineReason for CloseReason {
    fn peer(is_idle: bool) -> Self {
        Self::Peer { is_idle }
    }

    fn stalled(patience: Duration) -> Self {
        Self::Stalled(patience)
    }

    fn transport(error: Arc<io::Error>) -> Self {
        Self::Transport(error)
    }
}
