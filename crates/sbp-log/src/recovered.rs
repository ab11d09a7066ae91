//! The state in which a log was found when it was opened.

use sbp_types::{Epoch, Offset, RangeKey};

use crate::{WriterKey, WriterState};

/// The log's state after recovery, for the owner to compare with its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Every range of which the log has records or remembers the end, ordered by key.
    pub ranges: Vec<(RangeKey, RangeEnd)>,
    /// Every writer the log remembers, as its synced batches left it, ordered by key.
    pub writers: Vec<(WriterKey, WriterState)>,
    /// What is damaged.
    pub damage: Damage,
    /// What recovery did, for the server's log: cut tails, rebuilt footers, skipped checkpoints.
    pub notes: Vec<String>,
    /// Whether the log had been shut down properly.
    pub clean: bool,
    /// How many times this directory has been opened, this time included.
    pub boot_id: u64,
}

/// The offsets of one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeEnd {
    /// The first offset that can be read; equals `next_offset` when nothing can.
    pub first_offset: Offset,
    /// One past the offset of the last record.
    pub next_offset: Offset,
    /// How many marks stand at that offset.
    pub next_marks: u32,
    /// The epoch of the last record.
    pub epoch: Epoch,
    /// False when damage may hide further records after `next_offset`: the range must be neither appended to nor
    /// sealed.
    pub proven: bool,
}

/// What cannot be served because of damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Damaged offsets, ordered.
    pub intervals: Vec<DamagedInterval>,
    /// Whether damage may hide the only records of a range that is not listed. If so, no open range that is missing
    /// from [`Recovered::ranges`] may be appended to or sealed.
    pub unlisted_ranges: bool,
}

/// Offsets of one range that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DamagedInterval {
    /// The range.
    pub key: RangeKey,
    /// The first damaged offset.
    pub from: Offset,
    /// The first offset after the damage.
    pub to: Offset,
}
