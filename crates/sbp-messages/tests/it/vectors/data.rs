//! APPEND and FETCH.

use sbp_messages::*;
use sbp_types::{Epoch, Offset, Position, RangeIndex, StreamId, TimestampMs};

use super::count::Count;
use super::headers;

fn append_info(n: &mut Count) -> AppendInfo {
    let mut info = AppendInfo {
        stream_id: StreamId(n.long()),
        request_index: n.int(),
        batch_length: n.int(),
        range_index: n.extension(None, |n| Some(RangeIndex(n.int()))),
        epoch: n.extension(None, |n| Some(Epoch(n.long()))),
        expected_offset: n.extension(None, |n| Some(Offset(n.long()))),
        append_time_ms: n.extension(TimestampMs(0), |n| TimestampMs(n.long())),
        confirmed: n.extension(None, |n| Some(Position::start(Offset(n.long())))),
        entry: n.extension(ReplicaEntry::NONE, |_| ReplicaEntry::CONFIRMED),
        sealed_end: n.extension(None, |n| Some(Position::start(Offset(n.long())))),
        marks: n.extension(0, Count::marks),
    };
    // A position is two fields, and the second ones have the last ids.
    for position in [&mut info.confirmed, &mut info.sealed_end].into_iter().flatten() {
        position.marks = n.marks();
    }
    info
}

fn append_result(n: &mut Count) -> AppendResult {
    AppendResult {
        stream_id: StreamId(n.long()),
        request_index: n.int(),
        base_offset: Some(Offset(n.long())),
        stream_append_time_ms: TimestampMs(n.long()),
        status: n.status(),
        next_offset: n.extension(None, |n| Some(Offset(n.long()))),
        duplicate: n.extension(false, |_| true),
        next_sequence: n.extension(None, |n| Some(n.long())),
        next_marks: n.extension(0, Count::marks),
    }
}

fn fetch_info(n: &mut Count) -> FetchInfo {
    FetchInfo {
        stream_id: StreamId(n.long()),
        request_index: n.int(),
        fetch_offset: Offset(n.long()),
        batch_max_bytes: n.int(),
        end_offset: n.extension(None, |n| Some(Offset(n.long()))),
        start_timestamp_ms: n.extension(None, |n| Some(TimestampMs(n.long()))),
    }
}

fn fetch_result(n: &mut Count) -> FetchResult {
    FetchResult {
        stream_id: StreamId(n.long()),
        request_index: n.int(),
        batch_length: n.int(),
        status: n.status(),
        base_offset: n.extension(None, |n| Some(Offset(n.long()))),
        next_offset: n.extension(None, |n| Some(Offset(n.long()))),
        start_offset: n.extension(None, |n| Some(Offset(n.long()))),
        high_watermark: n.extension(None, |n| Some(Offset(n.long()))),
        end_of_range: n.extension(false, |_| true),
        record_count: n.extension(0, Count::int),
    }
}

headers! {
    AppendRequest, n => AppendRequest {
        timeout_ms: n.int(),
        append_requests: n.two(append_info).into(),
    };
    AppendResponse, n => AppendResponse {
        throttle_time_ms: n.int(),
        append_responses: n.two(append_result).into(),
        status: n.status(),
    };
    FetchRequest, n => FetchRequest {
        max_wait_ms: n.int(),
        min_bytes: n.int(),
        fetch_requests: n.two(fetch_info).into(),
        max_bytes: n.extension(0, Count::int),
        withdraw: n.extension(0, Count::int),
    };
    FetchResponse, n => FetchResponse {
        throttle_time_ms: n.int(),
        fetch_responses: n.two(fetch_result).into(),
        status: n.status(),
    };
}
