//! What a header costs to write and to read, by number of entries.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sbp_messages::{
    AppendInfo, AppendRequest, AppendResponse, AppendResult, Encoder, FetchInfo, FetchRequest, FetchResponse,
    FetchResult, Message,
};
use sbp_types::{Offset, StreamId, TimestampMs};

const ENTRIES: [usize; 3] = [1, 16, 128];

fn index(place: usize) -> i32 {
    i32::try_from(place).expect("few entries")
}

fn append_request(entries: usize) -> AppendRequest {
    let entry = |place| AppendInfo {
        stream_id: StreamId(7),
        request_index: index(place),
        batch_length: 112,
        ..AppendInfo::default()
    };
    AppendRequest {
        timeout_ms: 30_000,
        append_requests: (0..entries).map(entry).collect(),
    }
}

fn append_response(entries: usize) -> AppendResponse {
    let result = |place| AppendResult {
        stream_id: StreamId(7),
        request_index: index(place),
        base_offset: Offset(1_000),
        stream_append_time_ms: TimestampMs(1_385_856_000_000),
        next_offset: Offset(1_001),
        ..AppendResult::default()
    };
    AppendResponse {
        append_responses: (0..entries).map(result).collect(),
        ..AppendResponse::default()
    }
}

fn fetch_request(entries: usize) -> FetchRequest {
    let entry = |place| FetchInfo {
        stream_id: StreamId(7),
        request_index: index(place),
        fetch_offset: Offset(1_000),
        ..FetchInfo::default()
    };
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        fetch_requests: (0..entries).map(entry).collect(),
        max_bytes: 0,
    }
}

fn fetch_response(entries: usize) -> FetchResponse {
    let result = |place| FetchResult {
        stream_id: StreamId(7),
        request_index: index(place),
        batch_length: 65_536,
        base_offset: Offset(1_000),
        next_offset: Offset(1_600),
        record_count: 600,
        ..FetchResult::default()
    };
    FetchResponse {
        fetch_responses: (0..entries).map(result).collect(),
        ..FetchResponse::default()
    }
}

fn bench_message<M: Message>(criterion: &mut Criterion, name: &str, make: impl Fn(usize) -> M) {
    for (verb, entries) in ["encode", "decode"]
        .into_iter()
        .flat_map(|verb| ENTRIES.map(|entries| (verb, entries)))
    {
        let message = make(entries);
        let mut encoder = Encoder::new();
        let mut header = BytesMut::with_capacity(64 * 1024);
        message.encode(&mut encoder, &mut header);
        let mut group = criterion.benchmark_group(format!("{verb} {name}"));
        group.throughput(Throughput::Elements(u64::try_from(entries).expect("few entries")));
        group.bench_with_input(BenchmarkId::from_parameter(entries), &message, |bencher, message| {
            if verb == "encode" {
                bencher.iter(|| {
                    header.clear();
                    black_box(message).encode(&mut encoder, &mut header);
                });
            } else {
                bencher.iter(|| M::decode(black_box(&header)).expect("own bytes are valid"));
            }
        });
        group.finish();
    }
}

fn messages(criterion: &mut Criterion) {
    bench_message(criterion, "append request", append_request);
    bench_message(criterion, "append response", append_response);
    bench_message(criterion, "fetch request", fetch_request);
    bench_message(criterion, "fetch response", fetch_response);
}

criterion_group!(benches, messages);
criterion_main!(benches);
