//! CREATE_STREAMS and DESCRIBE_STREAMS.

use flatbuffers::WIPOffset;
use sbp_types::StreamId;

use super::shared::read_status;
use super::{Builder, Wire, fb, read_bytes, read_tables, write_bytes, write_tables};
use crate::{
    CreateStreamResult, CreateStreamsRequest, CreateStreamsResponse, DescribeStreamResult, DescribeStreamsRequest,
    DescribeStreamsResponse, Range, Stream,
};

impl Wire for CreateStreamsRequest {
    type Table<'a> = fb::CreateStreamsRequest<'a>;
    const NAME: &'static str = "CreateStreamsRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            streams: read_tables(table.streams()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let streams = Some(write_tables(&self.streams, builder));
        fb::CreateStreamsRequest::create(
            builder,
            &fb::CreateStreamsRequestArgs {
                timeout_ms: self.timeout_ms,
                streams,
            },
        )
    }
}

impl Wire for CreateStreamResult {
    type Table<'a> = fb::CreateStreamResult<'a>;
    const NAME: &'static str = "CreateStreamResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream: table.stream().map(Stream::read),
            range: table.range().map(Range::read),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let stream = self.stream.as_ref().map(|stream| stream.write(builder));
        let range = self.range.as_ref().map(|range| range.write(builder));
        let status = Some(self.status.write(builder));
        fb::CreateStreamResult::create(builder, &fb::CreateStreamResultArgs { stream, range, status })
    }
}

impl Wire for CreateStreamsResponse {
    type Table<'a> = fb::CreateStreamsResponse<'a>;
    const NAME: &'static str = "CreateStreamsResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            create_responses: read_tables(table.create_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let create_responses = Some(write_tables(&self.create_responses, builder));
        let status = Some(self.status.write(builder));
        fb::CreateStreamsResponse::create(
            builder,
            &fb::CreateStreamsResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                create_responses,
                status,
            },
        )
    }
}

impl Wire for DescribeStreamsRequest {
    type Table<'a> = fb::DescribeStreamsRequest<'a>;
    const NAME: &'static str = "DescribeStreamsRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            stream_ids: table
                .stream_ids()
                .into_iter()
                .flat_map(|ids| ids.iter())
                .map(StreamId)
                .collect(),
            names: table
                .names()
                .into_iter()
                .flat_map(|names| names.iter())
                .map(str::to_owned)
                .collect(),
            limit: table.limit(),
            continuation: read_bytes(table.continuation()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let ids: Vec<i64> = self.stream_ids.iter().map(|id| id.0).collect();
        let names: Vec<_> = self.names.iter().map(|name| builder.create_string(name)).collect();
        let stream_ids = if ids.is_empty() {
            None
        } else {
            Some(builder.create_vector(&ids))
        };
        let names = if names.is_empty() {
            None
        } else {
            Some(builder.create_vector(&names))
        };
        let continuation = write_bytes(&self.continuation, builder);
        fb::DescribeStreamsRequest::create(
            builder,
            &fb::DescribeStreamsRequestArgs {
                timeout_ms: self.timeout_ms,
                stream_ids,
                names,
                limit: self.limit,
                continuation,
            },
        )
    }
}

impl Wire for DescribeStreamResult {
    type Table<'a> = fb::DescribeStreamResult<'a>;
    const NAME: &'static str = "DescribeStreamResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream: table.stream().map(Stream::read),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let stream = self.stream.as_ref().map(|stream| stream.write(builder));
        let status = Some(self.status.write(builder));
        fb::DescribeStreamResult::create(builder, &fb::DescribeStreamResultArgs { stream, status })
    }
}

impl Wire for DescribeStreamsResponse {
    type Table<'a> = fb::DescribeStreamsResponse<'a>;
    const NAME: &'static str = "DescribeStreamsResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            describe_responses: read_tables(table.describe_responses()),
            status: read_status(table.status()),
            continuation: read_bytes(table.continuation()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let describe_responses = Some(write_tables(&self.describe_responses, builder));
        let status = Some(self.status.write(builder));
        let continuation = write_bytes(&self.continuation, builder);
        fb::DescribeStreamsResponse::create(
            builder,
            &fb::DescribeStreamsResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                describe_responses,
                status,
                continuation,
            },
        )
    }
}
