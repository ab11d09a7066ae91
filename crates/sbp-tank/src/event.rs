//! What happens on a connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_wire::{MachineReason, Reason};
use thiserror::Error;

use crate::answer::Answer;
use crate::fault::Fault;
use crate::outcome::PartitionState;
use crate::request::Request;

/// A request of a client, as the server's side knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub(crate) u64);

/// What an answer to Consume says of one partition, before its bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumedPartition {
    /// The topic.
    pub topic: String,
    /// The partition; `None`: there is no such topic.
    pub partition: Option<u16>,
    /// What there is.
    pub state: PartitionState,
}

/// An event. Taken with [`sbp_wire::Endpoint::poll_event`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The broker has sent its first Ping: it serves this connection.
    Greeted,
    /// A request was answered. Those of Consume are told piece by piece instead.
    Answered {
        /// The caller's token.
        user: u64,
        /// The answer.
        answer: Answer,
    },
    /// The answer to a Consume begins.
    Consumed {
        /// The caller's token.
        user: u64,
        /// The partitions in the order of their bundles.
        partitions: Vec<ConsumedPartition>,
    },
    /// A bundle of that answer is complete.
    Bundle {
        /// The caller's token.
        user: u64,
        /// The place of its partition in [`Event::Consumed`].
        place: usize,
        /// The bundle, for [`crate::Bundle::decode`].
        bundle: Bytes,
    },
    /// The bundles of a partition end with one that is cut.
    CutBundle {
        /// The caller's token.
        user: u64,
        /// The place of its partition in [`Event::Consumed`].
        place: usize,
        /// How many bytes the bundle has, its length included; 0 where even that was cut.
        length: usize,
    },
    /// The answer to a Consume is complete.
    ConsumeEnded {
        /// The caller's token.
        user: u64,
    },
    /// A request ended without a whole answer. No more events come for it.
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
        /// What the answer is given for.
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

/// Why a request ended without a whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// Nothing of an answer came for too long. The broker may still carry out the request.
    #[error("no answer before the deadline")]
    DeadlineExceeded,
    /// The connection was closed before the answer was complete.
    #[error("the connection was closed before the answer was complete")]
    ConnectionClosed,
}

/// A violation of the protocol by the peer, which closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A message that there is not, or not from this side.
    #[error("message {0} is not one of the protocol here")]
    Message(u8),
    /// A message whose content is not valid.
    #[error("message {message} is not valid: {fault}")]
    Content {
        /// The message.
        message: u8,
        /// What is wrong with it.
        #[source]
        fault: Fault,
    },
    /// An answer of another kind than its request.
    #[error("message {message} does not answer request {id}")]
    OtherAnswer {
        /// The message.
        message: u8,
        /// The request.
        id: u32,
    },
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
        /// Whether nothing was under way in either direction. Brokers close connections that are idle.
        is_idle: bool,
    },
    /// The peer broke the protocol.
    #[error("closed because the peer broke the protocol: {0}")]
    Violation(#[source] Violation),
    /// The broker did not send the Ping with which each connection begins.
    #[error("the peer did not greet within {0:?}, as TANK brokers do")]
    NotGreeted(Duration),
    /// Nothing was received for too long.
    #[error("nothing was received for {0:?}")]
    Silent(Duration),
    /// A request arrived too slowly.
    #[error("a request came in too slowly: {bytes} bytes of it within {within:?}")]
    TooSlow {
        /// Bytes received of the present part of the request (its head of 5 bytes, or the rest) after its first bytes.
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
        match (self, other) {
            (Self::Local, Self::Local) => true,
            (Self::Peer { is_idle: one }, Self::Peer { is_idle: two }) => one == two,
            (Self::Violation(one), Self::Violation(two)) => one == two,
            (Self::NotGreeted(one), Self::NotGreeted(two))
            | (Self::Silent(one), Self::Silent(two))
            | (Self::Stalled(one), Self::Stalled(two)) => one == two,
            (
                Self::TooSlow { bytes, within },
                Self::TooSlow {
                    bytes: others,
                    within: other,
                },
            ) => (bytes, within) == (others, other),
            (Self::Transport(one), Self::Transport(two)) => one.kind() == two.kind(),
            _ => false,
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
