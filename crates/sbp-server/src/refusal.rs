//! Why a request, or one entry of it, was not carried out.

use bytes::Bytes;
use sbp_messages::{ErrorCode, Status};

/// An error code of the protocol with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code, for programs.
    pub(crate) code: ErrorCode,
    /// The message, for people.
    pub(crate) message: String,
    /// Further data for programs, for codes that define it.
    pub(crate) detail: Bytes,
}

/// A callback for the result of an operation, called once on whatever thread has the result; must not block. Where
/// somebody waits for the result, dropping the callback counts as a refusal.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: Bytes::new(),
        }
    }

    /// Adds the data that the code defines.
    pub(crate) fn with_detail(self, detail: [u8; 8]) -> Self {
        Self {
            detail: Bytes::copy_from_slice(&detail),
            ..self
        }
    }

    /// The request can be decoded but is wrong, so repeating it cannot help.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    /// The request's timeout passed before anything was done.
    pub(crate) fn expired() -> Self {
        Self::new(
            ErrorCode::REQUEST_TIMEOUT,
            "the timeout of the request passed before it was started",
        )
    }

    /// A part of the server did not report the result of the operation, which may have been carried out.
    pub(crate) fn unanswered() -> Self {
        Self::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            "a part of the server did not report the result; the request may have been carried out",
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
