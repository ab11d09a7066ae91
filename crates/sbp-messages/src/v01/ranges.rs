//! LIST_RANGES and DESCRIBE_RANGES.

use flatbuffers::WIPOffset;
use sbp_types::{Epoch, Offset, RangeIndex, StreamId};

use super::shared::read_status;
use super::{Builder, Wire, fb, read_bytes, read_tables, write_bytes, write_tables};
use crate::{
    DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse, ListRangesRequest, ListRangesResponse,
    ListRangesResult, Range, RangeCriteria, RangeId, RangeServer,
};

impl Wire for RangeId {
    type Table<'a> = fb::RangeId<'a>;
    const NAME: &'static str = "RangeId";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            range_index: RangeIndex(table.range_index()),
            epoch: Epoch(table.epoch()),
            end_offset: Offset(table.end_offset()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        fb::RangeId::create(
            builder,
            &fb::RangeIdArgs {
                stream_id: self.stream_id.0,
                range_index: self.range_index.0,
                epoch: self.epoch.0,
                end_offset: self.end_offset.0,
            },
        )
    }
}

impl Wire for RangeCriteria {
    type Table<'a> = fb::RangeCriteria<'a>;
    const NAME: &'static str = "RangeCriteria";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            range_server: table.range_server().map(RangeServer::read),
            stream_id: StreamId(table.stream_id()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range_server = self.range_server.as_ref().map(|server| server.write(builder));
        fb::RangeCriteria::create(
            builder,
            &fb::RangeCriteriaArgs {
                range_server,
                stream_id: self.stream_id.0,
            },
        )
    }
}

impl Wire for ListRangesRequest {
    type Table<'a> = fb::ListRangesRequest<'a>;
    const NAME: &'static str = "ListRangesRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            range_criteria: read_tables(table.range_criteria()),
            limit: table.limit(),
            continuation: read_bytes(table.continuation()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range_criteria = Some(write_tables(&self.range_criteria, builder));
        let continuation = write_bytes(&self.continuation, builder);
        fb::ListRangesRequest::create(
            builder,
            &fb::ListRangesRequestArgs {
                timeout_ms: self.timeout_ms,
                range_criteria,
                limit: self.limit,
                continuation,
            },
        )
    }
}

impl Wire for ListRangesResult {
    type Table<'a> = fb::ListRangesResult<'a>;
    const NAME: &'static str = "ListRangesResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            range_criteria: table.range_criteria().map(RangeCriteria::read),
            ranges: read_tables(table.ranges()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range_criteria = self.range_criteria.as_ref().map(|criteria| criteria.write(builder));
        let ranges = Some(write_tables(&self.ranges, builder));
        let status = Some(self.status.write(builder));
        fb::ListRangesResult::create(
            builder,
            &fb::ListRangesResultArgs {
                range_criteria,
                ranges,
                status,
            },
        )
    }
}

impl Wire for ListRangesResponse {
    type Table<'a> = fb::ListRangesResponse<'a>;
    const NAME: &'static str = "ListRangesResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            list_responses: read_tables(table.list_responses()),
            status: read_status(table.status()),
            continuation: read_bytes(table.continuation()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let list_responses = Some(write_tables(&self.list_responses, builder));
        let status = Some(self.status.write(builder));
        let continuation = write_bytes(&self.continuation, builder);
        fb::ListRangesResponse::create(
            builder,
            &fb::ListRangesResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                list_responses,
                status,
                continuation,
            },
        )
    }
}

impl Wire for DescribeRangesRequest {
    type Table<'a> = fb::DescribeRangesRequest<'a>;
    const NAME: &'static str = "DescribeRangesRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            ranges: read_tables(table.ranges()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let ranges = Some(write_tables(&self.ranges, builder));
        fb::DescribeRangesRequest::create(
            builder,
            &fb::DescribeRangesRequestArgs {
                timeout_ms: self.timeout_ms,
                ranges,
            },
        )
    }
}

impl Wire for DescribeRangeResult {
    type Table<'a> = fb::DescribeRangeResult<'a>;
    const NAME: &'static str = "DescribeRangeResult";

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
        fb::DescribeRangeResult::create(
            builder,
            &fb::DescribeRangeResultArgs {
                stream_id: self.stream_id.0,
                range,
                status,
            },
        )
    }
}

impl Wire for DescribeRangesResponse {
    type Table<'a> = fb::DescribeRangesResponse<'a>;
    const NAME: &'static str = "DescribeRangesResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            describe_responses: read_tables(table.describe_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let describe_responses = Some(write_tables(&self.describe_responses, builder));
        let status = Some(self.status.write(builder));
        fb::DescribeRangesResponse::create(
            builder,
            &fb::DescribeRangesResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                describe_responses,
                status,
            },
        )
    }
}
