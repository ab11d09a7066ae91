//! Requests about streams and ranges, one thing at a time.

use sbp_messages::{
    AppendResponse, AppendResult, CreateRangeRequest, CreateRangeResponse, CreateStreamsRequest, CreateStreamsResponse,
    DeleteStreamsRequest, DeleteStreamsResponse, DescribeRangesRequest, DescribeRangesResponse, ErrorCode, KeyValue,
    ListRangesRequest, ListRangesResponse, Range, RangeCriteria, RangeId, RangeServer, SealKind, SealRangesRequest,
    SealRangesResponse, SealRangesResult, Status, Stream, TrimStreamResult, TrimStreamsRequest, TrimStreamsResponse,
    TrimmedStream, UpdateStreamsRequest, UpdateStreamsResponse,
};
use sbp_types::{Offset, RangeIndex, ServerId, StreamId};

use crate::batches::raw_batch;
use crate::peer::{Peer, append_request};

/// Requests about one stream or range, and what is said about it.
pub trait Admin {
    /// Deletes a stream.
    fn delete(&mut self, stream: StreamId) -> Status;
    /// Changes the settings of a stream; the stream as it is then.
    fn update(&mut self, stream: Stream) -> (Stream, Status);
    /// Moves the start of a stream.
    fn trim(&mut self, stream: StreamId, start: i64) -> TrimStreamResult;
    /// Seals a range.
    fn seal(&mut self, range: RangeId, kind: SealKind) -> SealRangesResult;
    /// Opens a range.
    fn make_range(&mut self, range: Range) -> CreateRangeResponse;
    /// All ranges of a stream, which must be known.
    fn ranges(&mut self, stream: StreamId) -> Vec<Range>;
    /// A range by its index, or with -1 the open one.
    fn describe_range(&mut self, stream: StreamId, index: i32) -> Result<Range, ErrorCode>;
    /// Appends to a range that is named.
    fn append_to(&mut self, stream: StreamId, index: i32) -> AppendResult;
}

impl Admin for Peer {
    fn delete(&mut self, stream: StreamId) -> Status {
        let request = DeleteStreamsRequest {
            streams: vec![numbered(stream)],
            ..Default::default()
        };
        let (mut response, _): (DeleteStreamsResponse, _) = self.call(&request, b"");
        let result = response.delete_responses.remove(0);
        assert_eq!(result.deleted_stream.unwrap().stream_id, stream);
        result.status
    }

    fn update(&mut self, stream: Stream) -> (Stream, Status) {
        let request = UpdateStreamsRequest {
            streams: vec![stream],
            ..Default::default()
        };
        let (mut response, _): (UpdateStreamsResponse, _) = self.call(&request, b"");
        let result = response.update_responses.remove(0);
        (result.stream.unwrap(), result.status)
    }

    fn trim(&mut self, stream: StreamId, start: i64) -> TrimStreamResult {
        let request = TrimStreamsRequest {
            trimmed_streams: vec![TrimmedStream {
                stream_id: stream,
                trim_offset: Offset(start),
            }],
            ..Default::default()
        };
        let (mut response, _): (TrimStreamsResponse, _) = self.call(&request, b"");
        response.trim_responses.remove(0)
    }

    fn seal(&mut self, range: RangeId, kind: SealKind) -> SealRangesResult {
        let request = SealRangesRequest {
            ranges: vec![range],
            kind,
            ..Default::default()
        };
        let (mut response, _): (SealRangesResponse, _) = self.call(&request, b"");
        response.seal_responses.remove(0)
    }

    fn make_range(&mut self, range: Range) -> CreateRangeResponse {
        let request = CreateRangeRequest {
            range: Some(range),
            ..Default::default()
        };
        self.call(&request, b"").0
    }

    fn ranges(&mut self, stream: StreamId) -> Vec<Range> {
        let request = ListRangesRequest {
            range_criteria: vec![of_stream(stream)],
            ..Default::default()
        };
        let (mut response, _): (ListRangesResponse, _) = self.call(&request, b"");
        let result = response.list_responses.remove(0);
        assert!(result.status.is_success(), "{}", result.status);
        result.ranges
    }

    fn describe_range(&mut self, stream: StreamId, index: i32) -> Result<Range, ErrorCode> {
        let request = DescribeRangesRequest {
            ranges: vec![range_id(stream, index)],
            ..Default::default()
        };
        let (mut response, _): (DescribeRangesResponse, _) = self.call(&request, b"");
        let result = response.describe_responses.remove(0);
        result.range.ok_or(result.status.code)
    }

    fn append_to(&mut self, stream: StreamId, index: i32) -> AppendResult {
        let batch = raw_batch(b"to a range");
        let mut request = append_request(&[(stream, batch.len())]);
        request.append_requests[0].range_index = Some(RangeIndex(index));
        let (mut response, _): (AppendResponse, _) = self.call(&request, &batch);
        response.append_responses.remove(0)
    }
}

/// A stream of which nothing but its number is told.
pub fn numbered(stream_id: StreamId) -> Stream {
    Stream {
        stream_id,
        ..Stream::default()
    }
}

/// What lists the ranges of a stream.
pub fn of_stream(stream_id: StreamId) -> RangeCriteria {
    RangeCriteria {
        stream_id: Some(stream_id),
        range_server: None,
    }
}

/// A range server of which nothing but its number is told.
pub fn on_server(id: i32) -> RangeServer {
    RangeServer {
        server_id: ServerId(id),
        ..RangeServer::default()
    }
}

/// A range by its index, or with -1 the open one.
pub fn range_id(stream_id: StreamId, index: i32) -> RangeId {
    RangeId {
        stream_id,
        range_index: (index != -1).then_some(RangeIndex(index)),
        ..RangeId::default()
    }
}

/// Index, start, end, or -1 of an open range, and next offset.
pub fn bounds(range: &Range) -> (i32, i64, i64, i64) {
    (
        range.range_index.0,
        range.start_offset.0,
        range.end_offset.map_or(-1, |end| end.0),
        range.next_offset.0,
    )
}

/// Makes streams: each with its first range and the code of its result.
pub fn created(peer: &mut Peer, streams: Vec<Stream>) -> Vec<(Stream, Option<Range>, ErrorCode)> {
    let request = CreateStreamsRequest {
        streams,
        ..Default::default()
    };
    let (response, _): (CreateStreamsResponse, _) = peer.call(&request, b"");
    let results = response.create_responses.into_iter();
    results
        .map(|result| (result.stream.unwrap(), result.range, result.status.code))
        .collect()
}

/// A stream of which nothing but its name is told.
pub fn stream_named(name: &str) -> Stream {
    Stream {
        name: name.to_owned(),
        ..Stream::default()
    }
}

/// A setting.
pub fn pair(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// The number of the server, as its ranges tell it.
pub fn server_id(peer: &mut Peer) -> i32 {
    let probe = peer.create("whose");
    let range = peer.ranges(probe).remove(0);
    assert!(peer.delete(probe).is_success());
    range.primary().unwrap().server_id.0
}

/// Makes many streams with one request.
pub fn create_many(peer: &mut Peer, count: usize) -> Vec<StreamId> {
    let made = created(peer, vec![Stream::default(); count]);
    made.into_iter().map(|(stream, ..)| stream.stream_id).collect()
}

/// Makes a stream that keeps only so much for only so long.
pub fn create_kept(peer: &mut Peer, retention_bytes: i64, retention_period_ms: i64) -> StreamId {
    let stream = Stream {
        retention_bytes,
        retention_period_ms,
        ..Stream::default()
    };
    created(peer, vec![stream]).remove(0).0.stream_id
}

/// Seals a range, or says why not; the range that the answer shows.
pub fn try_seal(peer: &mut Peer, stream: StreamId, index: i32, kind: SealKind) -> Result<Range, ErrorCode> {
    let result = peer.seal(range_id(stream, index), kind);
    match result.status.is_success() {
        true => Ok(result.range.unwrap()),
        false => Err(result.status.code),
    }
}

/// Seals a range that must be sealed then.
pub fn seal(peer: &mut Peer, stream: StreamId, index: i32, kind: SealKind) -> Range {
    try_seal(peer, stream, index, kind).unwrap()
}

/// Opens the range behind a sealed one.
pub fn open_next(peer: &mut Peer, stream: StreamId, index: i32, start: i64) {
    let response = peer.make_range(Range {
        stream_id: stream,
        range_index: RangeIndex(index),
        start_offset: Offset(start),
        ..Range::default()
    });
    assert!(response.status.is_success(), "{}", response.status);
}

/// Moves the start of a stream that can be trimmed.
pub fn trim(peer: &mut Peer, stream: StreamId, start: i64) {
    let status = peer.trim(stream, start).status;
    assert!(status.is_success(), "{status}");
}

/// Deletes a stream that is there.
pub fn delete(peer: &mut Peer, stream: StreamId) {
    let status = Admin::delete(peer, stream);
    assert!(status.is_success(), "{status}");
}
