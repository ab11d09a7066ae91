//! Streams: CREATE_STREAMS (0x3001) and DESCRIBE_STREAMS (0x3004).

use bytes::Bytes;
use sbp_types::{StreamId, StreamIdentity, TimestampMs};

use crate::v01::{Builder, Field, Wire, Written, fb, message, tables};
use crate::{Range, Status};

tables! {
    /// A property: a key and a value whose meaning only the user knows.
    pub struct KeyValue: KeyValueArgs {
        /// The key.
        pub key: String,
        /// The value.
        pub value: String,
    }

    /// A stream and its settings. In a request 0 means the server's default; an answer has the values in force.
    pub struct Stream: StreamArgs {
        /// Its id; -1 if it has none yet.
        pub stream_id: StreamId,
        /// How many servers hold each range.
        pub replica_nums: i8,
        /// How long records are kept, in milliseconds; 0: for ever.
        pub retention_period_ms: i64,
        /// How many servers confirm an append.
        pub ack_count: i8,
        /// Its name; empty: it has no name.
        pub name: String,
        /// Its properties. Absent and empty differ in an update: absent leaves them as they are.
        pub properties: Option<Vec<KeyValue>>,
        /// How many bytes are kept; [`Stream::UNBOUNDED`]: no bound; 0 in a request: the default, or what it is now.
        pub retention_bytes: i64,
        /// The columns, as an Arrow IPC schema message; absent: the records are opaque.
        pub schema: Option<Bytes>,
        /// When it was created, by the placement driver's clock.
        pub created_at_ms: TimestampMs,
        /// Distinguishes the stream from every other, even from one with the same id on a server that was set up again.
        /// Ignored in requests. `None`: the server does not know identities, or the stream was created before they
        /// existed.
        pub identity: Option<StreamIdentity>,
    }

    /// Creates streams, each with an open first range.
    pub struct CreateStreamsRequest: CreateStreamsRequestArgs, request of CREATE_STREAMS {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The settings of the streams, without ids.
        pub streams: Vec<Stream>,
    }

    /// The result for one stream.
    pub struct CreateStreamResult: CreateStreamResultArgs {
        /// The stream; on errors only its name.
        pub stream: Option<Stream>,
        /// Its open range.
        pub range: Option<Range>,
        /// The outcome of this entry.
        pub status: Status,
    }

    /// Answers a [`CreateStreamsRequest`], whole or in part.
    pub struct CreateStreamsResponse: CreateStreamsResponseArgs, response of CREATE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub create_responses: Vec<CreateStreamResult>,
        /// The outcome of the whole call.
        pub status: Status,
    }
}

impl Stream {
    /// The value of `retention_bytes` that means no bound.
    pub const UNBOUNDED: i64 = -1;

    /// How many bytes are kept; `None`: no bound.
    #[must_use]
    pub fn kept_bytes(&self) -> Option<i64> {
        Some(self.retention_bytes).filter(|bytes| *bytes > 0)
    }
}

/// Describes streams by id and by name; without either, lists all streams in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeStreamsRequest {
    /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
    pub timeout_ms: i32,
    /// The ids of streams.
    pub stream_ids: Vec<StreamId>,
    /// The names of streams.
    pub names: Vec<String>,
    /// The most streams in a page of a list; 0: the server's default.
    pub limit: i32,
    /// The continuation in the last page's answer; empty: the first page.
    pub continuation: Bytes,
}

tables! {
    /// One stream as it is now.
    pub struct DescribeStreamResult: DescribeStreamResultArgs {
        /// The stream; on errors only its id or name.
        pub stream: Option<Stream>,
        /// The outcome of this entry.
        pub status: Status,
    }

    /// Answers a [`DescribeStreamsRequest`], whole or in part.
    pub struct DescribeStreamsResponse: DescribeStreamsResponseArgs, response of DESCRIBE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each id, then for each name, in order; or a page of the list, ordered by id.
        pub describe_responses: Vec<DescribeStreamResult>,
        /// The outcome of the whole call.
        pub status: Status,
        /// To be sent with the request for the next page; empty: this is the last page.
        pub continuation: Bytes,
        /// The term of the placement driver that answers; 0: not told.
        pub term: i64 = 0,
    }
}

// By hand: it writes the names, the vector of numbers, and then the vector of names, which is not field by field.
impl Wire for DescribeStreamsRequest {
    type Table<'a> = fb::DescribeStreamsRequest<'a>;
    const NAME: &'static str = "DescribeStreamsRequest";

    fn read(table: Self::Table<'_>) -> Self {
        let ids = table.stream_ids().into_iter().flatten();
        let names = table.names().into_iter().flatten();
        Self {
            timeout_ms: table.timeout_ms(),
            stream_ids: ids.map(StreamId).collect(),
            names: names.map(str::to_owned).collect(),
            limit: table.limit(),
            continuation: Field::read(table.continuation()),
        }
    }

    fn write(&self, builder: &mut Builder) -> Written<Self> {
        let ids: Vec<i64> = self.stream_ids.iter().map(|id| id.0).collect();
        let names: Vec<_> = self.names.iter().map(|name| builder.create_string(name)).collect();
        let args = fb::DescribeStreamsRequestArgs {
            timeout_ms: self.timeout_ms,
            stream_ids: (!ids.is_empty()).then(|| builder.create_vector(&ids)),
            names: (!names.is_empty()).then(|| builder.create_vector(&names)),
            limit: self.limit,
            continuation: self.continuation.write(builder),
        };
        fb::DescribeStreamsRequest::create(builder, &args)
    }
}

message! { DescribeStreamsRequest, request of DESCRIBE_STREAMS }
