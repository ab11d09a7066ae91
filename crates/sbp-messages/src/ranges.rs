//! Ranges: LIST_RANGES (0x2001) and DESCRIBE_RANGES (0x2005).

use bytes::Bytes;
use sbp_types::{Epoch, Offset, Position, RangeIndex, ServerId, StreamId};

use crate::v01::tables;
use crate::{ReplicaState, Status};

tables! {
    /// The id and address of a range server.
    pub struct RangeServer: RangeServerArgs {
        /// Its id; -1 until a placement driver has given it one.
        pub server_id: ServerId,
        /// Its address, `host:port`, as the peer wrote it.
        pub advertise_addr: String,
        /// Where it stands. The replicas of a range are spread over zones.
        pub zone: String,
        /// How often its directory was opened; 0: not told.
        pub starts: i64 = 0,
        /// The highest term of a placement driver that it has followed; 0: not told, or none.
        pub followed: i64 = 0,
    }

    /// A server that holds a range.
    pub struct ReplicaServer: ReplicaServerArgs {
        /// The server.
        pub range_server: Option<RangeServer>,
        /// Whether the server takes the appends.
        pub is_primary: bool,
        /// Whether it has everything up to the end of the range.
        pub state: ReplicaState = Default::default(),
    }

    /// One range of a stream: its bounds and its servers.
    pub struct Range: RangeArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// The range's index in the stream, from 0.
        pub range_index: RangeIndex,
        /// The first offset of the range.
        pub start_offset: Offset,
        /// The end, exclusive; `None` while the range is open.
        pub end_offset: Option<Offset>,
        /// The confirmed end of an open range, the end of a sealed one.
        pub next_offset: Offset,
        /// The servers that hold it.
        pub servers: Vec<ReplicaServer>,
        /// The range's epoch, if it is stated.
        pub epoch: Option<Epoch>,
        /// How many servers hold it, if that is stated.
        pub replica_count: Option<i8>,
        /// How many of them confirm an append, if that is stated.
        pub ack_count: Option<i8>,
        /// How many entries without offsets stand at `end_offset` and belong to the range.
        pub end_marks: u32 = 0,
        /// How many entries without offsets stand at `next_offset`, in front of what is next.
        pub next_marks: u32 = 0,
        /// Where it began when it was opened; `None`: at `start_offset`, which no trim has raised since.
        pub opened_offset: Option<Offset> = -1,
    }
}

impl Range {
    /// Whether the range still takes appends.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end().is_none()
    }

    /// The end of a sealed range, exclusive. A negative number from a peer counts as no end.
    #[must_use]
    pub fn end(&self) -> Option<Offset> {
        self.end_offset.filter(|end| *end >= Offset::ZERO)
    }

    /// The place where a sealed range ends.
    #[must_use]
    pub fn end_position(&self) -> Option<Position> {
        let marks = self.end_marks;
        self.end().map(|offset| Position { offset, marks })
    }

    /// The place of what is next in an open range, of the end in a sealed one.
    #[must_use]
    pub fn next_position(&self) -> Position {
        Position {
            offset: self.next_offset,
            marks: self.next_marks,
        }
    }

    /// The server that takes the appends: the primary, or the first one if none is marked as primary.
    #[must_use]
    pub fn primary(&self) -> Option<&RangeServer> {
        let primary = self
            .servers
            .iter()
            .find(|replica| replica.is_primary)
            .or_else(|| self.servers.first());
        primary.and_then(|replica| replica.range_server.as_ref())
    }
}

tables! {
    /// The stream, index and epoch of a range.
    #[derive(Copy)]
    pub struct RangeId: RangeIdArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// The index of the range; `None`: the open range.
        pub range_index: Option<RangeIndex>,
        /// The epoch that the range must have; `None`: any.
        pub epoch: Option<Epoch>,
        /// In a seal: the end that the sender expects, for comparison.
        pub end_offset: Option<Offset>,
    }

    /// The ranges to list. If both fields are given, a range must match both.
    pub struct RangeCriteria: RangeCriteriaArgs {
        /// The ranges that this server holds.
        pub range_server: Option<RangeServer>,
        /// The ranges of this stream.
        pub stream_id: Option<StreamId>,
    }

    /// Lists ranges, in pages.
    pub struct ListRangesRequest: ListRangesRequestArgs, request of LIST_RANGES {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The criteria, answered in this order.
        pub range_criteria: Vec<RangeCriteria>,
        /// The most ranges in a page; 0: the server's default.
        pub limit: i32,
        /// The continuation in the last page's answer; empty: the first page.
        pub continuation: Bytes,
    }

    /// The ranges that match one of the criteria.
    pub struct ListRangesResult: ListRangesResultArgs {
        /// The criteria, repeated.
        pub range_criteria: Option<RangeCriteria>,
        /// The ranges, those of a stream in order.
        pub ranges: Vec<Range>,
        /// The outcome of this entry.
        pub status: Status,
    }

    /// Answers a [`ListRangesRequest`], whole or in part.
    pub struct ListRangesResponse: ListRangesResponseArgs, response of LIST_RANGES {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// Results in the order of the criteria.
        pub list_responses: Vec<ListRangesResult>,
        /// The outcome of the whole call.
        pub status: Status,
        /// To be sent with the request for the next page; empty: this is the last page.
        pub continuation: Bytes,
        /// The term of the placement driver that answers; 0: not told.
        pub term: i64 = 0,
    }

    /// Describes ranges by name.
    pub struct DescribeRangesRequest: DescribeRangesRequestArgs, request of DESCRIBE_RANGES {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// Which ranges.
        pub ranges: Vec<RangeId>,
    }

    /// One range as it is now.
    pub struct DescribeRangeResult: DescribeRangeResultArgs {
        /// The stream asked for.
        pub stream_id: StreamId,
        /// The range; absent on errors.
        pub range: Option<Range>,
        /// The outcome of this entry.
        pub status: Status,
    }

    /// Answers a [`DescribeRangesRequest`], whole or in part.
    pub struct DescribeRangesResponse: DescribeRangesResponseArgs, response of DESCRIBE_RANGES {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each range asked for, in order.
        pub describe_responses: Vec<DescribeRangeResult>,
        /// The outcome of the whole call.
        pub status: Status,
    }
}
