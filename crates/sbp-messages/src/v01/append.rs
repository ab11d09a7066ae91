//! APPEND.

use flatbuffers::WIPOffset;
use sbp_types::{Epoch, Offset, RangeIndex, StreamId, TimestampMs};

use super::shared::read_status;
use super::{Builder, Wire, fb, read_tables, write_tables};
use crate::{AppendInfo, AppendRequest, AppendResponse, AppendResult};

impl Wire for AppendInfo {
    type Table<'a> = fb::AppendInfo<'a>;
    const NAME: &'static str = "AppendInfo";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            request_index: table.request_index(),
            batch_length: table.batch_length(),
            range_index: RangeIndex(table.range_index()),
            epoch: Epoch(table.epoch()),
            expected_offset: Offset(table.expected_offset()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        fb::AppendInfo::create(
            builder,
            &fb::AppendInfoArgs {
                stream_id: self.stream_id.0,
                request_index: self.request_index,
                batch_length: self.batch_length,
                range_index: self.range_index.0,
                epoch: self.epoch.0,
                expected_offset: self.expected_offset.0,
            },
        )
    }
}

impl Wire for AppendRequest {
    type Table<'a> = fb::AppendRequest<'a>;
    const NAME: &'static str = "AppendRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            append_requests: read_tables(table.append_requests()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let append_requests = Some(write_tables(&self.append_requests, builder));
        fb::AppendRequest::create(
            builder,
            &fb::AppendRequestArgs {
                timeout_ms: self.timeout_ms,
                append_requests,
            },
        )
    }
}

impl Wire for AppendResult {
    type Table<'a> = fb::AppendResult<'a>;
    const NAME: &'static str = "AppendResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            request_index: table.request_index(),
            base_offset: Offset(table.base_offset()),
            stream_append_time_ms: TimestampMs(table.stream_append_time_ms()),
            status: read_status(table.status()),
            next_offset: Offset(table.next_offset()),
            duplicate: table.duplicate(),
            next_sequence: table.next_sequence(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let status = Some(self.status.write(builder));
        fb::AppendResult::create(
            builder,
            &fb::AppendResultArgs {
                stream_id: self.stream_id.0,
                request_index: self.request_index,
                base_offset: self.base_offset.0,
                stream_append_time_ms: self.stream_append_time_ms.0,
                status,
                next_offset: self.next_offset.0,
                duplicate: self.duplicate,
                next_sequence: self.next_sequence,
            },
        )
    }
}

impl Wire for AppendResponse {
    type Table<'a> = fb::AppendResponse<'a>;
    const NAME: &'static str = "AppendResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            append_responses: read_tables(table.append_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let append_responses = Some(write_tables(&self.append_responses, builder));
        let status = Some(self.status.write(builder));
        fb::AppendResponse::create(
            builder,
            &fb::AppendResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                append_responses,
                status,
            },
        )
    }
}
