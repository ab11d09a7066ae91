//! How one attempt of a writer to store one batch ended.

use sbp_messages::AppendResult;

use crate::failure::{Failure, fencing_epoch};
use crate::outcome::Ack;

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) struct AttemptEnd {
    pub(crate) outcome: Result<Ack, Box<Failure>>,
    /// The sequence that the server expects next, where it said so.
    pub(crate) next_sequence: Option<i64>,
    /// The epoch of the instance that has taken over, where the server said so.
    pub(crate) fenced_by: Option<i64>,
}

impl AttemptEnd {
    /// The attempt failed on this side, or nobody knows.
    pub(crate) fn failed(failure: Failure) -> Self {
        Self::refused(failure, None)
    }

    /// The attempt failed, and this is what the server said, if it said anything.
    pub(crate) fn refused(failure: Failure, told: Option<&AppendResult>) -> Self {
        Self {
            outcome: Err(Box::new(failure)),
            next_sequence: told.and_then(|told| told.next_sequence),
            fenced_by: told.and_then(|told| fencing_epoch(&told.status)),
        }
    }

    /// The server stored the batch of the attempt, and this is what it said.
    pub(crate) fn stored(ack: Ack, told: &AppendResult) -> Self {
        Self {
            outcome: Ok(ack),
            next_sequence: told.next_sequence,
            fenced_by: None,
        }
    }
}
