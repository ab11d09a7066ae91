//! FETCH.

use flatbuffers::WIPOffset;
use sbp_types::{Offset, StreamId, TimestampMs};

use super::shared::read_status;
use super::{Builder, Wire, fb, read_tables, write_tables};
use crate::{FetchInfo, FetchRequest, FetchResponse, FetchResult};

impl Wire for FetchInfo {
    type Table<'a> = fb::FetchInfo<'a>;
    const NAME: &'static str = "FetchInfo";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            request_index: table.request_index(),
            fetch_offset: Offset(table.fetch_offset()),
            batch_max_bytes: table.batch_max_bytes(),
            end_offset: Offset(table.end_offset()),
            start_timestamp_ms: TimestampMs(table.start_timestamp_ms()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        fb::FetchInfo::create(
            builder,
            &fb::FetchInfoArgs {
                stream_id: self.stream_id.0,
                request_index: self.request_index,
                fetch_offset: self.fetch_offset.0,
                batch_max_bytes: self.batch_max_bytes,
                end_offset: self.end_offset.0,
                start_timestamp_ms: self.start_timestamp_ms.0,
            },
        )
    }
}

impl Wire for FetchRequest {
    type Table<'a> = fb::FetchRequest<'a>;
    const NAME: &'static str = "FetchRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            max_wait_ms: table.max_wait_ms(),
            min_bytes: table.min_bytes(),
            fetch_requests: read_tables(table.fetch_requests()),
            max_bytes: table.max_bytes(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let fetch_requests = Some(write_tables(&self.fetch_requests, builder));
        fb::FetchRequest::create(
            builder,
            &fb::FetchRequestArgs {
                max_wait_ms: self.max_wait_ms,
                min_bytes: self.min_bytes,
                fetch_requests,
                max_bytes: self.max_bytes,
            },
        )
    }
}

impl Wire for FetchResult {
    type Table<'a> = fb::FetchResult<'a>;
    const NAME: &'static str = "FetchResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            request_index: table.request_index(),
            batch_length: table.batch_length(),
            status: read_status(table.status()),
            base_offset: Offset(table.base_offset()),
            next_offset: Offset(table.next_offset()),
            start_offset: Offset(table.start_offset()),
            high_watermark: Offset(table.high_watermark()),
            end_of_range: table.end_of_range(),
            record_count: table.record_count(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let status = Some(self.status.write(builder));
        fb::FetchResult::create(
            builder,
            &fb::FetchResultArgs {
                stream_id: self.stream_id.0,
                request_index: self.request_index,
                batch_length: self.batch_length,
                status,
                base_offset: self.base_offset.0,
                next_offset: self.next_offset.0,
                start_offset: self.start_offset.0,
                high_watermark: self.high_watermark.0,
                end_of_range: self.end_of_range,
                record_count: self.record_count,
            },
        )
    }
}

impl Wire for FetchResponse {
    type Table<'a> = fb::FetchResponse<'a>;
    const NAME: &'static str = "FetchResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            fetch_responses: read_tables(table.fetch_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let fetch_responses = Some(write_tables(&self.fetch_responses, builder));
        let status = Some(self.status.write(builder));
        fb::FetchResponse::create(
            builder,
            &fb::FetchResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                fetch_responses,
                status,
            },
        )
    }
}
