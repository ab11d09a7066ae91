//! FETCH (0x1002): batches from one or many streams, answered as they become available.

use sbp_types::{Offset, StreamId, TimestampMs};
use smallvec::SmallVec;

use crate::Status;
use crate::v01::tables;

tables! {
    /// One entry: a position to read from.
    #[derive(Copy)]
    pub struct FetchInfo: FetchInfoArgs {
        /// The stream to read.
        pub stream_id: StreamId,
        /// The number of this entry, which its result repeats: 0 up to the number of entries, each once.
        pub request_index: i32,
        /// Where to begin; [`Offset::EARLIEST`] and [`Offset::LATEST`] are resolved by the server.
        pub fetch_offset: Offset,
        /// The most bytes to return, but at least one batch; 0: the server's default; -1: positions only.
        pub batch_max_bytes: i32,
        /// Where to end, exclusive; `None`: no end.
        pub end_offset: Option<Offset>,
        /// Begin at the first batch with a record at or after this time.
        pub start_timestamp_ms: Option<TimestampMs>,
    }
}

impl FetchInfo {
    /// The value of `batch_max_bytes` that asks for positions and no data.
    pub const POSITIONS_ONLY: i32 = -1;
}

impl FetchRequest {
    /// The request that ends an earlier FETCH of the same connection; needs [`features::WITHDRAW`](crate::features::WITHDRAW).
    #[must_use]
    pub fn withdrawal(call: u32) -> Self {
        Self {
            withdraw: i32::try_from(call).unwrap_or(0),
            ..Self::default()
        }
    }

    /// The number of the call that the request ends; such a request asks for nothing else.
    #[must_use]
    pub fn withdrawn(&self) -> Option<u32> {
        u32::try_from(self.withdraw).ok().filter(|&call| call != 0)
    }
}

tables! {
    /// Reads batches. The answer has one or several frames; the last one has the END flag.
    pub struct FetchRequest: FetchRequestArgs, request of FETCH by template {
        /// How long entries may wait for data, in milliseconds; the server clamps it to 0 ..= 60,000.
        pub max_wait_ms: i32,
        /// The number of bytes that an entry waits for; 0: it does not wait.
        pub min_bytes: i32,
        /// The entries.
        pub fetch_requests: SmallVec<[FetchInfo; 1]>,
        /// The most bytes of payload in all frames together, exceeded by one batch at most; 0: the server's default.
        pub max_bytes: i32,
        /// The number of an earlier FETCH of the same connection that is to end at once, with what it has been answered.
        /// Such a request has no entries. 0: none.
        pub withdraw: i32,
    }

    /// The result for one entry.
    pub struct FetchResult: FetchResultArgs {
        /// The stream read.
        pub stream_id: StreamId,
        /// The number of the entry in the request.
        pub request_index: i32,
        /// Bytes of this result in the payload, which has the results' batches one after the other in their order.
        pub batch_length: i32,
        /// The outcome of this entry.
        pub status: Status,
        /// The offset of the first batch's first record; without data, the resolved offset; `None` on errors.
        pub base_offset: Option<Offset>,
        /// Where the next fetch starts; if the offset was out of bounds, the nearer bound; `None` on other errors.
        pub next_offset: Option<Offset>,
        /// The first offset that is kept; `None` on errors that leave it open.
        pub start_offset: Option<Offset>,
        /// The confirmed end, exclusive; `None` on errors that leave it open.
        pub high_watermark: Option<Offset>,
        /// Whether the range is sealed and `next_offset` is its end; the stream goes on in another range.
        pub end_of_range: bool,
        /// The number of records in the returned batches.
        pub record_count: i32,
    }

    /// One frame of the answer to a [`FetchRequest`].
    pub struct FetchResponse: FetchResponseArgs, response of FETCH by template {
        /// How long the client is asked to wait before its next fetch, in milliseconds.
        pub throttle_time_ms: i32,
        /// Results of the entries that are answered by this frame.
        pub fetch_responses: SmallVec<[FetchResult; 1]>,
        /// The outcome of the whole call; of several frames, that of the last one counts.
        pub status: Status,
    }
}
