//! Why a frame could not be sent.

use sbp_frame::{CallId, FrameTooLarge};
use thiserror::Error;

/// Why a request or response was not queued. No byte of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection is closed or closing.
    #[error("the connection is closed")]
    Closed,
    /// One side has announced the end of the connection: send new requests on another one.
    #[error("the connection is going away")]
    GoingAway,
    /// All call ids of this connection are used: send requests on another one.
    #[error("the connection has no call ids left")]
    CallIdsExhausted,
    /// The limit of own requests in flight is reached.
    #[error("too many requests are in flight")]
    TooManyCalls,
    /// No such request of the peer is in flight: it was never received, or is answered already.
    #[error("request {0} of the peer is not in flight")]
    UnknownCall(CallId),
    /// The header exceeds the limit for its direction.
    #[error("a header of {length} bytes is over the limit of {limit}")]
    HeaderTooLarge {
        /// Bytes of the header.
        length: usize,
        /// The limit.
        limit: u32,
    },
    /// The frame does not fit into 16 MiB.
    #[error(transparent)]
    FrameTooLarge(#[from] FrameTooLarge),
}
