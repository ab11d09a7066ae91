//! What a header costs to write and to read, by number of entries.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sbp_messages::{
    AppendInfo, AppendRequest, AppendResponse, AppendResult, DescribeStreamResult, DescribeStreamsResponse, Encoder,
    Feature, FetchInfo, FetchRequest, FetchResponse, FetchResult, HeartbeatResponse, KeyValue, ListRangesResponse,
    ListRangesResult, Message, Range, RangeCriteria, RangeServer, ReplicaServer, Stream,
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
        base_offset: Some(Offset(1_000)),
        stream_append_time_ms: TimestampMs(1_385_856_000_000),
        next_offset: Some(Offset(1_001)),
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
        ..FetchRequest::default()
    }
}

fn fetch_response(entries: usize) -> FetchResponse {
    let result = |place| FetchResult {
        stream_id: StreamId(7),
        request_index: index(place),
        batch_length: 65_536,
        base_offset: Some(Offset(1_000)),
        next_offset: Some(Offset(1_600)),
        record_count: 600,
        ..FetchResult::default()
    };
    FetchResponse {
        fetch_responses: (0..entries).map(result).collect(),
        ..FetchResponse::default()
    }
}

fn range_server() -> Option<RangeServer> {
    Some(RangeServer {
        advertise_addr: String::from("127.0.0.1:12378"),
        ..RangeServer::default()
    })
}

fn heartbeat_response(features: usize) -> HeartbeatResponse {
    HeartbeatResponse {
        client_id: String::from("a client"),
        range_server: range_server(),
        features: (0..features)
            .map(|place| Feature::new("a-feature", place.to_string()))
            .collect(),
        ..HeartbeatResponse::default()
    }
}

fn list_ranges_response(ranges: usize) -> ListRangesResponse {
    let range = |place| Range {
        stream_id: StreamId(7),
        start_offset: Offset(i64::from(index(place))),
        servers: vec![ReplicaServer {
            range_server: range_server(),
            is_primary: true,
            ..ReplicaServer::default()
        }],
        ..Range::default()
    };
    ListRangesResponse {
        list_responses: vec![ListRangesResult {
            range_criteria: Some(RangeCriteria::default()),
            ranges: (0..ranges).map(range).collect(),
            ..ListRangesResult::default()
        }],
        ..ListRangesResponse::default()
    }
}

fn describe_streams_response(streams: usize) -> DescribeStreamsResponse {
    let property = KeyValue {
        key: String::from("owner"),
        value: String::from("somebody"),
    };
    let result = |place| DescribeStreamResult {
        stream: Some(Stream {
            stream_id: StreamId(i64::from(index(place))),
            name: String::from("a stream"),
            properties: Some(vec![property.clone()]),
            ..Stream::default()
        }),
        ..DescribeStreamResult::default()
    };
    DescribeStreamsResponse {
        describe_responses: (0..streams).map(result).collect(),
        ..DescribeStreamsResponse::default()
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
    // Those above have templates; these go through builder and verifier, as all the others do.
    bench_message(criterion, "heartbeat response", heartbeat_response);
    bench_message(criterion, "list ranges response", list_ranges_response);
    bench_message(criterion, "describe streams response", describe_streams_response);
}

criterion_group!(benches, messages);
criterion_main!(benches);
