//! Why bytes of a peer are no message, or one that is not acted upon.

use std::error::Error;

use crate::{ErrorCode, Status};

/// Why a header could not be taken. In both cases nothing was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes fail FlatBuffers verification.
    #[error("the header is no valid {table}")]
    Malformed {
        /// The table that the bytes should have been.
        table: &'static str,
        /// What the verifier found.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The bytes are a message, but not one that can be acted upon.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl DecodeError {
    /// Whether the peer pays for this from its discard budget. Only bytes that fail verification cost.
    #[must_use]
    pub fn costs_debt(&self) -> bool {
        matches!(self, Self::Malformed { .. })
    }

    /// The status of the system error that answers such a request.
    #[must_use]
    pub fn to_status(&self) -> Status {
        Status::error(ErrorCode::INVALID_REQUEST, self.to_string())
    }
}

/// Why a decodable message as a whole is not acted upon. A request is answered with a system error.
///
/// Faults of a single entry are no refusal: they become the status of that entry's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A vector or table without which the message means nothing is absent or empty.
    #[error("{field} is absent or empty")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// The message has more entries than a receiver takes.
    #[error("{count} entries are more than {limit}")]
    TooManyEntries {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A number is outside of what its field can mean.
    #[error("{field} is {value}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// A `request_index` names no entry of the request.
    #[error("request_index {index} is outside 0..{entries}")]
    IndexOutOfRange {
        /// The index.
        index: i32,
        /// How many entries there are.
        entries: usize,
    },
    /// Two entries have the same `request_index`.
    #[error("request_index {index} occurs twice")]
    IndexTwice {
        /// The index.
        index: i32,
    },
    /// The lengths of the entries do not add up to the payload.
    #[error("the batch lengths add up to {sum} bytes, the payload has {payload}")]
    LengthMismatch {
        /// The sum of the entries' `batch_length`.
        sum: u64,
        /// The length of the payload.
        payload: usize,
    },
}

impl Refusal {
    /// The status of the system error that answers such a request.
    #[must_use]
    pub fn to_status(&self) -> Status {
        Status::error(ErrorCode::INVALID_REQUEST, self.to_string())
    }
}
