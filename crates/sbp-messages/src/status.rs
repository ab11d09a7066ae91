//! How a call, or one entry of it, ended.

use std::fmt;

use bytes::Bytes;

use crate::ErrorCode;

/// How a call, or one entry of it, ended. The default is success.
///
/// A status that is absent on the wire reads as success. Message and detail go with errors only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The error, or success.
    pub code: ErrorCode,
    /// What happened, for people; never looked at by programs. Text of a peer: escape it before it reaches a terminal.
    pub message: String,
    /// More for programs: a FlatBuffers root whose table the code decides. Usually empty.
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

/// The code and, where there is one, the message with control characters escaped.
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
