//! What happens on a connection.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_wire::{MachineReason, Reason};
use thiserror::Error;

use crate::codec::Codec;
use crate::exception::Exception;
use crate::fault::Fault;

/// A request of a client, as the server's side knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    pub(crate) id: i64,
    pub(crate) number: u64,
}

/// What both sides have agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// The id that the server gave to the connection: what a stream names as its parent, and what a verb is given for a stream.
    pub connection_id: Option<u64>,
    /// The connection that this one, which is a stream, belongs to.
    pub parent: Option<u64>,
    /// The client's isolation cookie.
    pub isolation: Option<Bytes>,
    /// How frames are compressed.
    pub codec: Option<Codec>,
}

/// An event. Taken with [`sbp_wire::Endpoint::poll_event`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Both sides have said what they can. A server's end that is to be a stream (`parent`) is used once it was
    /// [admitted](crate::Connection::admit).
    Negotiated(Negotiated),
    /// A request was answered.
    Replied {
        /// The caller's token.
        user: u64,
        /// The reply.
        reply: Result<Bytes, Exception>,
        /// How long the handler took, where the server says so.
        handler: Option<Duration>,
    },
    /// A request that has no reply was written.
    Sent {
        /// The caller's token.
        user: u64,
    },
    /// A request ended without a reply. No more events come for it.
    CallFailed {
        /// The caller's token.
        user: u64,
        /// Why it ended.
        failure: CallFailure,
        /// False only if it is certain that no byte of the request was sent.
        bytes_sent: bool,
    },
    /// A client has sent a request: to be ended with [`crate::Connection::reply`] or [`crate::Connection::forget`].
    Called {
        /// What the reply is given for.
        call: Call,
        /// What is to be done.
        verb: u64,
        /// The arguments.
        payload: Bytes,
        /// When the client stops waiting, where it says so. A reply is not sent after that.
        due: Option<Instant>,
    },
    /// A message on a stream; see [`crate::Connection::took`].
    Message(Bytes),
    /// The peer has ended its direction of a stream.
    Ended,
    /// A stream takes more messages again, after [`crate::Connection::is_full`] was true.
    Room,
    /// The connection is closing: queued bytes are still written, nothing more is accepted.
    Closing {
        /// Why.
        reason: CloseReason,
    },
}

/// Why a request ended without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// No reply came in time. The server may still carry out the request.
    #[error("no reply came in time")]
    DeadlineExceeded,
    /// The connection was closed before the reply came.
    #[error("the connection was closed before the reply came")]
    ConnectionClosed,
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
    /// Both sides have ended a stream.
    #[error("both sides have ended the stream")]
    Ended,
    /// The peer broke the protocol.
    #[error("closed because the peer broke the protocol: {0}")]
    Violation(#[source] Fault),
    /// The peer did not negotiate.
    #[error("the peer did not negotiate within {0:?}, as peers of Seastar RPC do")]
    NotNegotiated(Duration),
    /// A frame arrived too slowly.
    #[error("a request came in too slowly: {bytes} bytes of it within {within:?}")]
    TooSlow {
        /// Bytes received of the present part of the frame (its head, or the rest) after its first bytes.
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
        // The error of a socket has no equality of its own.
        match (self, other) {
            (Self::Transport(one), Self::Transport(two)) => one.kind() == two.kind(),
            (one, two) => one.to_string() == two.to_string() && one.is_orderly() == two.is_orderly(),
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
        matches!(self, Self::Local | Self::Ended | Self::Peer { is_idle: true })
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
