//! What the specification says of every operation, over a socket: numbers, payloads, statuses, and each field of the
//! ranges and streams that answers bring.

use std::fmt::Debug;

use bytes::Bytes;
use sbp_e2e::admin::{Admin, bounds, numbered, of_stream, range_id, server_id, stream_named};
use sbp_e2e::batches::{bodies, raw_batch};
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::servers::start;
use sbp_frame::{Flags, OpCode};
use sbp_messages::{
    AppendResponse, CreateRangeRequest, CreateRangeResponse, CreateStreamsRequest, CreateStreamsResponse,
    DeleteStreamsRequest, DeleteStreamsResponse, DescribePlacementDriverClusterRequest,
    DescribePlacementDriverClusterResponse, DescribeRangesRequest, DescribeRangesResponse, DescribeStreamsRequest,
    DescribeStreamsResponse, ErrorCode, FetchResponse, HeartbeatRequest, HeartbeatResponse, IdAllocationRequest,
    IdAllocationResponse, ListRangesRequest, ListRangesResponse, Message, Range, RangeServer, ReplicaServer,
    ReportMetricsRequest, ReportMetricsResponse, SealKind, SealRangesRequest, SealRangesResponse, Status, Stream,
    StreamRanges, SyncRangesRequest, SyncRangesResponse, TrimStreamsRequest, TrimStreamsResponse, TrimmedStream,
    UpdateStreamsRequest, UpdateStreamsResponse,
};
use sbp_types::{Offset, RangeIndex, ServerId, StreamId};

/// Longer than any request here takes.
const TIMEOUT_MS: i32 = 20_000;
/// A number that no stream has.
const NOBODY: StreamId = StreamId(999);

/// Asks, with a payload where none belongs: it is not looked at. The answer has none.
fn ask<Q: Message, A: Message>(peer: &mut Peer, request: &Q) -> A {
    let (answer, payload) = peer.call(request, b"of no use");
    assert!(payload.is_empty(), "{}: {payload:?}", Q::OPCODE);
    answer
}

fn sealed(ranges: Vec<sbp_messages::RangeId>, kind: SealKind) -> SealRangesRequest {
    SealRangesRequest {
        timeout_ms: TIMEOUT_MS,
        ranges,
        kind,
        ..SealRangesRequest::default()
    }
}

fn trimmed(streams: &[StreamId], start: i64) -> TrimStreamsRequest {
    let trim = |stream_id: &StreamId| TrimmedStream {
        stream_id: *stream_id,
        trim_offset: Offset(start),
    };
    TrimStreamsRequest {
        timeout_ms: TIMEOUT_MS,
        trimmed_streams: streams.iter().map(trim).collect(),
    }
}

#[test]
fn every_operation_is_answered_under_its_number_and_only_a_fetch_brings_a_payload() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    // The calls themselves check number, operation and flags of the answer.
    let call = peer.send_raw(OpCode::PING, b"head", b"body");
    let pong = peer.recv();
    assert_eq!((pong.call_id, pong.flags), (call, Flags::RESPONSE | Flags::END));
    assert_eq!(
        (&pong.header[..], pong.payload.into_contiguous()),
        (&b"head"[..], Bytes::from("body"))
    );

    let hello: HeartbeatResponse = ask(&mut peer, &HeartbeatRequest::default());
    let made: CreateStreamsResponse = ask(
        &mut peer,
        &CreateStreamsRequest {
            timeout_ms: TIMEOUT_MS,
            streams: vec![stream_named("a")],
        },
    );
    let id = made.create_responses[0].stream.as_ref().unwrap().stream_id;
    let batch = raw_batch(b"x");
    let (stored, payload): (AppendResponse, _) = peer.call(&append_request(&[(id, batch.len())]), &batch);
    assert!(payload.is_empty());
    let (fetched, payload): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(id, 0)]), b"of no use");
    assert_eq!(
        bodies(&payload),
        [(0, Bytes::from("x"))],
        "the one payload of an answer"
    );
    let listed: ListRangesResponse = ask(
        &mut peer,
        &ListRangesRequest {
            timeout_ms: TIMEOUT_MS,
            range_criteria: vec![of_stream(id)],
            ..Default::default()
        },
    );
    let described: DescribeRangesResponse = ask(
        &mut peer,
        &DescribeRangesRequest {
            timeout_ms: TIMEOUT_MS,
            ranges: vec![range_id(id, -1)],
        },
    );
    let synced: SyncRangesResponse = ask(
        &mut peer,
        &SyncRangesRequest {
            timeout_ms: TIMEOUT_MS,
            stream_ranges: vec![StreamRanges {
                stream_id: id,
                ranges: Vec::new(),
            }],
            ..SyncRangesRequest::default()
        },
    );
    let ended: SealRangesResponse = ask(&mut peer, &sealed(vec![range_id(id, 0)], SealKind::RANGE_SERVER));
    let opened: CreateRangeResponse = ask(
        &mut peer,
        &CreateRangeRequest {
            timeout_ms: TIMEOUT_MS,
            range: Some(Range {
                stream_id: id,
                range_index: RangeIndex(1),
                start_offset: Offset(1),
                ..Range::default()
            }),
        },
    );
    let updated: UpdateStreamsResponse = ask(
        &mut peer,
        &UpdateStreamsRequest {
            timeout_ms: TIMEOUT_MS,
            streams: vec![numbered(id)],
        },
    );
    let found: DescribeStreamsResponse = ask(
        &mut peer,
        &DescribeStreamsRequest {
            timeout_ms: TIMEOUT_MS,
            stream_ids: vec![id],
            ..Default::default()
        },
    );
    let cut: TrimStreamsResponse = ask(&mut peer, &trimmed(&[id], 1));
    let number: IdAllocationResponse = ask(
        &mut peer,
        &IdAllocationRequest {
            timeout_ms: TIMEOUT_MS,
            host: "host".to_owned(),
        },
    );
    let reporter = RangeServer {
        server_id: ServerId(number.id),
        advertise_addr: "host:1".to_owned(),
        ..RangeServer::default()
    };
    let reported: ReportMetricsResponse = ask(
        &mut peer,
        &ReportMetricsRequest {
            range_server: Some(reporter.clone()),
            ..Default::default()
        },
    );
    assert_eq!(reported.range_server, Some(reporter.clone()));
    let cluster: DescribePlacementDriverClusterResponse = ask(
        &mut peer,
        &DescribePlacementDriverClusterRequest {
            range_server: Some(reporter),
            timeout_ms: TIMEOUT_MS,
        },
    );
    let gone: DeleteStreamsResponse = ask(
        &mut peer,
        &DeleteStreamsRequest {
            timeout_ms: TIMEOUT_MS,
            streams: vec![numbered(id)],
            ..DeleteStreamsRequest::default()
        },
    );
    let statuses = [
        hello.status,
        made.status,
        stored.status,
        fetched.status,
        listed.status,
        described.status,
        synced.status,
        ended.status,
        opened.status,
        updated.status,
        found.status,
        cut.status,
        number.status,
        reported.status,
        cluster.status,
        gone.status,
    ];
    for (index, status) in statuses.into_iter().enumerate() {
        assert_eq!(
            status,
            Status::success(),
            "answer {index}: neither message nor detail with success"
        );
    }
}

/// Three results, the second one a refusal that says why; the others have neither message nor detail.
fn the_second_is_refused<R: Debug>(results: &[R], code: ErrorCode, status: impl Fn(&R) -> &Status) {
    let found: Vec<_> = results.iter().map(|result| status(result).code).collect();
    assert_eq!(found, [ErrorCode::NONE, code, ErrorCode::NONE], "{results:?}");
    for (index, result) in results.iter().enumerate() {
        assert_eq!(status(result).message.is_empty(), index != 1, "{result:?}");
        assert!(status(result).detail.is_empty(), "{result:?}");
    }
}

#[test]
fn each_entry_of_a_batch_has_a_result_and_a_status_of_its_own() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let streams = vec![stream_named("a"), stream_named("9"), stream_named("b")];
    let made: CreateStreamsResponse = ask(
        &mut peer,
        &CreateStreamsRequest {
            streams,
            ..Default::default()
        },
    );
    the_second_is_refused(&made.create_responses, ErrorCode::INVALID_REQUEST, |result| {
        &result.status
    });
    let id = |index: usize| made.create_responses[index].stream.as_ref().unwrap().stream_id;
    let all = [id(0), NOBODY, id(2)];

    let listed: ListRangesResponse = ask(
        &mut peer,
        &ListRangesRequest {
            range_criteria: all.map(of_stream).to_vec(),
            ..Default::default()
        },
    );
    the_second_is_refused(&listed.list_responses, ErrorCode::NOT_FOUND, |result| &result.status);
    let asked = listed
        .list_responses
        .iter()
        .map(|result| result.range_criteria.as_ref().unwrap().stream_id);
    assert!(asked.eq(all.map(Some)));

    let ranges = vec![range_id(id(0), -1), range_id(NOBODY, 0), range_id(id(2), 0)];
    let described: DescribeRangesResponse = ask(
        &mut peer,
        &DescribeRangesRequest {
            ranges: ranges.clone(),
            ..Default::default()
        },
    );
    the_second_is_refused(&described.describe_responses, ErrorCode::NOT_FOUND, |result| {
        &result.status
    });
    let shown = described
        .describe_responses
        .iter()
        .map(|result| (result.stream_id, result.range.is_some()));
    assert!(shown.eq(all.map(|stream| (stream, stream != NOBODY))));

    let synced: SyncRangesResponse = ask(
        &mut peer,
        &SyncRangesRequest {
            stream_ranges: all
                .map(|stream_id| StreamRanges {
                    stream_id,
                    ranges: Vec::new(),
                })
                .to_vec(),
            ..Default::default()
        },
    );
    the_second_is_refused(&synced.sync_responses, ErrorCode::NOT_FOUND, |result| &result.status);
    let shown = synced
        .sync_responses
        .iter()
        .map(|result| (result.stream_id, result.ranges.len()));
    assert!(shown.eq(all.map(|stream| (stream, usize::from(stream != NOBODY)))));

    let ended: SealRangesResponse = ask(&mut peer, &sealed(ranges, SealKind::PLACEMENT_DRIVER));
    the_second_is_refused(&ended.seal_responses, ErrorCode::NOT_FOUND, |result| &result.status);
    assert!(ended.seal_responses.iter().map(|result| result.stream_id).eq(all));

    let cut: TrimStreamsResponse = ask(&mut peer, &trimmed(&all, 0));
    the_second_is_refused(&cut.trim_responses, ErrorCode::NOT_FOUND, |result| &result.status);

    let found: DescribeStreamsResponse = ask(
        &mut peer,
        &DescribeStreamsRequest {
            stream_ids: all.to_vec(),
            ..Default::default()
        },
    );
    the_second_is_refused(&found.describe_responses, ErrorCode::NOT_FOUND, |result| &result.status);

    let streams = all.map(numbered).to_vec();
    let updated: UpdateStreamsResponse = ask(
        &mut peer,
        &UpdateStreamsRequest {
            streams: streams.clone(),
            ..Default::default()
        },
    );
    the_second_is_refused(&updated.update_responses, ErrorCode::NOT_FOUND, |result| &result.status);

    let gone: DeleteStreamsResponse = ask(
        &mut peer,
        &DeleteStreamsRequest {
            streams,
            ..Default::default()
        },
    );
    the_second_is_refused(&gone.delete_responses, ErrorCode::NOT_FOUND, |result| &result.status);
    let named = gone
        .delete_responses
        .iter()
        .map(|result| result.deleted_stream.as_ref().unwrap().stream_id);
    assert!(named.eq(all));
}

#[test]
fn a_range_is_told_with_its_bounds_as_they_are_and_with_who_holds_it() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let me = server_id(&mut peer);
    let stream = peer.create("s");
    peer.store(stream, b"0");
    let before = peer.ranges(stream).remove(0);
    assert_eq!(bounds(&before), (0, 0, -1, 1), "open: no end");
    peer.store(stream, b"1");
    let now = peer.ranges(stream).remove(0);
    assert_eq!(now.next_offset, Offset(2), "what was told before was true then");
    assert_eq!(
        Range {
            next_offset: Offset(1),
            ..now
        },
        before
    );
    let holders = [ReplicaServer {
        range_server: Some(RangeServer {
            server_id: ServerId(me),
            advertise_addr: server.address().to_owned(),
            ..RangeServer::default()
        }),
        is_primary: true,
        ..ReplicaServer::default()
    }];
    assert_eq!((before.stream_id, before.servers.as_slice()), (stream, &holders[..]));
    let by_driver = peer
        .seal(range_id(stream, 0), SealKind::PLACEMENT_DRIVER)
        .range
        .unwrap();
    assert_eq!(
        bounds(&by_driver),
        (1, 2, -1, 2),
        "the placement driver shows the next one"
    );
    peer.store(stream, b"2");
    let by_holder = peer.seal(range_id(stream, 1), SealKind::RANGE_SERVER).range.unwrap();
    assert_eq!(bounds(&by_holder), (1, 2, 3, 3), "its holder the one that ended");
    let all = peer.ranges(stream);
    assert_eq!(all.iter().map(bounds).collect::<Vec<_>>(), [(0, 0, 2, 2), (1, 2, 3, 3)]);
    assert!(all.iter().all(|range| range.servers == holders));
}

#[test]
fn the_end_of_a_stream_is_described_after_an_append() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for stored in 0..3 {
        assert_eq!(peer.describe_range(stream, -1).unwrap().next_offset, Offset(stored));
        peer.store(stream, b"x");
    }
    assert_eq!(peer.describe_range(stream, 0).unwrap().next_offset, Offset(3));
}

#[test]
fn only_the_number_counts_in_a_deletion() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let request = DeleteStreamsRequest {
        streams: vec![Stream {
            stream_id: stream,
            replica_nums: -7,
            retention_period_ms: -1,
            ack_count: 9,
            name: "no name, as it were".to_owned(),
            retention_bytes: -5,
            ..Stream::default()
        }],
        ..Default::default()
    };
    let gone: DeleteStreamsResponse = ask(&mut peer, &request);
    let result = &gone.delete_responses[0];
    let deleted = result.deleted_stream.as_ref().unwrap();
    assert!(result.status.is_success(), "{}", result.status);
    assert_eq!(
        (deleted.stream_id, deleted.replica_nums, deleted.name.as_str()),
        (stream, 1, "s")
    );
    assert_eq!(peer.append(stream, b"x").status.code, ErrorCode::NOT_FOUND);
    let listed: ListRangesResponse = ask(
        &mut peer,
        &ListRangesRequest {
            range_criteria: vec![of_stream(stream)],
            ..Default::default()
        },
    );
    assert_eq!(
        listed.list_responses[0].status.code,
        ErrorCode::NOT_FOUND,
        "its ranges are gone"
    );
}

/// Milliseconds since 1970, as this machine has them.
fn clock_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[test]
fn an_append_is_told_with_its_place_and_its_time() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let streams = [peer.create("a"), peer.create("b")];
    let batch = raw_batch(b"x");
    let both = [&batch[..], &batch[..]].concat();
    let mut request = append_request(&streams.map(|stream| (stream, batch.len())));
    // The entries are numbered the other way round.
    for (info, index) in request.append_requests.iter_mut().zip([1, 0]) {
        info.request_index = index;
    }
    for offset in 0..2 {
        let earliest = clock_ms();
        let (answer, _): (AppendResponse, _) = peer.call(&request, &both);
        let latest = clock_ms();
        assert_eq!(answer.append_responses.len(), 2);
        for result in &answer.append_responses {
            let stream = streams[usize::from(result.request_index == 0)];
            assert_eq!(
                (result.stream_id, result.base_offset),
                (stream, Some(Offset(offset))),
                "{result:?}"
            );
            let time = result.stream_append_time_ms.0;
            assert!((earliest..=latest).contains(&time), "{earliest} <= {time} <= {latest}");
        }
    }
}

#[test]
fn a_server_whose_ranges_are_asked_for_is_known_by_its_number() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let me = server_id(&mut peer);
    let stream = peer.create("s");
    let criterion = |id: i32| sbp_messages::RangeCriteria {
        range_server: Some(RangeServer {
            server_id: ServerId(id),
            advertise_addr: "somewhere-else:1".to_owned(),
            ..RangeServer::default()
        }),
        ..Default::default()
    };
    let listed: ListRangesResponse = ask(
        &mut peer,
        &ListRangesRequest {
            range_criteria: vec![criterion(me), criterion(me + 1)],
            ..Default::default()
        },
    );
    let found = listed.list_responses.iter().map(|result| {
        assert!(result.status.is_success(), "{}", result.status);
        result.ranges.iter().map(|range| range.stream_id).collect::<Vec<_>>()
    });
    assert!(found.eq([vec![stream], Vec::new()]));
}
