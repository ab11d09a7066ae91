//! Streams: CREATE_STREAMS (0x3001) and DESCRIBE_STREAMS (0x3004).

use bytes::Bytes;
use sbp_types::{StreamId, StreamIdentity, TimestampMs};

use crate::v01::tables;
use crate::{Range, Status};

tables! {
    /// A property: a key and a value that only the user gives a meaning to.
    pub struct KeyValue: KeyValueArgs {
        /// The key.
        pub key: String,
        /// The value.
        pub value: String,
    }

    /// A stream's settings. In a request 0 means the server's default; an answer shows what is in force.
    pub struct Stream: StreamArgs {
        /// Its number; -1 where it has none yet.
        pub stream_id: StreamId,
        /// How many servers hold each range.
        pub replica_nums: i8,
        /// How long records are kept, in milliseconds; 0: for ever.
        pub retention_period_ms: i64,
        /// How many servers confirm an append.
        pub ack_count: i8,
        /// Its name; empty: none.
        pub name: String,
        /// Its properties. Absent and empty differ in an update: absent leaves them as they are.
        pub properties: Option<Vec<KeyValue>>,
        /// How many bytes are kept; -1: no bound.
        pub retention_bytes: i64,
        /// The columns, as an Arrow IPC schema message; absent: the records are opaque.
        pub schema: Option<Bytes>,
        /// When it was created, by the placement driver's clock.
        pub created_at_ms: TimestampMs,
        /// What tells it from every other stream, also from one that has its number on a server that was set up anew. Means
        /// nothing in a request. `None`: the server does not tell identities, or the stream is older than they are.
        pub identity: Option<StreamIdentity>,
    }

    /// Creates streams, each with an open first range.
    pub struct CreateStreamsRequest: CreateStreamsRequestArgs, request of CREATE_STREAMS {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// Their settings, without numbers.
        pub streams: Vec<Stream>,
    }

    /// What became of one stream to be created.
    pub struct CreateStreamResult: CreateStreamResultArgs {
        /// The stream; on errors its name at least.
        pub stream: Option<Stream>,
        /// Its open range.
        pub range: Option<Range>,
        /// How it ended.
        pub status: Status,
    }

    /// Answers a [`CreateStreamsRequest`], whole or in part.
    pub struct CreateStreamsResponse: CreateStreamsResponseArgs, response of CREATE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub create_responses: Vec<CreateStreamResult>,
        /// How the call as a whole ended.
        pub status: Status,
    }
}

/// Describes streams by number and by name; with neither, lists all of them in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeStreamsRequest {
    /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
    pub timeout_ms: i32,
    /// Streams by number.
    pub stream_ids: Vec<StreamId>,
    /// Streams by name.
    pub names: Vec<String>,
    /// Streams in one page of a list; 0: the server's default.
    pub limit: i32,
    /// Where the last page ended, as its answer said; empty: the first page.
    pub continuation: Bytes,
}

tables! {
    /// One stream as it now is.
    pub struct DescribeStreamResult: DescribeStreamResultArgs {
        /// The stream; on errors its number or name at least.
        pub stream: Option<Stream>,
        /// How it ended.
        pub status: Status,
    }

    /// Answers a [`DescribeStreamsRequest`], whole or in part.
    pub struct DescribeStreamsResponse: DescribeStreamsResponseArgs, response of DESCRIBE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each number, then for each name, in order; or a page of the list, by number.
        pub describe_responses: Vec<DescribeStreamResult>,
        /// How the call as a whole ended.
        pub status: Status,
        /// Send it back for the next page; empty: that was all.
        pub continuation: Bytes,
    }
}
