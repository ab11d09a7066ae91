//! How an entry of an APPEND ends.

use sbp_frame::CallId;
use sbp_types::{Offset, StreamId};

use crate::refusal::Refusal;

/// How one batch of an APPEND ended.
#[derive(Debug)]
pub(crate) struct AppendDone {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    pub(crate) stream: StreamId,
    /// Where it is stored, or why it is not.
    pub(crate) outcome: Result<Stored, NotStored>,
}

/// A batch that is stored, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// -1 for an empty batch, and for a repeat whose offset is not remembered any more.
    pub(crate) base_offset: Offset,
    pub(crate) next_offset: Offset,
    /// The batch is a repeat of one that was stored before.
    pub(crate) duplicate: bool,
    /// What the writer has to send next; -1 without a writer.
    pub(crate) next_sequence: i64,
}

/// Why a batch is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotStored {
    pub(crate) refusal: Refusal,
    /// The stream's next offset, where that is the reason.
    pub(crate) next_offset: Option<Offset>,
    /// What the writer has to send next; -1 where that does not help.
    pub(crate) next_sequence: i64,
}

impl From<Refusal> for NotStored {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            next_offset: None,
            next_sequence: -1,
        }
    }
}
