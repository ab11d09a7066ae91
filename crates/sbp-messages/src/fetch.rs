//! FETCH (0x1002): batches from one stream or many, answered as they come.

use sbp_types::{Offset, StreamId, TimestampMs};
use smallvec::SmallVec;

use crate::Status;
use crate::v01::tables;

tables! {
    /// One place to read from.
    #[derive(Copy)]
    pub struct FetchInfo: FetchInfoArgs {
        /// The stream to read.
        pub stream_id: StreamId,
        /// The number that this entry's result will carry: 0 up to the number of entries, each once.
        pub request_index: i32,
        /// Where to begin; [`Offset::EARLIEST`] and [`Offset::LATEST`] are resolved by the server.
        pub fetch_offset: Offset,
        /// Data to return at most, though at least one batch; 0: the server's default; -1: positions only.
        pub batch_max_bytes: i32,
        /// Where to end, exclusive; `None`: nowhere.
        pub end_offset: Option<Offset>,
        /// Skip to the first batch that reaches this time.
        pub start_timestamp_ms: Option<TimestampMs>,
    }
}

impl FetchInfo {
    /// The `batch_max_bytes` that asks for positions and no data.
    pub const POSITIONS_ONLY: i32 = -1;
}

tables! {
    /// Reads batches; the answer comes in one frame or several, the last with END.
    pub struct FetchRequest: FetchRequestArgs, request of FETCH by template {
        /// How long entries may wait for data, in milliseconds; the server clamps it to 0 ..= 60,000.
        pub max_wait_ms: i32,
        /// Data an entry waits for; 0: it does not wait.
        pub min_bytes: i32,
        /// Where to read.
        pub fetch_requests: SmallVec<[FetchInfo; 1]>,
        /// Payload of all answers together, exceeded by one batch at most; 0: the server's default.
        pub max_bytes: i32,
    }

    /// What one entry of a fetch got.
    pub struct FetchResult: FetchResultArgs {
        /// The stream read.
        pub stream_id: StreamId,
        /// The request's number for the entry.
        pub request_index: i32,
        /// Bytes of this result in the payload, where the results' batches stand back to back in the results' order.
        pub batch_length: i32,
        /// How it ended.
        pub status: Status,
        /// The offset of the first batch's first record; without data the resolved offset; -1 on errors.
        pub base_offset: Offset,
        /// Where the next fetch starts; out of bounds: the nearer bound.
        pub next_offset: Offset,
        /// The first offset that is kept.
        pub start_offset: Offset,
        /// The confirmed end, exclusive.
        pub high_watermark: Offset,
        /// The range is sealed and `next_offset` is its end; the stream goes on in another range.
        pub end_of_range: bool,
        /// Records in the batches returned, whole batches counted.
        pub record_count: i32,
    }

    /// One frame of the answer to a [`FetchRequest`].
    pub struct FetchResponse: FetchResponseArgs, response of FETCH by template {
        /// How long the client is asked to wait before its next fetch, in milliseconds.
        pub throttle_time_ms: i32,
        /// Results of the entries that are answered by this frame.
        pub fetch_responses: SmallVec<[FetchResult; 1]>,
        /// How the call as a whole stands; of several frames the last one's counts.
        pub status: Status,
    }
}
