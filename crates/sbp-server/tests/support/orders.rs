//! What changes streams and ranges, in the words of a test.

use sbp_messages::{
    CreateRangeRequest, CreateRangeResponse, CreateStreamsRequest, CreateStreamsResponse, DeleteStreamsRequest,
    DeleteStreamsResponse, Range, RangeId, SealKind, SealRangesRequest, SealRangesResponse, Stream, TrimStreamsRequest,
    TrimStreamsResponse, TrimmedStream,
};
use sbp_types::{Offset, RangeIndex, StreamId};

use super::Peer;

/// Makes many streams with one request for each thousand.
pub fn create_many(peer: &mut Peer, count: usize) -> Vec<StreamId> {
    let request = CreateStreamsRequest {
        streams: vec![Stream::default(); count],
        ..Default::default()
    };
    let (response, _): (CreateStreamsResponse, _) = peer.call(&request, b"");
    let results = response.create_responses.into_iter();
    results.map(|result| result.stream.unwrap().stream_id).collect()
}

/// Makes a stream that keeps only so much for only so long.
pub fn create_kept(peer: &mut Peer, retention_bytes: i64, retention_period_ms: i64) -> StreamId {
    let stream = Stream {
        retention_bytes,
        retention_period_ms,
        ..Stream::default()
    };
    let request = CreateStreamsRequest {
        streams: vec![stream],
        ..Default::default()
    };
    let (mut response, _): (CreateStreamsResponse, _) = peer.call(&request, b"");
    response.create_responses.remove(0).stream.unwrap().stream_id
}

/// Seals a range; the range that the answer shows.
pub fn seal(peer: &mut Peer, stream: StreamId, index: i32, kind: SealKind) -> Range {
    let request = SealRangesRequest {
        ranges: vec![RangeId {
            stream_id: stream,
            range_index: Some(RangeIndex(index)),
            ..RangeId::default()
        }],
        kind,
        ..Default::default()
    };
    let (mut response, _): (SealRangesResponse, _) = peer.call(&request, b"");
    let result = response.seal_responses.remove(0);
    assert!(result.status.is_success(), "{}", result.status);
    result.range.unwrap()
}

/// Opens the range behind a sealed one.
pub fn open_next(peer: &mut Peer, stream: StreamId, index: i32, start: i64) {
    let range = Range {
        stream_id: stream,
        range_index: RangeIndex(index),
        start_offset: Offset(start),
        ..Range::default()
    };
    let request = CreateRangeRequest {
        range: Some(range),
        ..Default::default()
    };
    let (response, _): (CreateRangeResponse, _) = peer.call(&request, b"");
    assert!(response.status.is_success(), "{}", response.status);
}

pub fn trim(peer: &mut Peer, stream: StreamId, start: i64) {
    let request = TrimStreamsRequest {
        trimmed_streams: vec![TrimmedStream {
            stream_id: stream,
            trim_offset: Offset(start),
        }],
        ..Default::default()
    };
    let (response, _): (TrimStreamsResponse, _) = peer.call(&request, b"");
    let status = &response.trim_responses[0].status;
    assert!(status.is_success(), "{status}");
}

pub fn delete(peer: &mut Peer, stream: StreamId) {
    let request = DeleteStreamsRequest {
        streams: vec![Stream {
            stream_id: stream,
            ..Stream::default()
        }],
        ..Default::default()
    };
    let (response, _): (DeleteStreamsResponse, _) = peer.call(&request, b"");
    let status = &response.delete_responses[0].status;
    assert!(status.is_success(), "{status}");
}
