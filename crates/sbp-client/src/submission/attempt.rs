//! How one attempt of a writer to store a batch ended.

use sbp_messages::{AppendResult, ErrorCode};

use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::outcome::{Ack, AppendOutcome};

/// How an attempt ended.
#[derive(Debug)]
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
        let fenced = told.filter(|told| told.status.code == ErrorCode::WRITER_FENCED);
        Self {
            outcome: Err(Box::new(failure)),
            next_sequence: told.map(|told| told.next_sequence),
            fenced_by: fenced
                .and_then(|told| told.status.detail.first_chunk())
                .map(|epoch| i64::from_be_bytes(*epoch)),
        }
    }

    /// The server stored the one batch of the attempt, or refused it.
    pub(crate) fn answered(outcome: AppendOutcome, told: Option<&AppendResult>) -> Self {
        let what = |error: ClientError| Cause::Protocol {
            what: error.what().to_owned(),
        };
        Self {
            outcome: outcome.single().map_err(|error| Box::new(Failure::from(what(error)))),
            next_sequence: told.map(|told| told.next_sequence),
            fenced_by: None,
        }
    }
}
