//! Why a peer's header cannot be decoded, or its message is refused.

use std::error::Error;

use crate::{ErrorCode, Status};

/// Why a header was not accepted. Nothing was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes fail FlatBuffers verification.
    #[error("the header is no valid {table}")]
    Malformed {
        /// The table that was expected.
        table: &'static str,
        /// The verifier's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The message can be decoded but is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl DecodeError {
    /// Whether the error costs the peer some of its discard budget. Only bytes that fail verification do.
    #[must_use]
    pub fn costs_debt(&self) -> bool {
        matches!(self, Self::Malformed { .. })
    }

    /// The status for the system error that answers the request.
    #[must_use]
    pub fn to_status(&self) -> Status {
        Status::error(ErrorCode::INVALID_REQUEST, self.to_string())
    }
}

/// Why a message that can be decoded is refused as a whole. A request is answered with a system error.
///
/// Faults of a single entry are not refusals: they become the status of that entry's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A vector or table that the message needs is absent or empty.
    #[error("{field} is absent or empty")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// The message has more entries than allowed.
    #[error("{count} entries are more than {limit}")]
    TooManyEntries {
        /// The number of entries.
        count: usize,
        /// The number allowed.
        limit: usize,
    },
    /// A number is outside the range of its field.
    #[error("{field} is {value}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// The field's value.
        value: i64,
    },
    /// A `request_index` names no entry of the request.
    #[error("request_index {index} is outside 0..{entries}")]
    IndexOutOfRange {
        /// The index.
        index: i32,
        /// The number of entries in the request.
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
