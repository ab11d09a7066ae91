//! Why one entry of a request, or a whole request, was not done.

use bytes::Bytes;
use sbp_messages::{ErrorCode, Status};

/// A code of the protocol's error table with words for the one who reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What went wrong, as programs read it.
    pub(crate) code: ErrorCode,
    /// What went wrong, as people read it.
    pub(crate) message: String,
    /// What a program needs to go on, where the code has something of the kind.
    pub(crate) detail: Bytes,
}

/// Called once with how something ended, by whatever thread ended it; must not block. Dropped uncalled it counts as a
/// refusal wherever somebody waits for it.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: Bytes::new(),
        }
    }

    /// Adds what a program needs to go on.
    pub(crate) fn with_detail(self, detail: [u8; 8]) -> Self {
        Self {
            detail: Bytes::copy_from_slice(&detail),
            ..self
        }
    }

    /// Decodable, but wrong: the caller's fault, never worth a retry.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    /// The time was up before anything was done.
    pub(crate) fn expired() -> Self {
        Self::new(
            ErrorCode::REQUEST_TIMEOUT,
            "the time was up before the request was started",
        )
    }

    /// An answer that an operation depends on did not come. The operation may have been carried out.
    pub(crate) fn unanswered() -> Self {
        Self::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            "an answer that this depends on did not come",
        )
    }

    /// The stream is unknown or deleted.
    pub(crate) fn no_stream(stream: sbp_types::StreamId) -> Self {
        Self::new(ErrorCode::NOT_FOUND, format!("there is no stream {stream}"))
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: refusal.code,
            message: refusal.message,
            detail: refusal.detail,
        }
    }
}
