//! The results of log reads, by entry of a FETCH.

use bytes::Bytes;
use sbp_messages::Status;
use sbp_types::Offset;
use smallvec::SmallVec;

use super::fetch::Positions;
use crate::refusal::Refusal;

/// The results of a [`ReadJob`](super::ReadJob).
#[derive(Debug)]
pub(crate) struct ReadDone {
    pub(crate) budget: usize,
    pub(crate) found: Vec<(usize, Found)>,
}

#[derive(Debug)]
pub(crate) enum Found {
    /// The entry's answer.
    Answer(FetchOutcome),
    /// The offset at which the entry begins.
    Start(Offset),
}

/// The answer to a FETCH entry.
#[derive(Debug)]
pub(crate) struct FetchOutcome {
    pub(crate) status: Status,
    /// `None` with an error that leaves the stream's bounds open.
    pub(crate) positions: Option<Positions>,
    pub(crate) record_count: i32,
    /// Bytes in `chunks`.
    pub(crate) length: usize,
    pub(crate) chunks: SmallVec<[Bytes; 1]>,
}

impl FetchOutcome {
    pub(crate) fn empty(positions: Positions) -> Self {
        Self {
            status: Status::success(),
            positions: Some(positions),
            record_count: 0,
            length: 0,
            chunks: SmallVec::new(),
        }
    }

    pub(crate) fn refused(refusal: Refusal, bounds: Option<Positions>) -> Self {
        Self {
            status: refusal.into(),
            positions: bounds,
            record_count: 0,
            length: 0,
            chunks: SmallVec::new(),
        }
    }
}
