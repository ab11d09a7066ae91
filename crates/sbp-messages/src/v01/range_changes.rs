//! SEAL_RANGES, SYNC_RANGES and CREATE_RANGE.

use flatbuffers::WIPOffset;
use sbp_types::StreamId;

use super::shared::read_status;
use super::{Builder, Wire, fb, read_tables, write_tables};
use crate::{
    CreateRangeRequest, CreateRangeResponse, Range, SealKind, SealRangesRequest, SealRangesResponse, SealRangesResult,
    StreamRanges, SyncRangesRequest, SyncRangesResponse, SyncRangesResult,
};

impl Wire for SealRangesRequest {
    type Table<'a> = fb::SealRangesRequest<'a>;
    const NAME: &'static str = "SealRangesRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            ranges: read_tables(table.ranges()),
            kind: SealKind(table.kind().0),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let ranges = Some(write_tables(&self.ranges, builder));
        let kind = fb::SealKind(self.kind.0);
        fb::SealRangesRequest::create(
            builder,
            &fb::SealRangesRequestArgs {
                timeout_ms: self.timeout_ms,
                ranges,
                kind,
            },
        )
    }
}

impl Wire for SealRangesResult {
    type Table<'a> = fb::SealRangesResult<'a>;
    const NAME: &'static str = "SealRangesResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            range: table.range().map(Range::read),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range = self.range.as_ref().map(|range| range.write(builder));
        let status = Some(self.status.write(builder));
        fb::SealRangesResult::create(
            builder,
            &fb::SealRangesResultArgs {
                stream_id: self.stream_id.0,
                range,
                status,
            },
        )
    }
}

impl Wire for SealRangesResponse {
    type Table<'a> = fb::SealRangesResponse<'a>;
    const NAME: &'static str = "SealRangesResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            seal_responses: read_tables(table.seal_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let seal_responses = Some(write_tables(&self.seal_responses, builder));
        let status = Some(self.status.write(builder));
        fb::SealRangesResponse::create(
            builder,
            &fb::SealRangesResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                seal_responses,
                status,
            },
        )
    }
}

impl Wire for StreamRanges {
    type Table<'a> = fb::StreamRanges<'a>;
    const NAME: &'static str = "StreamRanges";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            ranges: read_tables(table.ranges()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let ranges = Some(write_tables(&self.ranges, builder));
        fb::StreamRanges::create(
            builder,
            &fb::StreamRangesArgs {
                stream_id: self.stream_id.0,
                ranges,
            },
        )
    }
}

impl Wire for SyncRangesRequest {
    type Table<'a> = fb::SyncRangesRequest<'a>;
    const NAME: &'static str = "SyncRangesRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            stream_ranges: read_tables(table.stream_ranges()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let stream_ranges = Some(write_tables(&self.stream_ranges, builder));
        fb::SyncRangesRequest::create(
            builder,
            &fb::SyncRangesRequestArgs {
                timeout_ms: self.timeout_ms,
                stream_ranges,
            },
        )
    }
}

impl Wire for SyncRangesResult {
    type Table<'a> = fb::SyncRangesResult<'a>;
    const NAME: &'static str = "SyncRangesResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            ranges: read_tables(table.ranges()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let ranges = Some(write_tables(&self.ranges, builder));
        let status = Some(self.status.write(builder));
        fb::SyncRangesResult::create(
            builder,
            &fb::SyncRangesResultArgs {
                stream_id: self.stream_id.0,
                ranges,
                status,
            },
        )
    }
}

impl Wire for SyncRangesResponse {
    type Table<'a> = fb::SyncRangesResponse<'a>;
    const NAME: &'static str = "SyncRangesResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            sync_responses: read_tables(table.sync_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let sync_responses = Some(write_tables(&self.sync_responses, builder));
        let status = Some(self.status.write(builder));
        fb::SyncRangesResponse::create(
            builder,
            &fb::SyncRangesResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                sync_responses,
                status,
            },
        )
    }
}

impl Wire for CreateRangeRequest {
    type Table<'a> = fb::CreateRangeRequest<'a>;
    const NAME: &'static str = "CreateRangeRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            range: table.range().map(Range::read),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range = self.range.as_ref().map(|range| range.write(builder));
        fb::CreateRangeRequest::create(
            builder,
            &fb::CreateRangeRequestArgs {
                timeout_ms: self.timeout_ms,
                range,
            },
        )
    }
}

impl Wire for CreateRangeResponse {
    type Table<'a> = fb::CreateRangeResponse<'a>;
    const NAME: &'static str = "CreateRangeResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            status: read_status(table.status()),
            range: table.range().map(Range::read),
            throttle_time_ms: table.throttle_time_ms(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range = self.range.as_ref().map(|range| range.write(builder));
        let status = Some(self.status.write(builder));
        let throttle_time_ms = self.throttle_time_ms;
        fb::CreateRangeResponse::create(
            builder,
            &fb::CreateRangeResponseArgs {
                status,
                range,
                throttle_time_ms,
            },
        )
    }
}
