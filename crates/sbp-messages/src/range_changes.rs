//! Changing ranges: SEAL_RANGES (0x2002), SYNC_RANGES (0x2003), CREATE_RANGE (0x2004).

use sbp_types::StreamId;

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

/// Seals ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealRangesRequest {
    /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
    pub timeout_ms: i32,
    /// Which ranges.
    pub ranges: Vec<RangeId>,
    /// On whose behalf.
    pub kind: SealKind,
}

/// What became of one range to be sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealRangesResult {
    /// The stream asked for.
    pub stream_id: StreamId,
    /// The next range, or the sealed one, as the kind says.
    pub range: Option<Range>,
    /// How it ended.
    pub status: Status,
}

impl Default for SealRangesResult {
    fn default() -> Self {
        Self {
            stream_id: StreamId(-1),
            range: None,
            status: Status::success(),
        }
    }
}

/// Answers a [`SealRangesRequest`], whole or in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealRangesResponse {
    /// How long the client is asked to wait before its next call of this kind, in milliseconds.
    pub throttle_time_ms: i32,
    /// One result for each range, in order.
    pub seal_responses: Vec<SealRangesResult>,
    /// How the call as a whole ended.
    pub status: Status,
}

/// Ranges of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRanges {
    /// The stream.
    pub stream_id: StreamId,
    /// Its ranges.
    pub ranges: Vec<Range>,
}

impl Default for StreamRanges {
    fn default() -> Self {
        Self {
            stream_id: StreamId(-1),
            ranges: Vec::new(),
        }
    }
}

/// Tells a range server the ranges that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRangesRequest {
    /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
    pub timeout_ms: i32,
    /// The ranges, by stream.
    pub stream_ranges: Vec<StreamRanges>,
}

/// What became of one stream's ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRangesResult {
    /// The stream.
    pub stream_id: StreamId,
    /// Its ranges as they now are.
    pub ranges: Vec<Range>,
    /// How it ended.
    pub status: Status,
}

impl Default for SyncRangesResult {
    fn default() -> Self {
        Self {
            stream_id: StreamId(-1),
            ranges: Vec::new(),
            status: Status::success(),
        }
    }
}

/// Answers a [`SyncRangesRequest`], whole or in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRangesResponse {
    /// How long the sender is asked to wait before its next call of this kind, in milliseconds.
    pub throttle_time_ms: i32,
    /// One result for each stream, in order.
    pub sync_responses: Vec<SyncRangesResult>,
    /// How the call as a whole ended.
    pub status: Status,
}

/// Opens the range behind a sealed one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateRangeRequest {
    /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
    pub timeout_ms: i32,
    /// The range: its stream, index, and start.
    pub range: Option<Range>,
}

/// Answers a [`CreateRangeRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateRangeResponse {
    /// How it ended.
    pub status: Status,
    /// The range as it now is.
    pub range: Option<Range>,
    /// How long the client is asked to wait before its next call of this kind, in milliseconds.
    pub throttle_time_ms: i32,
}
