//! What a session tells the layer above.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use sbp_frame::{CallId, Frame, OpCode};
use thiserror::Error;

/// Something that happened on the connection. Taken with [`crate::Session::poll_event`].
#[derive(Debug, Clone)]
pub enum Event {
    /// The peer asks for something. To be answered under the frame's CallId, or refused with a system error.
    Request(Frame),
    /// A frame of the answer to an own request.
    Response {
        /// The caller's token.
        user: u64,
        /// The request.
        call: CallId,
        /// The frame; its flags say whether it is a system error.
        frame: Frame,
        /// Whether this was the last frame: the call is over.
        end: bool,
    },
    /// A request was refused before it reached anybody. The layer above encodes the `SystemErrorResponse` and sends it
    /// with [`crate::Session::send_system_error`].
    Reject {
        /// The *Stream Identifier* as received, possibly no CallId.
        raw_call_id: u32,
        /// The operation asked for.
        opcode: OpCode,
        /// Why.
        reason: RejectReason,
        /// Whether the peer is owed an answer; else it may be skipped.
        must_answer: bool,
    },
    /// A frame of the answer to an own request has begun to come: its header is here, and the payload that memory was set
    /// aside for is not. Only where [`crate::SessionConfig::announce_answers`] asks for it. The frame may still fail.
    ResponseBegins {
        /// The caller's token.
        user: u64,
        /// The request.
        call: CallId,
        /// The frame's header.
        header: Bytes,
    },
    /// An own request ended without a usable answer. Nothing more will come for it.
    CallFailed {
        /// The caller's token.
        user: u64,
        /// The request.
        call: CallId,
        /// Why.
        failure: CallFailure,
        /// False only if it is certain that no byte of the request ever reached the peer.
        bytes_sent: bool,
    },
    /// A client is to send a HEARTBEAT. The first one is due before anything else is sent.
    HeartbeatDue,
    /// The peer starts nothing more on this connection. Own requests behind `last_started` fail right after this event.
    PeerGoAway {
        /// The highest own request that the peer started, as received; 0 for none.
        last_started: u32,
        /// The GoAway table, unverified, possibly empty.
        header: Bytes,
    },
    /// An own PING came back.
    Pong {
        /// The caller's token.
        user: u64,
        /// From handing the PING to the write queue until its answer was parsed.
        rtt: Duration,
    },
    /// The connection ends: what is queued is still written, nothing more is accepted.
    Closing {
        /// Why.
        reason: CloseReason,
    },
}

/// Why a request was refused by the session itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RejectReason {
    /// The *Stream Identifier* has its top bit set.
    #[error("the stream identifier has its top bit set")]
    CallIdTopBit,
    /// The header is not FlatBuffers.
    #[error("header format {0} is not supported")]
    HeaderFormat(u8),
    /// The operation needs a header and has none.
    #[error("the request has no header")]
    HeaderMissing,
    /// The header, or all of a PING, is larger than allowed.
    #[error("a header of {length} bytes is over the limit of {limit}")]
    HeaderTooLarge {
        /// Bytes of the header; of a PING, header and payload.
        length: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// The opcode is in no table. Only where the session was told to answer those.
    #[error("the operation is unknown")]
    UnknownOpCode,
    /// The end that dialled serves nothing but PING.
    #[error("the end that opened the connection serves no requests")]
    NotServed,
    /// The connection is going away; the request was not started and may be sent on another one.
    #[error("the connection is going away")]
    GoingAway,
}

/// Why an own request ended without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// Its deadline passed. It may still be carried out.
    #[error("no answer before the deadline")]
    DeadlineExceeded,
    /// The connection ended before the answer did.
    #[error("the connection was closed before the answer was complete")]
    ConnectionClosed,
    /// The peer said that it did not and will not start it.
    #[error("the peer went away without starting the request")]
    NotStarted,
    /// The answer is for another operation than asked for.
    #[error("the answer is for {found}")]
    OpCodeMismatch {
        /// The answer's operation.
        found: OpCode,
    },
    /// The answer is longer than any answer to this request can be; what else comes of it is dropped.
    #[error("the answer does not end")]
    AnswerTooLong,
    /// The answer's header cannot be read.
    #[error("unreadable answer: {0}")]
    BadAnswer(RejectReason),
}

/// What a peer did that ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// *Frame Length* is under 16 or over the limit, so the next frame cannot be found.
    #[error("frame length {0} is impossible")]
    FrameLength(u32),
    /// The header reaches over the end of the frame.
    #[error("header of {header} bytes in a frame of length {frame}")]
    HeaderOverFrame {
        /// *Header Length* as received.
        header: u32,
        /// *Frame Length* as received.
        frame: u32,
    },
    /// A payload's checksum is wrong; nothing else on this connection can be trusted then.
    #[error("payload checksum is {found:#010x}, the frame says {stated:#010x}")]
    Checksum {
        /// The checksum in the frame.
        stated: u32,
        /// The checksum of the payload as received.
        found: u32,
    },
    /// A request has the id of one in flight, so that their answers could not be told apart.
    #[error("request {0} is in flight already")]
    CallIdInFlight(CallId),
    /// More frames had to be discarded than is put up with.
    #[error("too many frames had to be discarded")]
    TooManyDiscards,
}

/// Why a connection ended.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it.
    #[error("closed by this side")]
    Local,
    /// One side announced the end, and what was started is finished.
    #[error("went away after finishing what was started")]
    WentAway,
    /// What was started before the announced end was not finished in time.
    #[error("went away, unfinished calls ran out of time")]
    GraceExpired,
    /// The peer closed it; `mid_frame` when it did so inside a frame.
    #[error("closed by the peer")]
    Peer {
        /// Whether a frame was cut short.
        mid_frame: bool,
    },
    /// The peer broke the protocol.
    #[error("closed because the peer broke the protocol: {0}")]
    Violation(#[source] Violation),
    /// The first bytes were no frame of this protocol.
    #[error("the peer does not speak the Streaming Batch Protocol")]
    NotSbp,
    /// Nothing came for too long.
    #[error("nothing was received for {0:?}")]
    Silent(Duration),
    /// Written bytes did not move for too long.
    #[error("the peer took no bytes for {0:?}")]
    Stalled(Duration),
    /// A frame came in too slowly.
    #[error("a frame came in too slowly: {bytes} bytes of it within {within:?}")]
    TooSlow {
        /// Bytes that came of the part at hand, which is the first 16 or the rest, behind those that came first.
        bytes: u64,
        /// Since those came.
        within: Duration,
    },
    /// Too many cancelled requests stay unanswered.
    #[error("too many cancelled requests stay unanswered")]
    TooManyOrphans,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Transport(#[source] Arc<io::Error>),
}

impl CloseReason {
    /// Whether the peer, not this side or the way between them, is at fault.
    pub fn is_peers_fault(&self) -> bool {
        matches!(self, Self::Violation(_) | Self::NotSbp | Self::TooManyOrphans)
    }
}
