//! What is done to streams and ranges, over a socket.

mod support;

use std::time::{Duration, Instant};

use sbp_messages::{
    AppendInfo, AppendRequest, AppendResponse, AppendResult, CreateRangeRequest, CreateRangeResponse,
    CreateStreamsRequest, CreateStreamsResponse, DeleteStreamsRequest, DeleteStreamsResponse,
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, DescribeRangesRequest,
    DescribeRangesResponse, DescribeStreamsRequest, DescribeStreamsResponse, ErrorCode, FetchResponse,
    IdAllocationRequest, IdAllocationResponse, KeyValue, ListRangesRequest, ListRangesResponse, Message, Range,
    RangeCriteria, RangeId, RangeServer, ReportMetricsRequest, ReportMetricsResponse, SealKind, SealRangesRequest,
    SealRangesResponse, SealRangesResult, Status, Stream, StreamRanges, SyncRangesRequest, SyncRangesResponse,
    TrimStreamResult, TrimStreamsRequest, TrimStreamsResponse, TrimmedStream, UpdateStreamsRequest,
    UpdateStreamsResponse,
};
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId};
use support::*;

/// A peer that speaks of one thing at a time.
trait Admin {
    fn delete(&mut self, stream: StreamId) -> Status;
    fn update(&mut self, stream: Stream) -> (Stream, Status);
    fn trim(&mut self, stream: StreamId, start: i64) -> TrimStreamResult;
    fn seal(&mut self, range: RangeId, kind: SealKind) -> SealRangesResult;
    fn make_range(&mut self, range: Range) -> CreateRangeResponse;
    fn ranges(&mut self, stream: StreamId) -> Vec<Range>;
    fn describe_range(&mut self, stream: StreamId, index: i32) -> Result<Range, ErrorCode>;
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
        let request = AppendRequest {
            append_requests: [AppendInfo {
                stream_id: stream,
                batch_length: i32::try_from(batch.len()).unwrap(),
                range_index: RangeIndex(index),
                ..AppendInfo::default()
            }]
            .into_iter()
            .collect(),
            ..Default::default()
        };
        let (mut response, _): (AppendResponse, _) = self.call(&request, &batch);
        response.append_responses.remove(0)
    }
}

fn numbered(stream_id: StreamId) -> Stream {
    Stream {
        stream_id,
        ..Stream::default()
    }
}

fn of_stream(stream_id: StreamId) -> RangeCriteria {
    RangeCriteria {
        stream_id,
        range_server: None,
    }
}

fn on_server(id: i32) -> RangeServer {
    RangeServer {
        server_id: ServerId(id),
        ..RangeServer::default()
    }
}

fn range_id(stream_id: StreamId, index: i32) -> RangeId {
    RangeId {
        stream_id,
        range_index: RangeIndex(index),
        ..RangeId::default()
    }
}

/// Index, start, end and next offset.
fn bounds(range: &Range) -> (i32, i64, i64, i64) {
    (
        range.range_index.0,
        range.start_offset.0,
        range.end_offset.0,
        range.next_offset.0,
    )
}

fn created(peer: &mut Peer, streams: Vec<Stream>) -> Vec<(Stream, Option<Range>, ErrorCode)> {
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

fn stream_named(name: &str) -> Stream {
    Stream {
        name: name.to_owned(),
        ..Stream::default()
    }
}

fn pair(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[test]
fn a_stream_comes_with_its_first_range_and_the_settings_in_force() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let wanted = vec![
        stream_named("a"),
        Stream::default(),
        stream_named("a"),
        stream_named("9"),
    ];
    let made = created(&mut peer, wanted);
    let (stream, range, _) = &made[0];
    assert_eq!(
        (stream.stream_id, stream.replica_nums, stream.ack_count),
        (StreamId(1), 1, 1)
    );
    assert_eq!((stream.retention_period_ms, stream.retention_bytes), (0, -1));
    let range = range.as_ref().unwrap();
    assert_eq!((bounds(range), range.epoch), ((0, 0, -1, 0), Epoch(0)));
    assert_eq!((range.replica_count, range.ack_count), (1, 1));
    assert_eq!(range.primary().unwrap().advertise_addr, server.address());
    assert_eq!((made[1].0.stream_id, made[1].0.name.as_str()), (StreamId(2), ""));
    assert_eq!(made[2].0.stream_id, StreamId(1), "the same name is the same stream");
    assert_eq!((made[3].0.name.as_str(), made[3].2), ("9", ErrorCode::INVALID_REQUEST));
    let other = Stream {
        retention_bytes: 5,
        ..stream_named("a")
    };
    let two_copies = Stream {
        replica_nums: 2,
        ..stream_named("two")
    };
    let codes: Vec<_> = created(&mut peer, vec![other, two_copies])
        .into_iter()
        .map(|(_, _, code)| code)
        .collect();
    assert_eq!(codes, [ErrorCode::ALREADY_EXISTS, ErrorCode::PD_NO_AVAILABLE_RS]);
}

#[test]
fn an_update_is_in_force_at_once_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let wanted = Stream {
        retention_period_ms: 60_000,
        properties: Some(vec![pair("team", "a")]),
        ..stream_named("before")
    };
    let id = created(&mut peer, vec![wanted]).remove(0).0.stream_id;
    let change = Stream {
        name: "after".to_owned(),
        retention_bytes: 1 << 20,
        ..numbered(id)
    };
    let (stream, status) = peer.update(change);
    assert!(status.is_success(), "{status}");
    assert_eq!((stream.name.as_str(), stream.retention_bytes), ("after", 1 << 20));
    assert_eq!(stream.retention_period_ms, 0, "always taken");
    assert_eq!(stream.properties, Some(vec![pair("team", "a")]));
    drop((peer, server));
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let names = DescribeStreamsRequest {
        names: vec!["after".to_owned(), "before".to_owned()],
        ..Default::default()
    };
    let (response, _): (DescribeStreamsResponse, _) = peer.call(&names, b"");
    let found = &response.describe_responses;
    assert_eq!(found[0].stream.as_ref(), Some(&stream));
    assert_eq!(found[1].status.code, ErrorCode::NOT_FOUND, "the old name is free");
    let none = Stream {
        properties: Some(Vec::new()),
        ..numbered(id)
    };
    assert_eq!(peer.update(none).0.properties, None, "replaced by none");
    for (change, code) in [
        (numbered(StreamId(9)), ErrorCode::NOT_FOUND),
        (numbered(StreamId(-1)), ErrorCode::NOT_FOUND),
        (
            Stream {
                ack_count: 2,
                ..numbered(id)
            },
            ErrorCode::INVALID_REQUEST,
        ),
    ] {
        let asked = change.stream_id;
        let (stream, status) = peer.update(change);
        assert_eq!((stream.stream_id, status.code), (asked, code));
    }
}

#[test]
fn a_deleted_stream_is_not_found_by_anybody_and_its_number_is_never_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(Some(directory.path()));
    let (mut peer, mut waiting) = (Peer::connect(&server), Peer::connect(&server));
    let stream = peer.create("s");
    peer.store(stream, b"x");
    let call = waiting.send(&fetch_request(20_000, 1, &[from(stream, 1)]), b"");
    // The fetch waits when a later request of its connection is answered.
    waiting.store(stream, b"y");
    let frame = waiting.recv();
    assert_eq!(frame.call_id, call, "it saw the record");
    let call = waiting.send(&fetch_request(20_000, 1, &[from(stream, 2)]), b"");
    let query = DescribeStreamsRequest::default();
    let _: (DescribeStreamsResponse, _) = waiting.call(&query, b"");
    assert!(peer.delete(stream).is_success());
    assert_eq!(peer.append(stream, b"z").status.code, ErrorCode::NOT_FOUND, "at once");
    let frame = waiting.recv();
    let response = FetchResponse::decode(&frame.header).unwrap();
    assert_eq!(
        (frame.call_id, response.fetch_responses[0].status.code),
        (call, ErrorCode::NOT_FOUND),
        "also who waits"
    );
    assert_eq!(peer.delete(stream).code, ErrorCode::NOT_FOUND, "twice");
    assert_eq!(peer.trim(stream, 0).status.code, ErrorCode::NOT_FOUND);
    assert_eq!(
        peer.seal(range_id(stream, 0), SealKind::UNSPECIFIED).status.code,
        ErrorCode::NOT_FOUND
    );
    assert_eq!(peer.describe_range(stream, 0), Err(ErrorCode::NOT_FOUND));
    let again = peer.create("s");
    assert_eq!(again, StreamId(stream.0 + 1), "the name is free, the number is not");
    drop((peer, waiting, server));
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    assert_eq!(peer.append(stream, b"z").status.code, ErrorCode::NOT_FOUND);
    assert_eq!(peer.store(again, b"z"), 0);
}

#[test]
fn entries_of_one_stream_in_one_request_take_turns() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let (one, two) = (peer.create("one"), peer.create("two"));
    let request = DeleteStreamsRequest {
        streams: [one, two, one, StreamId(0)].map(numbered).to_vec(),
        ..Default::default()
    };
    let (response, _): (DeleteStreamsResponse, _) = peer.call(&request, b"");
    let codes: Vec<_> = response
        .delete_responses
        .iter()
        .map(|result| result.status.code)
        .collect();
    assert_eq!(
        codes,
        [
            ErrorCode::NONE,
            ErrorCode::NONE,
            ErrorCode::NOT_FOUND,
            ErrorCode::NOT_FOUND
        ]
    );
}

#[test]
fn a_trim_moves_the_start_also_inside_a_batch_and_drops_ranges() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for range in 0..3 {
        for _record in 0..4 {
            peer.store(stream, b"x");
        }
        if range < 2 {
            peer.seal(range_id(stream, range), SealKind::UNSPECIFIED);
        }
    }
    // Ranges 0..4, 4..8, 8.. with 12 records.
    let result = peer.trim(stream, 2);
    assert!(result.status.is_success(), "{}", result.status);
    assert_eq!(result.trimmed_stream.unwrap().name, "s");
    assert_eq!(bounds(&result.range.unwrap()), (0, 2, 4, 4));
    let out = |peer: &mut Peer, offset| {
        let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, offset)]), b"");
        let result = response.fetch_responses[0].clone();
        (result.status.code, result.start_offset.0)
    };
    assert_eq!(out(&mut peer, 1), (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, 2));
    assert_eq!(out(&mut peer, -2), (ErrorCode::NONE, 2), "the earliest is the start");
    assert_eq!(
        bounds(&peer.trim(stream, 1).range.unwrap()),
        (0, 2, 4, 4),
        "below it nothing changes"
    );
    assert_eq!(bounds(&peer.trim(stream, 9).range.unwrap()), (2, 9, -1, 12));
    assert_eq!(peer.describe_range(stream, 1), Err(ErrorCode::RANGE_NOT_FOUND));
    for start in [13, i64::MAX, -1] {
        assert_eq!(
            peer.trim(stream, start).status.code,
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
            "{start}"
        );
    }
    for restart in [false, true] {
        if restart {
            drop((peer, server));
            server = start(Some(directory.path()));
            peer = Peer::connect(&server);
        }
        assert_eq!(
            peer.ranges(stream).iter().map(bounds).collect::<Vec<_>>(),
            [(2, 9, -1, 12)]
        );
        assert_eq!(out(&mut peer, 8), (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, 9));
        assert_eq!(peer.fetch_all(stream, 9).len(), 3);
    }
    assert_eq!(
        bounds(&peer.trim(stream, 12).range.unwrap()),
        (2, 12, -1, 12),
        "all of it"
    );
    assert_eq!(peer.store(stream, b"x"), 12, "offsets go on");
    let next = peer.seal(range_id(stream, 2), SealKind::UNSPECIFIED).range.unwrap();
    assert_eq!(bounds(&next), (3, 13, -1, 13), "indices go on");
}

#[test]
fn a_seal_ends_a_range_and_appends_go_on_in_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    peer.store(stream, b"b");
    let sealed = peer.seal(range_id(stream, 0), SealKind::PLACEMENT_DRIVER);
    assert_eq!((sealed.stream_id, sealed.status.code), (stream, ErrorCode::NONE));
    let next = sealed.range.unwrap();
    assert_eq!((bounds(&next), next.epoch), ((1, 2, -1, 2), Epoch(1)));
    assert_eq!(peer.store(stream, b"c"), 2, "the open range is meant");
    assert_eq!(peer.append_to(stream, 0).status.code, ErrorCode::RANGE_ALREADY_SEALED);
    assert_eq!(peer.append_to(stream, 1).base_offset, Offset(3));
    assert_eq!(peer.append_to(stream, 2).status.code, ErrorCode::RANGE_NOT_FOUND);
    for restart in [false, true] {
        if restart {
            drop((peer, server));
            server = start(Some(directory.path()));
            peer = Peer::connect(&server);
        }
        let ranges = peer.ranges(stream);
        assert_eq!(
            ranges.iter().map(bounds).collect::<Vec<_>>(),
            [(0, 0, 2, 2), (1, 2, -1, 4)]
        );
        assert_eq!(
            peer.describe_range(stream, -1).as_ref(),
            Ok(&ranges[1]),
            "-1 is the open one"
        );
        let again = peer.seal(range_id(stream, 0), SealKind::UNSPECIFIED);
        assert_eq!(
            again.range.as_ref(),
            Some(&ranges[1]),
            "again: the same range as it now is"
        );
        let again = peer.seal(range_id(stream, 0), SealKind::RANGE_SERVER);
        assert_eq!(again.range.as_ref(), Some(&ranges[0]));
        assert_eq!(peer.fetch_all(stream, 0).len(), 2, "a result does not cross ranges");
        assert_eq!(peer.fetch_all(stream, 2).len(), 2);
    }
}

#[test]
fn a_seal_compares_epoch_and_end_and_does_nothing_when_they_differ() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    let id = range_id(stream, 0);
    let cases = [
        (RangeId { epoch: Epoch(1), ..id }, ErrorCode::EXPIRED_RANGE_EPOCH),
        (
            RangeId {
                end_offset: Offset(0),
                ..id
            },
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        ),
        (
            RangeId {
                end_offset: Offset(2),
                ..id
            },
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        ),
        (range_id(stream, 1), ErrorCode::RANGE_NOT_FOUND),
        (range_id(StreamId(9), 0), ErrorCode::NOT_FOUND),
        (range_id(stream, -2), ErrorCode::INVALID_REQUEST),
        (RangeId { epoch: Epoch(-2), ..id }, ErrorCode::INVALID_REQUEST),
        (
            RangeId {
                end_offset: Offset(-2),
                ..id
            },
            ErrorCode::INVALID_REQUEST,
        ),
    ];
    for (range, code) in cases {
        for kind in [SealKind::RANGE_SERVER, SealKind::PLACEMENT_DRIVER] {
            let result = peer.seal(range, kind);
            assert_eq!((result.status.code, result.range), (code, None), "{range:?} {kind:?}");
        }
    }
    assert_eq!(
        peer.append_to(stream, 0).base_offset,
        Offset(1),
        "it still takes appends"
    );
    let right = RangeId {
        epoch: Epoch(0),
        end_offset: Offset(2),
        ..id
    };
    let next = peer.seal(right, SealKind::UNSPECIFIED).range.unwrap();
    assert_eq!(bounds(&next), (1, 2, -1, 2));
    let late = RangeId {
        end_offset: Offset(1),
        ..id
    };
    assert_eq!(
        peer.seal(late, SealKind::UNSPECIFIED).status.code,
        ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        "a sealed range's end is compared too"
    );
    let request = SealRangesRequest {
        ranges: vec![id],
        kind: SealKind(7),
        ..Default::default()
    };
    assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST);
}

#[test]
fn behind_a_range_servers_seal_nothing_is_open_until_somebody_opens_it() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    for by_seal in [true, false] {
        let stream = peer.create(if by_seal { "by seal" } else { "made" }.replace(' ', "-").as_str());
        peer.store(stream, b"a");
        let sealed = peer.seal(range_id(stream, -1), SealKind::RANGE_SERVER).range.unwrap();
        assert_eq!(bounds(&sealed), (0, 0, 1, 1), "the sealed range is told");
        assert_eq!(peer.append(stream, b"b").status.code, ErrorCode::RANGE_ALREADY_SEALED);
        assert_eq!(
            peer.describe_range(stream, -1).as_ref(),
            Ok(&sealed),
            "the last one, where none is open"
        );
        let end = fetch_request(0, 0, &[from(stream, 1)]);
        let (response, _): (FetchResponse, _) = peer.call(&end, b"");
        assert!(response.fetch_responses[0].end_of_range, "readers know the end");
        let next = if by_seal {
            peer.seal(range_id(stream, 0), SealKind::PLACEMENT_DRIVER).range
        } else {
            peer.make_range(wanted_range(stream, 1, 1)).range
        };
        let next = next.unwrap();
        assert_eq!((bounds(&next), next.epoch), ((1, 1, -1, 1), Epoch(1)));
        assert_eq!(peer.store(stream, b"b"), 1);
    }
}

fn wanted_range(stream_id: StreamId, index: i32, start: i64) -> Range {
    Range {
        stream_id,
        range_index: RangeIndex(index),
        start_offset: Offset(start),
        ..Range::default()
    }
}

#[test]
fn a_range_is_made_only_behind_a_sealed_one() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    let codes = |peer: &mut Peer, cases: &[(Range, ErrorCode)]| {
        for (range, code) in cases {
            assert_eq!(peer.make_range(range.clone()).status.code, *code, "{range:?}");
        }
    };
    let before_seal = ErrorCode::CREATE_RANGE_BEFORE_SEAL;
    codes(
        &mut peer,
        &[
            (wanted_range(stream, 1, 1), before_seal),
            (wanted_range(stream, 2, 1), before_seal),
            (wanted_range(stream, 0, 1), before_seal),
            (wanted_range(stream, 0, 0), ErrorCode::NONE),
            (wanted_range(StreamId(9), 1, 1), ErrorCode::NOT_FOUND),
            (wanted_range(StreamId(0), 1, 1), ErrorCode::NOT_FOUND),
            (wanted_range(stream, -1, 1), ErrorCode::INVALID_REQUEST),
            (wanted_range(stream, 1, -2), ErrorCode::INVALID_REQUEST),
        ],
    );
    peer.seal(range_id(stream, 0), SealKind::RANGE_SERVER);
    let with_epoch = |range: Range, epoch| Range {
        epoch: Epoch(epoch),
        ..range
    };
    codes(
        &mut peer,
        &[
            (wanted_range(stream, 1, 0), before_seal),
            (wanted_range(stream, 2, 1), before_seal),
            (
                with_epoch(wanted_range(stream, 1, 1), 0),
                ErrorCode::EXPIRED_RANGE_EPOCH,
            ),
            (with_epoch(wanted_range(stream, 1, 1), 1), ErrorCode::NONE),
            (wanted_range(stream, 1, -1), ErrorCode::NONE),
            (
                with_epoch(wanted_range(stream, 1, 1), 2),
                ErrorCode::EXPIRED_RANGE_EPOCH,
            ),
            (wanted_range(stream, 2, 1), before_seal),
        ],
    );
    let request = CreateRangeRequest::default();
    assert_eq!(
        peer.refused(&request, b""),
        ErrorCode::INVALID_REQUEST,
        "a range is required"
    );
    assert_eq!(peer.ranges(stream).len(), 2);
}

#[test]
fn ranges_are_listed_in_pages_over_criteria_of_all_kinds() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let streams: Vec<_> = (0..4).map(|n| peer.create(&format!("s{n}"))).collect();
    for range in 0..3 {
        for stream in &streams {
            peer.seal(range_id(*stream, range), SealKind::UNSPECIFIED);
        }
    }
    let own = server_id(&mut peer);
    let both = RangeCriteria {
        stream_id: streams[1],
        range_server: Some(on_server(own)),
    };
    let here = RangeCriteria {
        range_server: Some(on_server(own)),
        ..Default::default()
    };
    let elsewhere = RangeCriteria {
        range_server: Some(on_server(own + 1)),
        ..Default::default()
    };
    let criteria = vec![
        of_stream(streams[3]),
        elsewhere,
        both,
        RangeCriteria::default(),
        here,
        of_stream(StreamId(77)),
    ];
    let mut pages = Vec::new();
    for limit in [0, 1, 3, 7, 16, 1_000, 5_000] {
        let (mut rows, mut statuses, mut continuation) = (Vec::new(), Vec::new(), bytes::Bytes::new());
        loop {
            let request = ListRangesRequest {
                range_criteria: criteria.clone(),
                limit,
                continuation,
                ..Default::default()
            };
            let (response, _): (ListRangesResponse, _) = peer.call(&request, b"");
            let before = rows.len();
            for result in response.list_responses {
                let asked = result.range_criteria.unwrap();
                let place = criteria.iter().position(|criterion| *criterion == asked).unwrap();
                rows.extend(
                    result
                        .ranges
                        .iter()
                        .map(|range| (place, range.stream_id.0, range.range_index.0)),
                );
                statuses.push((place, result.status.code));
            }
            assert!(limit == 0 || rows.len() - before <= usize::try_from(limit).unwrap());
            continuation = response.continuation;
            if continuation.is_empty() {
                break;
            }
        }
        statuses.dedup();
        pages.push((rows, statuses));
    }
    let (rows, statuses) = &pages[0];
    let count = |place| rows.iter().filter(|row| row.0 == place).count();
    assert_eq!([0, 1, 2, 3, 4, 5].map(count), [4, 0, 4, 0, 16, 0]);
    let codes = [
        ErrorCode::NONE,
        ErrorCode::NONE,
        ErrorCode::NONE,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::NONE,
        ErrorCode::NOT_FOUND,
    ];
    assert_eq!(statuses.iter().map(|(_, code)| *code).collect::<Vec<_>>(), codes);
    assert!(
        pages.iter().all(|page| page == &pages[0]),
        "whatever the size of a page"
    );
    let request = ListRangesRequest {
        range_criteria: criteria,
        continuation: bytes::Bytes::from_static(b"nonsense"),
        ..Default::default()
    };
    assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST);
}

fn server_id(peer: &mut Peer) -> i32 {
    let probe = peer.create("whose");
    let range = peer.ranges(probe).remove(0);
    assert!(peer.delete(probe).is_success());
    range.primary().unwrap().server_id.0
}

#[test]
fn a_placement_driver_answers_a_sync_with_what_is_stored_and_changes_nothing() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    peer.seal(range_id(stream, 0), SealKind::UNSPECIFIED);
    let before = peer.ranges(stream);
    let of = |stream_id, ranges: Vec<Range>| StreamRanges { stream_id, ranges };
    let request = SyncRangesRequest {
        stream_ranges: vec![
            of(stream, Vec::new()),
            of(stream, vec![wanted_range(stream, 1, 500), wanted_range(stream, 9, 0)]),
            of(StreamId(50), Vec::new()),
        ],
        ..Default::default()
    };
    let (response, _): (SyncRangesResponse, _) = peer.call(&request, b"");
    let results = &response.sync_responses;
    assert_eq!((results[0].stream_id, &results[0].ranges), (stream, &before));
    assert_eq!(results[1].ranges, before[1..]);
    assert_eq!(results[2].status.code, ErrorCode::NOT_FOUND);
    assert_eq!(peer.ranges(stream), before);
}

#[test]
fn ids_of_servers_are_given_once_also_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut given = Vec::new();
    for _life in 0..2 {
        let server = start(Some(directory.path()));
        let mut peer = Peer::connect(&server);
        given.push(server_id(&mut peer));
        for _server in 0..2 {
            let request = IdAllocationRequest {
                host: "elsewhere".to_owned(),
                ..Default::default()
            };
            let (response, _): (IdAllocationResponse, _) = peer.call(&request, b"");
            assert!(response.status.is_success());
            given.push(response.id);
        }
        let nobody = IdAllocationRequest::default();
        assert_eq!(peer.refused(&nobody, b""), ErrorCode::INVALID_REQUEST, "who asks?");
    }
    assert_eq!(
        given,
        [1, 2, 3, 1, 4, 5],
        "a combined server takes its own and keeps it"
    );
}

#[test]
fn a_cluster_of_one_leads_itself_and_takes_reports() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let request = DescribePlacementDriverClusterRequest::default();
    let (response, _): (DescribePlacementDriverClusterResponse, _) = peer.call(&request, b"");
    let cluster = response.cluster.unwrap();
    assert_eq!((cluster.nodes.len(), response.status.code), (1, ErrorCode::NONE));
    assert_eq!(cluster.leader().unwrap().advertise_addr, server.address());
    let report = |range_server| ReportMetricsRequest {
        range_server,
        disk_free_space: 1 << 40,
        ..Default::default()
    };
    let (response, _): (ReportMetricsResponse, _) = peer.call(&report(Some(on_server(7))), b"");
    assert_eq!(response.range_server.unwrap().server_id, ServerId(7));
    assert!(response.status.is_success());
    let (response, _): (ReportMetricsResponse, _) = peer.call(&report(None), b"");
    assert_eq!(response.status.code, ErrorCode::INVALID_REQUEST);
}

#[test]
fn appends_go_on_over_many_seals_without_a_gap_or_a_repeat() {
    const WRITERS: usize = 3;
    const SEALS: i32 = 30;
    let server = start(None);
    let mut admin = Peer::connect(&server);
    let stream = admin.create("busy");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut stored: Vec<(i64, Vec<u8>)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || {
                    let mut peer = Peer::connect(server);
                    let mut mine = Vec::new();
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let body = format!("{writer}/{}", mine.len()).into_bytes();
                        mine.push((peer.store(stream, &body), body));
                    }
                    mine
                })
            })
            .collect();
        for range in 0..SEALS {
            let result = admin.seal(range_id(stream, range), SealKind::UNSPECIFIED);
            assert!(result.status.is_success(), "{}", result.status);
            let next = result.range.unwrap();
            assert_eq!(next.range_index, RangeIndex(range + 1));
            // Something goes into each range, so that the next end is another one.
            let deadline = Instant::now() + PATIENCE;
            while admin.describe_range(stream, -1).unwrap().next_offset == next.start_offset {
                assert!(Instant::now() < deadline, "appends do not go on in range {}", range + 1);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    stored.sort();
    let ranges = admin.ranges(stream);
    assert_eq!(ranges.len(), usize::try_from(SEALS).unwrap() + 1);
    let mut read = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        assert_eq!(range.epoch, Epoch(i64::try_from(place).unwrap()));
        let mut from = range.start_offset.0;
        assert_eq!(from, i64::try_from(read.len()).unwrap(), "ranges tile the offsets");
        while from < range.next_offset.0 {
            let found = admin.fetch_all(stream, from);
            from += i64::try_from(found.len()).unwrap();
            read.extend(found.into_iter().map(|(offset, body)| (offset, body.to_vec())));
        }
    }
    assert_eq!(read, stored, "each record once, where it was acknowledged");
}
