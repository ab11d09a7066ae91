//! What a channel and its connections tell each other.

use std::time::Instant;

use bytes::Bytes;
use sbp_frame::{Frame, OpCode, PayloadPart};
use sbp_messages::{Status, Token};
use tokio::sync::oneshot;

/// A request on its way to the peer.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) opcode: OpCode,
    pub(super) header: Bytes,
    pub(super) payload: Vec<PayloadPart<'static>>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Ended>,
}

/// How a request ended on one connection.
#[derive(Debug)]
pub(super) enum Ended {
    /// All frames of its answer.
    Answered(Vec<Frame>),
    /// The peer said no with a system error.
    Refused(Status),
    /// This connection will not bring an answer; another one may.
    Lost(String),
    /// No connection would bring an answer.
    Unusable(String),
    /// The channel was closed.
    Closed,
}

/// What the channel asks of a connection.
#[derive(Debug)]
pub(super) enum PeerCommand {
    Call(Call),
    /// The token that says who calls, for the connection of this number.
    Token {
        generation: u64,
        token: Token,
    },
    /// Nothing more will be asked.
    Close,
}
