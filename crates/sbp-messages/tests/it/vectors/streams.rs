//! CREATE_STREAMS, DELETE_STREAMS, UPDATE_STREAMS, DESCRIBE_STREAMS, TRIM_STREAMS.

use bytes::Bytes;
use sbp_messages::*;
use sbp_types::{Offset, StreamId, TimestampMs};

use super::count::Count;
use super::headers;
use super::ranges::range;

fn key_value(n: &mut Count) -> KeyValue {
    KeyValue {
        key: n.text(),
        value: n.text(),
    }
}

fn stream(n: &mut Count) -> Stream {
    Stream {
        stream_id: StreamId(n.long()),
        replica_nums: n.byte(),
        retention_period_ms: n.long(),
        ack_count: n.extension(0, Count::byte),
        name: n.extension(String::new(), Count::text),
        properties: n.extension(None, |n| Some(n.two(key_value))),
        retention_bytes: n.extension(0, Count::long),
        schema: n.extension(None, |n| Some(n.bytes())),
        created_at_ms: n.extension(TimestampMs(0), |n| TimestampMs(n.long())),
        identity: n.extension(None, |n| Some(n.identity())),
    }
}

fn create_result(n: &mut Count) -> CreateStreamResult {
    CreateStreamResult {
        stream: Some(stream(n)),
        range: Some(range(n)),
        status: n.status(),
    }
}

fn delete_result(n: &mut Count) -> DeleteStreamResult {
    DeleteStreamResult {
        deleted_stream: Some(stream(n)),
        status: n.status(),
        gone: n.extension(false, |_| true),
    }
}

fn update_result(n: &mut Count) -> UpdateStreamResult {
    UpdateStreamResult {
        stream: Some(stream(n)),
        status: n.status(),
    }
}

fn describe_result(n: &mut Count) -> DescribeStreamResult {
    DescribeStreamResult {
        stream: Some(stream(n)),
        status: n.status(),
    }
}

fn trimmed_stream(n: &mut Count) -> TrimmedStream {
    TrimmedStream {
        stream_id: StreamId(n.long()),
        trim_offset: Offset(n.long()),
    }
}

fn trim_result(n: &mut Count) -> TrimStreamResult {
    TrimStreamResult {
        trimmed_stream: Some(stream(n)),
        range: Some(range(n)),
        status: n.status(),
    }
}

headers! {
    CreateStreamsRequest, n => CreateStreamsRequest {
        timeout_ms: n.int(),
        streams: n.two(stream),
    };
    CreateStreamsResponse, n => CreateStreamsResponse {
        throttle_time_ms: n.int(),
        create_responses: n.two(create_result),
        status: n.status(),
    };
    DeleteStreamsRequest, n => DeleteStreamsRequest {
        timeout_ms: n.int(),
        streams: n.two(stream),
        term: n.extension(0, Count::long),
    };
    DeleteStreamsResponse, n => DeleteStreamsResponse {
        throttle_time_ms: n.int(),
        delete_responses: n.two(delete_result),
        status: n.status(),
    };
    UpdateStreamsRequest, n => UpdateStreamsRequest {
        timeout_ms: n.int(),
        streams: n.two(stream),
    };
    UpdateStreamsResponse, n => UpdateStreamsResponse {
        throttle_time_ms: n.int(),
        update_responses: n.two(update_result),
        status: n.status(),
    };
    DescribeStreamsRequest, n => DescribeStreamsRequest {
        timeout_ms: n.int(),
        stream_ids: n.two(|n| StreamId(n.long())),
        names: n.extension(Vec::new(), |n| n.two(Count::text)),
        limit: n.extension(0, Count::int),
        continuation: n.extension(Bytes::new(), Count::bytes),
    };
    DescribeStreamsResponse, n => DescribeStreamsResponse {
        throttle_time_ms: n.int(),
        describe_responses: n.two(describe_result),
        status: n.status(),
        continuation: n.extension(Bytes::new(), Count::bytes),
        term: n.extension(0, Count::long),
    };
    TrimStreamsRequest, n => TrimStreamsRequest {
        timeout_ms: n.int(),
        trimmed_streams: n.two(trimmed_stream),
    };
    TrimStreamsResponse, n => TrimStreamsResponse {
        throttle_time_ms: n.int(),
        trim_responses: n.two(trim_result),
        status: n.status(),
    };
}
