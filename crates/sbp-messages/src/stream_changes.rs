//! Changing streams: DELETE_STREAMS (0x3002), UPDATE_STREAMS (0x3003), TRIM_STREAMS (0x3005).

use sbp_types::{Offset, StreamId};

use crate::v01::tables;
use crate::{Range, Status, Stream};

tables! {
    /// Deletes streams.
    pub struct DeleteStreamsRequest: DeleteStreamsRequestArgs, request of DELETE_STREAMS {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// Which streams: only their numbers count.
        pub streams: Vec<Stream>,
    }

    /// What became of one stream to be deleted.
    pub struct DeleteStreamResult: DeleteStreamResultArgs {
        /// The stream that was; on errors its number at least.
        pub deleted_stream: Option<Stream>,
        /// How it ended.
        pub status: Status,
    }

    /// Answers a [`DeleteStreamsRequest`], whole or in part.
    pub struct DeleteStreamsResponse: DeleteStreamsResponseArgs, response of DELETE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub delete_responses: Vec<DeleteStreamResult>,
        /// How the call as a whole ended.
        pub status: Status,
    }

    /// Changes settings of streams.
    pub struct UpdateStreamsRequest: UpdateStreamsRequestArgs, request of UPDATE_STREAMS {
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
        /// The settings. What is 0 or absent stays as it is, but `retention_period_ms`, which is always taken.
        pub streams: Vec<Stream>,
    }

    /// What became of one stream to be changed.
    pub struct UpdateStreamResult: UpdateStreamResultArgs {
        /// The stream as it now is; on errors its number at least.
        pub stream: Option<Stream>,
        /// How it ended.
        pub status: Status,
    }

    /// Answers an [`UpdateStreamsRequest`], whole or in part.
    pub struct UpdateStreamsResponse: UpdateStreamsResponseArgs, response of UPDATE_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub update_responses: Vec<UpdateStreamResult>,
        /// How the call as a whole ended.
        pub status: Status,
    }

    /// Where a stream is to begin.
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
        /// Which streams, and where they are to begin.
        pub trimmed_streams: Vec<TrimmedStream>,
    }

    /// What became of one stream to be trimmed.
    pub struct TrimStreamResult: TrimStreamResultArgs {
        /// The stream; on errors its number at least.
        pub trimmed_stream: Option<Stream>,
        /// The first range that is left.
        pub range: Option<Range>,
        /// How it ended.
        pub status: Status,
    }

    /// Answers a [`TrimStreamsRequest`], whole or in part.
    pub struct TrimStreamsResponse: TrimStreamsResponseArgs, response of TRIM_STREAMS {
        /// How long the client is asked to wait before its next call of this kind, in milliseconds.
        pub throttle_time_ms: i32,
        /// One result for each stream, in order.
        pub trim_responses: Vec<TrimStreamResult>,
        /// How the call as a whole ended.
        pub status: Status,
    }
}
