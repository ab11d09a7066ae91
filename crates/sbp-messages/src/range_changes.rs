//! Changing ranges: SEAL_RANGES (0x2002), SYNC_RANGES (0x2003), CREATE_RANGE (0x2004).

use sbp_types::StreamId;

use crate::v01::tables;
use crate::{Range, RangeId, Status};

/// On whose behalf a range is sealed. Other numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SealKind(pub i8);

impl SealKind {
    /// Not said: as [`SealKind::PLACEMENT_DRIVER`].
    pub const UNSPECIFIED: Self = Self(0);
    /// Seal here and answer with the sealed range.
    pub const RANGE_SERVER: Self = Self(1);
    /// Seal, publish the end, open the next range and answer with that one.
    pub const PLACEMENT_DRIVER: Self = Self(2);
}

tables! {
    /// Seals ranges.
    pub struct SealRangesRequest: SealRangesRequestArgs, request of SEAL_RANGES {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// Which ranges.
        pub ranges: Vec<RangeId>,
        /// On whose behalf.
        pub kind: SealKind,
    }

    /// What became of one range to be sealed.
    pub struct SealRangesResult: SealRangesResultArgs {
        /// The stream asked for.
        pub stream_id: StreamId,
        /// The next range, or the sealed one, as the kind says.
        pub range: Option<Range>,
        /// How it ended.
        pub status: Status,
    }

    /// Answers a [`SealRangesRequest`], whole or in part.
    pub struct SealRangesResponse: SealRangesResponseArgs, response of SEAL_RANGES {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each range, in order.
        pub seal_responses: Vec<SealRangesResult>,
        /// How the call as a whole ended.
        pub status: Status,
    }

    /// Ranges of one stream.
    pub struct StreamRanges: StreamRangesArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// Its ranges.
        pub ranges: Vec<Range>,
    }

    /// Tells a range server the ranges that it holds.
    pub struct SyncRangesRequest: SyncRangesRequestArgs, request of SYNC_RANGES {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The ranges, by stream.
        pub stream_ranges: Vec<StreamRanges>,
    }

    /// What became of one stream's ranges.
    pub struct SyncRangesResult: SyncRangesResultArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// Its ranges as they now are.
        pub ranges: Vec<Range>,
        /// How it ended.
        pub status: Status,
    }

    /// Answers a [`SyncRangesRequest`], whole or in part.
    pub struct SyncRangesResponse: SyncRangesResponseArgs, response of SYNC_RANGES {
        /// How long the sender is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub sync_responses: Vec<SyncRangesResult>,
        /// How the call as a whole ended.
        pub status: Status,
    }

    /// Opens the range behind a sealed one.
    pub struct CreateRangeRequest: CreateRangeRequestArgs, request of CREATE_RANGE {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The range: its stream, index, and start.
        pub range: Option<Range>,
    }

    /// Answers a [`CreateRangeRequest`].
    pub struct CreateRangeResponse: CreateRangeResponseArgs, response of CREATE_RANGE {
        /// The range as it now is.
        pub range: Option<Range>,
        /// How it ended.
        pub status: Status,
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
    }
}
