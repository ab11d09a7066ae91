//! What the hot path costs in allocations, counted.

use allocation_counter::measure;
use bytes::BytesMut;
use sbp_messages::{
    AppendInfo, AppendRequest, AppendResponse, AppendResult, Encoder, FetchInfo, FetchRequest, FetchResponse,
    FetchResult, HeartbeatRequest, Message,
};
use sbp_types::StreamId;

/// Allocations of the second of two encodings: the first one grows the buffers.
fn encoding(message: &impl Message) -> u64 {
    let mut encoder = Encoder::new();
    let mut out = BytesMut::with_capacity(256 * 1024);
    message.encode(&mut encoder, &mut out);
    out.clear();
    measure(|| message.encode(&mut encoder, &mut out)).count_total
}

fn decoding<M: Message>(message: &M) -> u64 {
    let mut header = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut header);
    measure(|| drop(M::decode(&header).expect("own bytes are valid"))).count_total
}

#[test]
fn hot_headers_are_written_without_allocating() {
    for entries in [1, 16, 1_024] {
        let append = vec![
            AppendInfo {
                stream_id: StreamId(1),
                ..AppendInfo::default()
            };
            entries
        ];
        assert_eq!(
            encoding(&AppendRequest {
                timeout_ms: 1,
                append_requests: append.into()
            }),
            0
        );
        let appended = vec![AppendResult::default(); entries];
        assert_eq!(
            encoding(&AppendResponse {
                append_responses: appended.into(),
                ..Default::default()
            }),
            0
        );
        let fetch = vec![
            FetchInfo {
                stream_id: StreamId(1),
                ..FetchInfo::default()
            };
            entries
        ];
        assert_eq!(
            encoding(&FetchRequest {
                fetch_requests: fetch.into(),
                ..Default::default()
            }),
            0
        );
        let fetched = vec![FetchResult::default(); entries];
        assert_eq!(
            encoding(&FetchResponse {
                fetch_responses: fetched.into(),
                ..Default::default()
            }),
            0
        );
    }
}

#[test]
fn a_single_entry_is_read_without_allocating() {
    let append = [AppendInfo {
        stream_id: StreamId(1),
        ..AppendInfo::default()
    }];
    assert_eq!(
        decoding(&AppendRequest {
            timeout_ms: 1,
            append_requests: append.into()
        }),
        0
    );
    let appended = [AppendResult::default()];
    assert_eq!(
        decoding(&AppendResponse {
            append_responses: appended.into(),
            ..Default::default()
        }),
        0
    );
    let fetch = [FetchInfo {
        stream_id: StreamId(1),
        ..FetchInfo::default()
    }];
    assert_eq!(
        decoding(&FetchRequest {
            fetch_requests: fetch.into(),
            ..Default::default()
        }),
        0
    );
    let fetched = [FetchResult::default()];
    assert_eq!(
        decoding(&FetchResponse {
            fetch_responses: fetched.into(),
            ..Default::default()
        }),
        0
    );
}

#[test]
fn many_entries_are_read_into_one_allocation() {
    let appended = vec![AppendResult::default(); 256];
    assert_eq!(
        decoding(&AppendResponse {
            append_responses: appended.into(),
            ..Default::default()
        }),
        1
    );
}

#[test]
fn the_counter_counts() {
    let named = HeartbeatRequest {
        client_id: String::from("a client"),
        ..HeartbeatRequest::default()
    };
    assert!(decoding(&named) > 0, "a string is owned");
}
