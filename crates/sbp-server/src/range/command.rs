//! The commands that change a [`RangeTable`](super::table::RangeTable), and their effects.

use sbp_log::WriterState;
use sbp_types::{Offset, RangeKey, StreamId, WriterId};
use smallvec::SmallVec;

use super::append::{AppendDecision, AppendEntry};
use super::replica_set::ReplicaSet;
use super::stream::{RangeState, StreamFacts};

/// A change of the table, or an append to be judged.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    /// Adds a range.
    Open {
        stream: StreamId,
        facts: StreamFacts,
        range: RangeState,
    },
    /// Takes over a writer as the log remembers it.
    Recall {
        stream: StreamId,
        writer: WriterId,
        state: WriterState,
    },
    /// Forgets a writer that the log has forgotten.
    Forget { stream: StreamId, writer: WriterId },
    /// The stream's settings have changed.
    Describe { stream: StreamId, facts: StreamFacts },
    /// The placement driver knows nothing of the stream: it is not served until its settings are told again.
    Withhold { stream: StreamId },
    /// An entry of an APPEND request.
    Append(&'a AppendEntry),
    /// The log refused to queue appends which had been promised the offsets from `base` on; none were promised since.
    TakeBack { key: RangeKey, base: Offset },
    /// The log failed to write what was queued under this generation: nothing from `base` on is stored.
    Abandon {
        key: RangeKey,
        base: Offset,
        generation: u32,
    },
    /// A writer's fence is synced.
    Fenced {
        stream: StreamId,
        writer: WriterId,
        epoch: i64,
    },
    /// A writer's fence was not stored: the log did not queue it or failed to write it.
    Unfence {
        stream: StreamId,
        writer: WriterId,
        epoch: i64,
    },
    /// All records before `end` are synced.
    Confirm { key: RangeKey, end: Offset },
    /// The range takes no more appends.
    Seal { key: RangeKey },
    /// The log has synced, or failed to write, everything that the range accepted before it was sealed.
    Drain { key: RangeKey },
    /// The end of a sealed range is durable: readers may learn of it.
    Publish { key: RangeKey, end: Offset },
    /// The end of a range could not be made durable: the range takes appends again.
    Unseal { key: RangeKey },
    /// A sealed range is on these servers from now on.
    Place { key: RangeKey, set: ReplicaSet },
    /// Records before `start` are not needed any more.
    Trim { stream: StreamId, start: Offset },
    /// The stream is deleted.
    Delete { stream: StreamId },
    /// The range is not here any more; others have it.
    LetGo { key: RangeKey },
}

/// What the caller has to do after a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Handle the append as decided.
    Judged(AppendDecision),
    /// Wake the fetches that wait for this stream.
    Advanced(StreamId),
    /// Answer the entries that wait for records of the range from `from` on: these were not and will not be stored.
    TakenBack { key: RangeKey, from: Offset },
    /// Go on with a seal.
    Seal(SealStep),
    /// The stream's start has moved: the ranges `gone` are removed, `first` is now the first one.
    Trimmed {
        first: RangeKey,
        gone: SmallVec<[RangeKey; 1]>,
    },
    /// The stream is removed, with these ranges.
    Deleted(SmallVec<[RangeKey; 1]>),
}

/// The state of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealStep {
    /// The seal begins now: the caller has to wait for the log.
    Begun,
    /// The seal began before and still waits for the log.
    UnderWay,
    /// The range's end is known and final.
    Done(Offset),
    /// This server has no such range.
    Unknown,
    /// The range's end is unknown because of damage on the disk.
    EndDamaged,
    /// The seal was undone and the range is open.
    Undone,
}
