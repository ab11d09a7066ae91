//! The events of a session.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use sbp_frame::{CallId, Frame, OpCode};
use thiserror::Error;

/// An event on the connection. Taken with [`crate::Session::poll_event`].
#[derive(Debug, Clone)]
pub enum Event {
    /// The peer has sent a request. To be answered under the frame's CallId, or refused with a system error.
    Request(Frame),
    /// A frame of the answer to an own request.
    Response {
        /// The caller's token.
        user: u64,
        /// The id of the request.
        call: CallId,
        /// The frame; its flags say whether it is a system error.
        frame: Frame,
        /// Whether this was the last frame: the call is over.
        end: bool,
    },
    /// The session has refused a request. The layer above encodes the `SystemErrorResponse` and sends it with
    /// [`crate::Session::send_system_error`].
    Reject {
        /// The *Stream Identifier* as received; it may be no valid CallId.
        raw_call_id: u32,
        /// The operation asked for.
        opcode: OpCode,
        /// Why the request is refused.
        reason: RejectReason,
        /// Whether the peer must get the refusal; if not, it may be left out.
        must_answer: bool,
    },
    /// The header of a frame that answers an own request has arrived; its payload, for which memory was set aside, has
    /// not. Only with [`crate::SessionConfig::announce_answers`]. The frame may still fail.
    ResponseBegins {
        /// The caller's token.
        user: u64,
        /// The id of the request.
        call: CallId,
        /// The frame's header.
        header: Bytes,
    },
    /// An own request ended without a usable answer. No more events come for it.
    CallFailed {
        /// The caller's token.
        user: u64,
        /// The id of the request.
        call: CallId,
        /// Why it ended.
        failure: CallFailure,
        /// False only if it is certain that no byte of the request was sent.
        bytes_sent: bool,
    },
    /// A client has to send a HEARTBEAT. The first one has to be sent before anything else.
    HeartbeatDue,
    /// The peer starts no more requests. Own requests with ids above `last_started` fail right after this event.
    PeerGoAway {
        /// The highest own request that the peer has started, as received; 0 for none.
        last_started: u32,
        /// The encoded GoAway table, not verified, possibly empty.
        header: Bytes,
    },
    /// An own PING was answered.
    Pong {
        /// The caller's token.
        user: u64,
        /// The time from queueing the PING to parsing its answer.
        rtt: Duration,
    },
    /// The connection is closing: queued bytes are still written, nothing more is accepted.
    Closing {
        /// Why.
        reason: CloseReason,
    },
}

/// Why the session itself refused a request.
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
    /// The header, or a PING as a whole, exceeds the limit.
    #[error("a header of {length} bytes is over the limit of {limit}")]
    HeaderTooLarge {
        /// Bytes of the header; for a PING, of header and payload.
        length: u32,
        /// The limit.
        limit: u32,
    },
    /// The opcode is unknown. Only with [`crate::SessionConfig::answer_unknown_opcodes`].
    #[error("the operation is unknown")]
    UnknownOpCode,
    /// The end that opened the connection serves no requests but PING.
    #[error("the end that opened the connection serves no requests")]
    NotServed,
    /// Who the peer is has to be known first.
    #[error("the connection is not authenticated")]
    NotAuthenticated,
    /// The connection is going away; the request was not started and may be sent on another one.
    #[error("the connection is going away")]
    GoingAway,
}

/// Why an own request ended without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// The deadline passed. The peer may still carry out the request.
    #[error("no answer before the deadline")]
    DeadlineExceeded,
    /// The connection was closed before the answer was complete.
    #[error("the connection was closed before the answer was complete")]
    ConnectionClosed,
    /// The peer announced that it will not start the request.
    #[error("the peer went away without starting the request")]
    NotStarted,
    /// The answer names another operation than the request.
    #[error("the answer is for {found}")]
    OpCodeMismatch {
        /// The answer's operation.
        found: OpCode,
    },
    /// The answer is longer than any answer to this request may be. The rest of it is dropped.
    #[error("the answer does not end")]
    AnswerTooLong,
    /// The answer has an unusable header.
    #[error("unreadable answer: {0}")]
    BadAnswer(RejectReason),
}

/// A violation of the protocol by the peer that closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// *Frame Length* is under 16 or over the limit, so that the next frame cannot be found.
    #[error("frame length {0} is impossible")]
    FrameLength(u32),
    /// *Header Length* exceeds the frame.
    #[error("header of {header} bytes in a frame of length {frame}")]
    HeaderOverFrame {
        /// *Header Length* as received.
        header: u32,
        /// *Frame Length* as received.
        frame: u32,
    },
    /// A payload's checksum is wrong, so nothing more on this connection can be trusted.
    #[error("payload checksum is {found:#010x}, the frame says {stated:#010x}")]
    Checksum {
        /// The checksum in the frame.
        stated: u32,
        /// The checksum of the payload as received.
        found: u32,
    },
    /// A request has the id of another one in flight, so that their answers could not be told apart.
    #[error("request {0} is in flight already")]
    CallIdInFlight(CallId),
    /// More frames had to be discarded than [`crate::Limits::discards`] allows.
    #[error("too many frames had to be discarded")]
    TooManyDiscards,
}

/// Why a connection was closed.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it.
    #[error("closed by this side")]
    Local,
    /// One side announced the end, and all calls are finished.
    #[error("went away after finishing what was started")]
    WentAway,
    /// This side announced the end, and the calls were not finished in time.
    #[error("went away, unfinished calls ran out of time")]
    GraceExpired,
    /// The peer closed the connection.
    #[error("closed by the peer")]
    Peer {
        /// Whether it did so in the middle of a frame.
        mid_frame: bool,
    },
    /// The peer broke the protocol.
    #[error("closed because the peer broke the protocol: {0}")]
    Violation(#[source] Violation),
    /// The first bytes received are not a frame of this protocol.
    #[error("the peer does not speak the Streaming Batch Protocol")]
    NotSbp,
    /// The first bytes received are those of TLS.
    #[error("the peer speaks TLS, and this side of the connection is plain")]
    SpeaksTls,
    /// The peer did not say who it is, or not so that it was believed.
    #[error("the peer was not authenticated within {0:?}")]
    NotAuthenticated(Duration),
    /// The peer sent more than somebody may who has not said who he is: see [`crate::Authentication`].
    #[error("the peer was not authenticated, and sent more than the {frames} frames or {bytes} bytes that it may")]
    TooMuchUnauthenticated {
        /// Frames that it might have sent, without PINGs that were answered.
        frames: u16,
        /// Bytes that it might have sent.
        bytes: u32,
    },
    /// Nothing was received for too long.
    #[error("nothing was received for {0:?}")]
    Silent(Duration),
    /// Queued bytes could not be written for too long.
    #[error("the peer took no bytes for {0:?}")]
    Stalled(Duration),
    /// A frame arrived too slowly.
    #[error("a frame came in too slowly: {bytes} bytes of it within {within:?}")]
    TooSlow {
        /// Bytes received of the present part of the frame (the first 16 bytes, or the rest) after its first bytes.
        bytes: u64,
        /// The time since those first bytes.
        within: Duration,
    },
    /// Too many cancelled requests remain unanswered.
    #[error("too many cancelled requests stay unanswered")]
    TooManyOrphans,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Transport(#[source] Arc<io::Error>),
}

impl CloseReason {
    /// Whether the peer is at fault, and not this side or the network.
    pub fn is_peers_fault(&self) -> bool {
        matches!(
            self,
            Self::Violation(_)
                | Self::NotSbp
                | Self::SpeaksTls
                | Self::NotAuthenticated(_)
                | Self::TooMuchUnauthenticated { .. }
                | Self::TooManyOrphans
        )
    }
}
