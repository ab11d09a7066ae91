//! Changing ranges: SEAL_RANGES (0x2002), SYNC_RANGES (0x2003), CREATE_RANGE (0x2004).

use sbp_types::{Offset, ServerId, StreamId};

use crate::v01::tables;
use crate::{Range, RangeId, SealKind, Status};

tables! {
    /// Seals ranges.
    pub struct SealRangesRequest: SealRangesRequestArgs, request of SEAL_RANGES {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The ranges to seal.
        pub ranges: Vec<RangeId>,
        /// On whose behalf the ranges are sealed.
        pub kind: SealKind,
        /// The term of the placement driver that orders it; 0: from anybody else.
        pub term: i64 = 0,
        /// The servers that the next ranges are better without, because the sender cannot reach them.
        pub avoid: Vec<ServerId>,
        /// Seal also with too few votes, although records may be lost.
        pub force: bool = false,
    }

    /// The result for one range.
    pub struct SealRangesResult: SealRangesResultArgs {
        /// The stream asked for.
        pub stream_id: StreamId,
        /// The next range, or the sealed one, depending on the kind of seal. Of a replica that is fenced it has no end,
        /// and its next position is what the replica has synced.
        pub range: Option<Range>,
        /// The outcome of this entry.
        pub status: Status,
        /// Of a replica that is fenced: the highest confirmed offset that it was told.
        pub confirmed_offset: Option<Offset> = -1,
        /// In how many parts the state of the writers came that begins the range; 0: the replica has none of them.
        pub writers_parts: u32 = 0,
        /// Where the replica begins, if it was made from a trimmed range; `None`: where the range was opened.
        pub begins_offset: Option<Offset> = -1,
        /// How many entries without offsets stand at `begins_offset`, in front of that place.
        pub begins_marks: u32 = 0,
        /// Where damage begins that the replica cannot read; `None`: it can read all that it has.
        pub whole_offset: Option<Offset> = -1,
        /// How many entries without offsets stand at `whole_offset`, in front of that place.
        pub whole_marks: u32 = 0,
        /// What cannot be read, in pairs: from an offset, to one that is not meant. Of a replica that is fenced, or of a range
        /// that was ended by force.
        pub lost_offsets: Vec<Offset>,
    }

    /// Answers a [`SealRangesRequest`], whole or in part.
    pub struct SealRangesResponse: SealRangesResponseArgs, response of SEAL_RANGES {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each range, in order.
        pub seal_responses: Vec<SealRangesResult>,
        /// The outcome of the whole call.
        pub status: Status,
    }

    /// Ranges of one stream.
    pub struct StreamRanges: StreamRangesArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// Its ranges.
        pub ranges: Vec<Range>,
    }

    /// Tells a range server which ranges it holds.
    pub struct SyncRangesRequest: SyncRangesRequestArgs, request of SYNC_RANGES {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The ranges, by stream.
        pub stream_ranges: Vec<StreamRanges>,
        /// The term of the placement driver that tells it; 0: from anybody else.
        pub term: i64 = 0,
    }

    /// The result for one stream.
    pub struct SyncRangesResult: SyncRangesResultArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// Its ranges as they are now.
        pub ranges: Vec<Range>,
        /// The outcome of this entry.
        pub status: Status,
    }

    /// Answers a [`SyncRangesRequest`], whole or in part.
    pub struct SyncRangesResponse: SyncRangesResponseArgs, response of SYNC_RANGES {
        /// How long the sender is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub sync_responses: Vec<SyncRangesResult>,
        /// The outcome of the whole call.
        pub status: Status,
    }

    /// Opens the range after a sealed one.
    pub struct CreateRangeRequest: CreateRangeRequestArgs, request of CREATE_RANGE {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The range: its stream, index, and start.
        pub range: Option<Range>,
    }

    /// Answers a [`CreateRangeRequest`].
    pub struct CreateRangeResponse: CreateRangeResponseArgs, response of CREATE_RANGE {
        /// The range as it is now.
        pub range: Option<Range>,
        /// The outcome.
        pub status: Status,
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
    }
}
