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
    pub(crate) positions: Positions,
    pub(crate) record_count: i32,
    /// Bytes in `chunks`.
    pub(crate) length: usize,
    pub(crate) chunks: SmallVec<[Bytes; 1]>,
}

impl FetchOutcome {
    pub(crate) fn empty(positions: Positions) -> Self {
        Self {
            status: Status::success(),
            positions,
            record_count: 0,
            length: 0,
            chunks: SmallVec::new(),
        }
    }

    pub(crate) fn refused(refusal: Refusal, bounds: Option<Positions>) -> Self {
        let unknown = Positions {
            base_offset: Offset(-1),
            next_offset: Offset(-1),
            start_offset: Offset(-1),
            high_watermark: Offset(-1),
            end_of_range: false,
        };
        Self {
            status: refusal.into(),
            ..Self::empty(bounds.unwrap_or(unknown))
        }
    }
}
