//! What can happen to the ranges, and what it comes to.

use sbp_log::WriterState;
use sbp_types::{Offset, RangeKey, StreamId, WriterId};
use smallvec::SmallVec;

use super::append::{AppendEntry, Verdict};
use super::stream::{RangeState, StreamFacts};

/// What can happen to the table.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    /// The range exists from now on.
    Open {
        stream: StreamId,
        facts: StreamFacts,
        range: RangeState,
    },
    /// The log remembers this writer.
    Recall {
        stream: StreamId,
        writer: WriterId,
        state: WriterState,
    },
    /// The log has forgotten this writer.
    Forget { stream: StreamId, writer: WriterId },
    /// The stream's settings have changed.
    Describe { stream: StreamId, facts: StreamFacts },
    /// An entry of an APPEND request.
    Append(&'a AppendEntry),
    /// The log did not queue what appends were promised from `base` on; nothing was promised since.
    TakeBack { key: RangeKey, base: Offset },
    /// The log did not write what it had queued under this generation: nothing from `base` on is there.
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
    /// A writer's fence is not there: the log did not queue it, or did not write it.
    Unfence {
        stream: StreamId,
        writer: WriterId,
        epoch: i64,
    },
    /// Everything before `end` is synced.
    Confirm { key: RangeKey, end: Offset },
    /// The range takes no more appends.
    Seal { key: RangeKey },
    /// The log has ended everything that the range accepted before it was sealed.
    Drain { key: RangeKey },
    /// The end is durable: everybody may know it.
    Publish { key: RangeKey, end: Offset },
    /// The end could not be made durable: the range goes on.
    Unseal { key: RangeKey },
    /// Nothing below `start` is needed any more.
    Trim { stream: StreamId, start: Offset },
    /// The stream is gone.
    Delete { stream: StreamId },
}

/// What a command comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that anybody waits for.
    None,
    /// What to do with the append.
    Judged(Verdict),
    /// Fetches that wait for this stream have to look again.
    Advanced(StreamId),
    /// Nothing that was promised in the range from here on is, or will be, there.
    TakenBack { key: RangeKey, from: Offset },
    /// How far a seal is.
    Seal(SealStep),
    /// The stream begins later: `gone` are the ranges that went, `first` the first one left.
    Trimmed {
        first: RangeKey,
        gone: SmallVec<[RangeKey; 1]>,
    },
    /// The stream went, with these ranges.
    Deleted(SmallVec<[RangeKey; 1]>),
}

/// How far a seal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealStep {
    /// It begins now: the log has to be waited for.
    Begun,
    /// It began before; the log is being waited for.
    UnderWay,
    /// The end is known, and stays.
    Done(Offset),
    /// There is no such range here.
    Unknown,
    /// Damage on the disk hides where the range ends.
    EndDamaged,
    /// The range is open: the seal was undone.
    Undone,
}
