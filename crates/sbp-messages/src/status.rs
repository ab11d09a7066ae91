//! The outcome of a call or of one entry of it.

use std::fmt;

use bytes::Bytes;

use crate::ErrorCode;

/// The outcome of a call, or of one entry of it. The default is success.
///
/// An absent status on the wire means success. Message and detail are sent with errors only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The error, or success.
    pub code: ErrorCode,
    /// What has happened, for people only. It is text of a peer: escape it before it is shown in a terminal.
    pub message: String,
    /// Data for programs: a FlatBuffers root whose table depends on the code. Usually empty.
    pub detail: Bytes,
}

impl Status {
    /// Success.
    #[must_use]
    pub const fn success() -> Self {
        Self {
            code: ErrorCode::NONE,
            message: String::new(),
            detail: Bytes::new(),
        }
    }

    /// An error with a message for people.
    #[must_use]
    pub fn error(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: Bytes::new(),
        }
    }

    /// Whether this is success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code.is_success()
    }

    /// Whether this is success with nothing to add, which the template encoders know how to write.
    pub(crate) fn is_plain_success(&self) -> bool {
        self.is_success() && self.message.is_empty() && self.detail.is_empty()
    }
}

/// Shows the code and, if there is one, the message with control characters escaped.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.code, f)?;
        if self.message.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.message.escape_debug())
        }
    }
}
