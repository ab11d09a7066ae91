//! Changing streams: DELETE_STREAMS (0x3002), UPDATE_STREAMS (0x3003), TRIM_STREAMS (0x3005).

use sbp_types::{Offset, StreamId};

use crate::v01::tables;
use crate::{Range, Status, Stream};

tables! {
    /// Deletes streams.
    pub struct DeleteStreamsRequest: DeleteStreamsRequestArgs, request of DELETE_STREAMS {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The streams to delete; only their ids are used.
        pub streams: Vec<Stream>,
        /// The term of the placement driver that orders it; 0: from anybody else.
        pub term: i64 = 0,
    }

    /// The result for one stream.
    pub struct DeleteStreamResult: DeleteStreamResultArgs {
        /// The deleted stream; on errors only its id.
        pub deleted_stream: Option<Stream>,
        /// The outcome of this entry.
        pub status: Status,
        /// Whether the range server holds nothing of the stream any more.
        pub gone: bool = false,
    }

    /// Answers a [`DeleteStreamsRequest`], whole or in part.
    pub struct DeleteStreamsResponse: DeleteStreamsResponseArgs, response of DELETE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub delete_responses: Vec<DeleteStreamResult>,
        /// The outcome of the whole call.
        pub status: Status,
    }

    /// Changes settings of streams.
    pub struct UpdateStreamsRequest: UpdateStreamsRequestArgs, request of UPDATE_STREAMS {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The new settings. Fields that are 0 or absent stay unchanged, except `retention_period_ms`, which is always
        /// taken.
        pub streams: Vec<Stream>,
    }

    /// The result for one stream.
    pub struct UpdateStreamResult: UpdateStreamResultArgs {
        /// The stream as it is now; on errors only its id.
        pub stream: Option<Stream>,
        /// The outcome of this entry.
        pub status: Status,
    }

    /// Answers an [`UpdateStreamsRequest`], whole or in part.
    pub struct UpdateStreamsResponse: UpdateStreamsResponseArgs, response of UPDATE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub update_responses: Vec<UpdateStreamResult>,
        /// The outcome of the whole call.
        pub status: Status,
    }

    /// The new start of a stream.
    #[derive(Copy)]
    pub struct TrimmedStream: TrimmedStreamArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// The first offset that is kept.
        pub trim_offset: Offset,
    }

    /// Moves the start of streams forward.
    pub struct TrimStreamsRequest: TrimStreamsRequestArgs, request of TRIM_STREAMS {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The streams, and where they are to begin.
        pub trimmed_streams: Vec<TrimmedStream>,
    }

    /// The result for one stream.
    pub struct TrimStreamResult: TrimStreamResultArgs {
        /// The stream; on errors only its id.
        pub trimmed_stream: Option<Stream>,
        /// The first range that is left.
        pub range: Option<Range>,
        /// The outcome of this entry.
        pub status: Status,
    }

    /// Answers a [`TrimStreamsRequest`], whole or in part.
    pub struct TrimStreamsResponse: TrimStreamsResponseArgs, response of TRIM_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub trim_responses: Vec<TrimStreamResult>,
        /// The outcome of the whole call.
        pub status: Status,
    }
}
