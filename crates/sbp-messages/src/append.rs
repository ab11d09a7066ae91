//! APPEND (0x1001): batches for one stream or many, in one frame.

use sbp_types::{Epoch, Offset, Position, RangeIndex, StreamId, TimestampMs};
use smallvec::SmallVec;

use crate::v01::{Builder, Field, Wire, Written, fb, tables};
use crate::{ReplicaEntry, Status};

/// One batch of an [`AppendRequest`].
///
/// The fields from `append_time_ms` on are what the primary of a range tells its other servers. A client leaves them at
/// their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// The stream to append to.
    pub stream_id: StreamId,
    /// The number of this entry, which its result repeats: 0 up to the number of entries, each once.
    pub request_index: i32,
    /// Bytes of this batch in the payload, which has the batches one after the other in the order of the entries.
    pub batch_length: i32,
    /// The range to append to; `None`: the open one.
    pub range_index: Option<RangeIndex>,
    /// The epoch that the range must have; `None`: any.
    pub epoch: Option<Epoch>,
    /// The offset that the batch must get; `None`: the server chooses.
    pub expected_offset: Option<Offset>,
    /// When the primary took the batch, by its clock; 0: from a client.
    pub append_time_ms: TimestampMs,
    /// How far the primary knows the range to be confirmed; `None`: not told.
    pub confirmed: Option<Position>,
    /// What the entry is; [`ReplicaEntry::NONE`]: from a client.
    pub entry: ReplicaEntry,
    /// The end up to which the entry is taken although the range is fenced; `None`: the entry is not sent for a seal or a
    /// copy.
    pub sealed_end: Option<Position>,
    /// How many entries without offsets stand at `expected_offset`, in front of this one.
    pub marks: u32,
}

impl AppendInfo {
    /// The place that the entry must get, if its offset is given.
    #[must_use]
    pub fn expected_position(&self) -> Option<Position> {
        let marks = self.marks;
        self.expected_offset.map(|offset| Position { offset, marks })
    }

    /// Whether the entry is from a client: none of what servers tell each other is in it.
    #[must_use]
    #[inline]
    pub fn is_from_client(&self) -> bool {
        self.entry == ReplicaEntry::NONE
            && self.append_time_ms.0 == 0
            && self.marks == 0
            && self.confirmed.is_none()
            && self.sealed_end.is_none()
    }
}

/// The values of an entry in which every field is absent.
impl Default for AppendInfo {
    #[inline]
    fn default() -> Self {
        Self {
            stream_id: StreamId(-1),
            request_index: 0,
            batch_length: 0,
            range_index: None,
            epoch: None,
            expected_offset: None,
            append_time_ms: TimestampMs(0),
            confirmed: None,
            entry: ReplicaEntry::NONE,
            sealed_end: None,
            marks: 0,
        }
    }
}

// By hand, because a position is two fields.
impl Wire for AppendInfo {
    type Table<'a> = fb::AppendInfo<'a>;
    const NAME: &'static str = "AppendInfo";

    fn read(table: Self::Table<'_>) -> Self {
        let marks = |marks: Option<i32>| marks.unwrap_or(0).cast_unsigned();
        let position = |offset: Option<i64>, count| {
            let offset: Option<Offset> = Field::read(offset.unwrap_or(-1));
            offset.map(|offset| Position {
                offset,
                marks: marks(count),
            })
        };
        Self {
            stream_id: Field::read(table.stream_id()),
            request_index: table.request_index(),
            batch_length: table.batch_length(),
            range_index: Field::read(table.range_index()),
            epoch: Field::read(table.epoch()),
            expected_offset: Field::read(table.expected_offset()),
            append_time_ms: TimestampMs(table.append_time_ms().unwrap_or(0)),
            confirmed: position(table.confirmed_offset(), table.confirmed_marks()),
            entry: Field::read(table.entry().unwrap_or_default()),
            sealed_end: position(table.sealed_end(), table.sealed_marks()),
            marks: marks(table.marks()),
        }
    }

    fn write(&self, builder: &mut Builder) -> Written<Self> {
        let marks = |marks: u32| Some(marks.cast_signed()).filter(|marks| *marks != 0);
        let offset = |position: Option<Position>| position.map(|position| position.offset.0);
        let marks_at = |position: Option<Position>| position.and_then(|position| marks(position.marks));
        let args = fb::AppendInfoArgs {
            stream_id: self.stream_id.0,
            request_index: self.request_index,
            batch_length: self.batch_length,
            range_index: self.range_index.write(builder),
            epoch: self.epoch.write(builder),
            expected_offset: self.expected_offset.write(builder),
            append_time_ms: Some(self.append_time_ms.0).filter(|time| *time != 0),
            confirmed_offset: offset(self.confirmed),
            entry: Some(self.entry.write(builder)).filter(|entry| *entry != fb::ReplicaEntry::NONE),
            sealed_end: offset(self.sealed_end),
            marks: marks(self.marks),
            confirmed_marks: marks_at(self.confirmed),
            sealed_marks: marks_at(self.sealed_end),
        };
        fb::AppendInfo::create(builder, &args)
    }
}

tables! {
    /// Appends the batches in the payload.
    pub struct AppendRequest: AppendRequestArgs, request of APPEND by template {
        /// How long the call may wait before it is started, in milliseconds; 0 or less: the server's default.
        pub timeout_ms: i32,
        /// The batches. Those for one stream take effect in this order.
        pub append_requests: SmallVec<[AppendInfo; 1]>,
    }

    /// The result for one batch.
    pub struct AppendResult: AppendResultArgs {
        /// The stream appended to.
        pub stream_id: StreamId,
        /// The number of the entry in the request.
        pub request_index: i32,
        /// The offset of the batch's first record; `None` on errors, and for a repeat whose offset is not remembered any
        /// more.
        pub base_offset: Option<Offset>,
        /// When the server answered, by its clock.
        pub stream_append_time_ms: TimestampMs,
        /// The outcome of this entry.
        pub status: Status,
        /// The stream's next offset, on success and if `expected_offset` differs from it.
        pub next_offset: Option<Offset>,
        /// Whether the batch was stored by an earlier append of the same writer.
        pub duplicate: bool,
        /// The sequence that the writer has to send next, if the batch has a writer.
        pub next_sequence: Option<i64>,
        /// How many entries without offsets a replica has at `next_offset`.
        pub next_marks: u32 = 0,
    }

    /// Answers an [`AppendRequest`], whole or in part.
    pub struct AppendResponse: AppendResponseArgs, response of APPEND by template {
        /// How long the client is asked to wait before its next append, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each batch, in any order.
        pub append_responses: SmallVec<[AppendResult; 1]>,
        /// The outcome of the whole call.
        pub status: Status,
    }
}
