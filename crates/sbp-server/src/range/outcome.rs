//! The outcome of an entry of an APPEND.

use std::time::Instant;

use sbp_frame::CallId;
use sbp_types::{Offset, StreamId};

use crate::refusal::Refusal;

/// One entry of an APPEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    pub(crate) stream: StreamId,
    /// When the connection's task had read it.
    pub(crate) arrived: Instant,
}

impl EntryId {
    /// The entry with its outcome.
    pub(super) fn done(self, outcome: Result<Stored, NotStored>) -> AppendDone {
        AppendDone { entry: self, outcome }
    }
}

/// The outcome of one APPEND entry.
#[derive(Debug)]
pub(crate) struct AppendDone {
    pub(crate) entry: EntryId,
    /// Where the batch is stored, or why it is not.
    pub(crate) outcome: Result<Stored, NotStored>,
}

/// The offsets of a stored batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The offset of its first record; `None` for an empty batch, and for a repeat whose offset is not remembered any
    /// more.
    pub(crate) base_offset: Option<Offset>,
    pub(crate) next_offset: Offset,
    /// How many entries without offset stand at `next_offset`, in an answer to another range server; else 0.
    pub(crate) next_marks: u32,
    /// Whether the batch repeats one that was stored before.
    pub(crate) duplicate: bool,
    /// The sequence that the writer has to send next, if there is a writer.
    pub(crate) next_sequence: Option<i64>,
}

/// Why a batch is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotStored {
    pub(crate) refusal: Refusal,
    /// The stream's next offset, where the append expected another one.
    pub(crate) next_offset: Option<Offset>,
    /// How many entries without offset stand there, in an answer to another range server; else 0.
    pub(crate) next_marks: u32,
    /// The sequence that the writer has to send next, if it is known.
    pub(crate) next_sequence: Option<i64>,
}

impl From<Refusal> for NotStored {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            next_offset: None,
            next_marks: 0,
            next_sequence: None,
        }
    }
}
