//! DELETE_STREAMS, UPDATE_STREAMS and TRIM_STREAMS.

use flatbuffers::WIPOffset;
use sbp_types::{Offset, StreamId};

use super::shared::read_status;
use super::{Builder, Wire, fb, read_tables, write_tables};
use crate::{
    DeleteStreamResult, DeleteStreamsRequest, DeleteStreamsResponse, Range, Stream, TrimStreamResult,
    TrimStreamsRequest, TrimStreamsResponse, TrimmedStream, UpdateStreamResult, UpdateStreamsRequest,
    UpdateStreamsResponse,
};

impl Wire for DeleteStreamsRequest {
    type Table<'a> = fb::DeleteStreamsRequest<'a>;
    const NAME: &'static str = "DeleteStreamsRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            streams: read_tables(table.streams()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let streams = Some(write_tables(&self.streams, builder));
        fb::DeleteStreamsRequest::create(
            builder,
            &fb::DeleteStreamsRequestArgs {
                timeout_ms: self.timeout_ms,
                streams,
            },
        )
    }
}

impl Wire for DeleteStreamResult {
    type Table<'a> = fb::DeleteStreamResult<'a>;
    const NAME: &'static str = "DeleteStreamResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            deleted_stream: table.deleted_stream().map(Stream::read),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let deleted_stream = self.deleted_stream.as_ref().map(|stream| stream.write(builder));
        let status = Some(self.status.write(builder));
        fb::DeleteStreamResult::create(builder, &fb::DeleteStreamResultArgs { deleted_stream, status })
    }
}

impl Wire for DeleteStreamsResponse {
    type Table<'a> = fb::DeleteStreamsResponse<'a>;
    const NAME: &'static str = "DeleteStreamsResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            delete_responses: read_tables(table.delete_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let delete_responses = Some(write_tables(&self.delete_responses, builder));
        let status = Some(self.status.write(builder));
        fb::DeleteStreamsResponse::create(
            builder,
            &fb::DeleteStreamsResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                delete_responses,
                status,
            },
        )
    }
}

impl Wire for UpdateStreamsRequest {
    type Table<'a> = fb::UpdateStreamsRequest<'a>;
    const NAME: &'static str = "UpdateStreamsRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            streams: read_tables(table.streams()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let streams = Some(write_tables(&self.streams, builder));
        fb::UpdateStreamsRequest::create(
            builder,
            &fb::UpdateStreamsRequestArgs {
                timeout_ms: self.timeout_ms,
                streams,
            },
        )
    }
}

impl Wire for UpdateStreamResult {
    type Table<'a> = fb::UpdateStreamResult<'a>;
    const NAME: &'static str = "UpdateStreamResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream: table.stream().map(Stream::read),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let stream = self.stream.as_ref().map(|stream| stream.write(builder));
        let status = Some(self.status.write(builder));
        fb::UpdateStreamResult::create(builder, &fb::UpdateStreamResultArgs { stream, status })
    }
}

impl Wire for UpdateStreamsResponse {
    type Table<'a> = fb::UpdateStreamsResponse<'a>;
    const NAME: &'static str = "UpdateStreamsResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            update_responses: read_tables(table.update_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let update_responses = Some(write_tables(&self.update_responses, builder));
        let status = Some(self.status.write(builder));
        fb::UpdateStreamsResponse::create(
            builder,
            &fb::UpdateStreamsResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                update_responses,
                status,
            },
        )
    }
}

impl Wire for TrimmedStream {
    type Table<'a> = fb::TrimmedStream<'a>;
    const NAME: &'static str = "TrimmedStream";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            trim_offset: Offset(table.trim_offset()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        fb::TrimmedStream::create(
            builder,
            &fb::TrimmedStreamArgs {
                stream_id: self.stream_id.0,
                trim_offset: self.trim_offset.0,
            },
        )
    }
}

impl Wire for TrimStreamsRequest {
    type Table<'a> = fb::TrimStreamsRequest<'a>;
    const NAME: &'static str = "TrimStreamsRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            trimmed_streams: read_tables(table.trimmed_streams()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let trimmed_streams = Some(write_tables(&self.trimmed_streams, builder));
        fb::TrimStreamsRequest::create(
            builder,
            &fb::TrimStreamsRequestArgs {
                timeout_ms: self.timeout_ms,
                trimmed_streams,
            },
        )
    }
}

impl Wire for TrimStreamResult {
    type Table<'a> = fb::TrimStreamResult<'a>;
    const NAME: &'static str = "TrimStreamResult";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            trimmed_stream: table.trimmed_stream().map(Stream::read),
            range: table.range().map(Range::read),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let trimmed_stream = self.trimmed_stream.as_ref().map(|stream| stream.write(builder));
        let range = self.range.as_ref().map(|range| range.write(builder));
        let status = Some(self.status.write(builder));
        fb::TrimStreamResult::create(
            builder,
            &fb::TrimStreamResultArgs {
                trimmed_stream,
                range,
                status,
            },
        )
    }
}

impl Wire for TrimStreamsResponse {
    type Table<'a> = fb::TrimStreamsResponse<'a>;
    const NAME: &'static str = "TrimStreamsResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            throttle_time_ms: table.throttle_time_ms(),
            trim_responses: read_tables(table.trim_responses()),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let trim_responses = Some(write_tables(&self.trim_responses, builder));
        let status = Some(self.status.write(builder));
        fb::TrimStreamsResponse::create(
            builder,
            &fb::TrimStreamsResponseArgs {
                throttle_time_ms: self.throttle_time_ms,
                trim_responses,
                status,
            },
        )
    }
}
