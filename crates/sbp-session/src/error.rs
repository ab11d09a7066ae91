//! Why something could not be sent.

use sbp_frame::{CallId, FrameTooLarge};
use thiserror::Error;

/// Why a request or a response was not queued. Nothing of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection ends or has ended.
    #[error("the connection is closed")]
    Closed,
    /// One side announced the end of the connection: new requests go on another one.
    #[error("the connection is going away")]
    GoingAway,
    /// This connection has given all its ids: requests go on another one.
    #[error("the connection has no call ids left")]
    CallIdsExhausted,
    /// As many own requests are in flight as are allowed.
    #[error("too many requests are in flight")]
    TooManyCalls,
    /// No such request of the peer is in flight: it was never asked, or is answered already.
    #[error("request {0} of the peer is not in flight")]
    UnknownCall(CallId),
    /// The header is over the limit for its direction.
    #[error("a header of {length} bytes is over the limit of {limit}")]
    HeaderTooLarge {
        /// Bytes of the header.
        length: usize,
        /// Bytes allowed.
        limit: u32,
    },
    /// The frame does not fit into 16 MiB.
    #[error(transparent)]
    FrameTooLarge(#[from] FrameTooLarge),
}
