//! APPEND (0x1001): batches for one stream or many, in one frame.

use sbp_types::{Epoch, Offset, RangeIndex, StreamId, TimestampMs};
use smallvec::SmallVec;

use crate::Status;
use crate::v01::tables;

tables! {
    /// One batch of an [`AppendRequest`].
    #[derive(Copy)]
    pub struct AppendInfo: AppendInfoArgs {
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
    }

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
