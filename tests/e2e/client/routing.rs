//! Where calls go when a server is not the one: leaders, other servers, pauses that are asked for.

use std::time::{Duration, Instant};

use sbp_client::codes;
use sbp_client::{AppendOptions, Client, ClientConfig, ErrorKind, ReaderOptions, Span, WriterOptions};
use sbp_e2e::batches::told;
use sbp_e2e::scripted::{Peer, client, entry_refused, listener, stored};
use sbp_e2e::wait::bounded;
use sbp_frame::{Frame, OpCode};
use sbp_messages::{
    DeleteStreamResult, DeleteStreamsResponse, DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse,
    Encoder, ErrorCode, FetchRequest, FetchResponse, FetchResult, GoAway, IdAllocationResponse, ListRangesRequest,
    ListRangesResponse, ListRangesResult, Message, PlacementDriverCluster, PlacementDriverNode, Range, RangeId,
    RangeServer, ReplicaServer, SealKind, SealRangesRequest, SealRangesResponse, SealRangesResult, Status, Stream,
};
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId};

pub(super) const STREAM: StreamId = StreamId(3);

pub(super) fn quick(timeout_ms: u64) -> AppendOptions {
    AppendOptions {
        timeout: Some(Duration::from_millis(timeout_ms)),
        ..AppendOptions::default()
    }
}

/// "Not me, but this one."
pub(super) fn not_leader(leader: &str) -> Status {
    let cluster = PlacementDriverCluster {
        nodes: vec![PlacementDriverNode {
            name: "other".to_owned(),
            advertise_addr: leader.to_owned(),
            is_leader: true,
        }],
        ..PlacementDriverCluster::default()
    };
    let detail = cluster.to_detail(&mut Encoder::new());
    Status {
        detail,
        ..Status::error(ErrorCode::PD_NOT_LEADER, "not the leader")
    }
}

pub(super) fn at_server(stream: StreamId, start: i64, end: i64, server: i32, address: &str) -> Range {
    Range {
        stream_id: stream,
        range_index: RangeIndex(0),
        start_offset: Offset(start),
        end_offset: (end >= 0).then_some(Offset(end)),
        servers: vec![ReplicaServer {
            range_server: Some(RangeServer {
                server_id: ServerId(server),
                advertise_addr: address.to_owned(),
                ..RangeServer::default()
            }),
            is_primary: true,
            ..ReplicaServer::default()
        }],
        epoch: Some(Epoch(0)),
        ..Range::default()
    }
}

/// Answers LIST_RANGES: every stream that is asked for is one open range there.
pub(super) async fn list(peer: &mut Peer, frame: &Frame, ranges: impl Fn(StreamId) -> Vec<Range>) {
    assert_eq!(frame.opcode, OpCode::LIST_RANGES);
    let request = ListRangesRequest::decode(&frame.header).unwrap();
    let results = request.range_criteria.into_iter().map(|criteria| ListRangesResult {
        ranges: ranges(criteria.stream_id.unwrap()),
        range_criteria: Some(criteria),
        status: Status::success(),
    });
    let answer = ListRangesResponse {
        list_responses: results.collect(),
        ..ListRangesResponse::default()
    };
    peer.answer(frame, &answer, &[], true).await;
}

/// Answers LIST_RANGES: the stream that is asked for was deleted.
async fn say_deleted(peer: &mut Peer) {
    let frame = peer.frame().await;
    let request = ListRangesRequest::decode(&frame.header).unwrap();
    let answer = ListRangesResponse {
        list_responses: vec![ListRangesResult {
            range_criteria: request.range_criteria.into_iter().next(),
            ranges: Vec::new(),
            status: Status::error(ErrorCode::NOT_FOUND, "stream 3 was deleted"),
        }],
        ..ListRangesResponse::default()
    };
    peer.answer(&frame, &answer, &[], true).await;
}

#[tokio::test]
async fn the_leader_that_is_named_is_asked() {
    let (follower, address) = listener().await;
    let (leader, leader_address) = listener().await;
    let client = client(&address);
    let servers = async {
        let mut peer = Peer::greeted(&follower).await;
        let frame = peer.frame().await;
        let answer = IdAllocationResponse {
            id: 0,
            status: not_leader(&leader_address),
        };
        peer.answer(&frame, &answer, &[], true).await;
        let mut other = Peer::greeted(&leader).await;
        for id in [5, 6] {
            let frame = other.frame().await;
            assert_eq!(frame.opcode, OpCode::ALLOCATE_ID);
            let answer = IdAllocationResponse {
                id,
                status: Status::success(),
            };
            other.answer(&frame, &answer, &[], true).await;
        }
        (peer, other)
    };
    let calls = async {
        let first = client.allocate_id("here", None).await.unwrap();
        // The next call knows where to go.
        (first, client.allocate_id("here", None).await.unwrap())
    };
    let (ids, _peers) = bounded(async { tokio::join!(calls, servers) }).await;
    assert_eq!(ids, (ServerId(5), ServerId(6)));
}

#[tokio::test]
async fn servers_that_name_each_other_are_followed_three_times_and_no_more() {
    let (one, address) = listener().await;
    let (two, other_address) = listener().await;
    let mut config = ClientConfig::new(&address).unwrap();
    config.retry.max_attempts = 5;
    config.retry.backoff_min = Duration::from_millis(5);
    let client = Client::new(config, tokio::runtime::Handle::current());
    let serve = |listener: tokio::net::TcpListener, names: String| async move {
        let mut asked = 0;
        let mut peer = Peer::greeted(&listener).await;
        while let Some(frame) = peer.try_frame().await {
            asked += 1;
            let answer = IdAllocationResponse {
                id: 0,
                status: not_leader(&names),
            };
            peer.answer(&frame, &answer, &[], true).await;
        }
        asked
    };
    // The named one is dialled anew under its own address, so each listener sees one connection of each kind.
    let second = tokio::spawn(serve(two, address.clone()));
    let first = tokio::spawn(async move {
        let mut peers = tokio::task::JoinSet::new();
        loop {
            let mut peer = Peer::greeted(&one).await;
            let names = other_address.clone();
            peers.spawn(async move {
                while let Some(frame) = peer.try_frame().await {
                    let answer = IdAllocationResponse {
                        id: 0,
                        status: not_leader(&names),
                    };
                    peer.answer(&frame, &answer, &[], true).await;
                }
            });
        }
    });
    let error = bounded(client.allocate_id("here", None)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Rejected, ErrorCode::PD_NOT_LEADER)
    );
    client.close().await;
    first.abort();
    let asked = bounded(second).await.unwrap();
    // Two of the three hops lead there; the last attempt goes where the first one went.
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn an_append_goes_where_its_stream_is_and_so_does_the_next_at_once() {
    let (home, address) = listener().await;
    let (range_server, elsewhere) = listener().await;
    let client = client(&address);
    let servers = async {
        let mut driver = Peer::greeted(&home).await;
        let (frame, _) = driver.append().await;
        let status = Status::error(ErrorCode::UNSUPPORTED_OPERATION, "no ranges here");
        driver.refuse(&frame, status).await;
        let frame = driver.frame().await;
        list(&mut driver, &frame, |stream| {
            vec![at_server(stream, 0, -1, 9, &elsewhere)]
        })
        .await;
        let mut server = Peer::greeted(&range_server).await;
        for offset in 0..2 {
            let (frame, request) = server.append().await;
            server.answer(&frame, &stored(&request, offset), &[], true).await;
        }
        (driver, server)
    };
    let appends = async {
        let first = client.append(STREAM, vec![1], &quick(8_000)).await.unwrap();
        let second = client.append(STREAM, vec![2], &quick(8_000)).await.unwrap();
        (first.base_offset, second.base_offset)
    };
    let (offsets, _peers) = bounded(async { tokio::join!(appends, servers) }).await;
    assert_eq!(offsets, (Some(Offset(0)), Some(Offset(1))));
}

#[tokio::test]
async fn a_server_that_is_connected_already_is_not_dialled_under_its_advertised_address() {
    let (home, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::accept(&home).await;
        peer.greet(&[("server-id", "9")]).await;
        let (frame, request) = peer.append().await;
        let status = Status::error(ErrorCode::RANGE_ALREADY_SEALED, "sealed");
        peer.answer(&frame, &entry_refused(&request, status), &[], true).await;
        let frame = peer.frame().await;
        list(&mut peer, &frame, |stream| {
            vec![at_server(stream, 0, -1, 9, "nobody.invalid:1")]
        })
        .await;
        let (frame, request) = peer.append().await;
        peer.answer(&frame, &stored(&request, 7), &[], true).await;
        peer
    };
    let options = quick(8_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(7)));
}

#[tokio::test]
async fn an_append_to_many_streams_is_split_over_servers_and_answered_as_one() {
    let (home, address) = listener().await;
    let (one, one_address) = listener().await;
    let (two, two_address) = listener().await;
    let client = client(&address);
    let place = |stream: StreamId| {
        if stream.0 % 2 == 0 {
            vec![at_server(stream, 0, -1, 2, &two_address)]
        } else {
            vec![at_server(stream, 0, -1, 1, &one_address)]
        }
    };
    let servers = async {
        let mut driver = Peer::greeted(&home).await;
        let (frame, _) = driver.append().await;
        let status = Status::error(ErrorCode::UNSUPPORTED_OPERATION, "no ranges here");
        driver.refuse(&frame, status).await;
        for _ in 0..4 {
            let frame = driver.frame().await;
            list(&mut driver, &frame, place).await;
        }
        let serve = |listener: tokio::net::TcpListener, from: i64| async move {
            let mut peer = Peer::greeted(&listener).await;
            let mut sizes = Vec::new();
            // Two alone while they were looked for, then two together.
            for _ in 0..3 {
                let (frame, request) = peer.append().await;
                sizes.push(request.append_requests.len());
                let mut answer = stored(&request, 0);
                for result in &mut answer.append_responses {
                    result.base_offset = Some(Offset(from + result.stream_id.0));
                }
                peer.answer(&frame, &answer, &[], true).await;
            }
            (peer, sizes)
        };
        let (first, second) = tokio::join!(serve(one, 100), serve(two, 200));
        assert_eq!((first.1, second.1), (vec![1, 1, 2], vec![1, 1, 2]));
        (driver, first.0, second.0)
    };
    let appends = async {
        for _ in 0..2 {
            let batches = (1..=4).map(|id| (StreamId(id), vec![1].into())).collect();
            let acks = client.append_all(batches, &quick(8_000)).await.unwrap().all().unwrap();
            let places: Vec<_> = acks.iter().map(|ack| (ack.stream.0, told(ack.base_offset))).collect();
            assert_eq!(places, [(1, 101), (2, 202), (3, 103), (4, 204)]);
            // The parts of an append count when they leave as they did when they came.
            assert_eq!((client.appends_in_flight().count(), client.stats().in_flight), (0, 0));
        }
    };
    let ((), _peers) = bounded(async { tokio::join!(appends, servers) }).await;
}

#[tokio::test]
async fn an_entry_that_is_refused_for_the_moment_is_made_again_by_itself() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        let mut answer = stored(&request, 7);
        answer.append_responses[1].status = Status::error(ErrorCode::TOO_MANY_REQUESTS, "slowly");
        answer.append_responses[2].status = Status::error(ErrorCode::NOT_FOUND, "gone");
        peer.answer(&frame, &answer, &[], true).await;
        let (frame, request) = peer.append().await;
        assert_eq!(request.append_requests.len(), 1);
        assert_eq!(request.append_requests[0].stream_id, StreamId(2));
        peer.answer(&frame, &stored(&request, 9), &[], true).await;
        peer
    };
    let batches = (1..=3).map(|id| (StreamId(id), vec![1].into())).collect();
    let options = quick(8_000);
    let append = client.append_all(batches, &options);
    let (outcome, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let entries = outcome.unwrap().entries;
    assert_eq!(entries[0].as_ref().unwrap().base_offset, Some(Offset(7)));
    assert_eq!(entries[1].as_ref().unwrap().base_offset, Some(Offset(9)));
    assert_eq!(entries[2].as_ref().unwrap_err().code(), ErrorCode::NOT_FOUND);
}

#[tokio::test]
async fn a_stream_that_is_nowhere_ends_an_append() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        let status = Status::error(ErrorCode::RANGE_NOT_FOUND, "not here");
        peer.answer(&frame, &entry_refused(&request, status), &[], true).await;
        say_deleted(&mut peer).await;
        peer
    };
    let options = quick(8_000);
    let append = client.append(STREAM, vec![1], &options);
    let (outcome, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Rejected, ErrorCode::NOT_FOUND)
    );
    assert_eq!(error.stream(), Some(STREAM));
}

#[tokio::test]
async fn a_stream_that_is_nowhere_stops_a_writer() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::accept(&listener).await;
        peer.greet(&[("idempotence", "64"), ("max-calls", "64")]).await;
        let (frame, request) = peer.append().await;
        let status = Status::error(ErrorCode::RANGE_NOT_FOUND, "not here");
        peer.answer(&frame, &entry_refused(&request, status), &[], true).await;
        say_deleted(&mut peer).await;
        peer
    };
    let writer = client.writer(STREAM, WriterOptions::default());
    let append = writer.append(vec![1]);
    // A writer that tried on would do so until its time is over, which is more than this test has.
    let (outcome, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.code(), error.stream()),
        (ErrorKind::Rejected, ErrorCode::NOT_FOUND, Some(STREAM))
    );
    let later = bounded(writer.append(vec![2])).await.unwrap_err();
    assert_eq!(later.code(), ErrorCode::NOT_FOUND);
}

#[tokio::test]
async fn a_reader_goes_on_where_the_next_range_is() {
    let (home, address) = listener().await;
    let (range_server, elsewhere) = listener().await;
    let client = client(&address);
    let answer = |frame: &Frame, next: i64, end_of_range: bool| {
        let request = FetchRequest::decode(&frame.header).unwrap();
        let asked = request.fetch_requests[0];
        let payload = sbp_e2e::batches::batch(
            asked.fetch_offset.0,
            usize::try_from(next - asked.fetch_offset.0).unwrap(),
        );
        let result = FetchResult {
            stream_id: asked.stream_id,
            batch_length: i32::try_from(payload.len()).unwrap(),
            base_offset: Some(asked.fetch_offset),
            next_offset: Some(Offset(next)),
            start_offset: Some(Offset(0)),
            high_watermark: Some(Offset(next)),
            end_of_range,
            ..FetchResult::default()
        };
        let response = FetchResponse {
            fetch_responses: [result].into_iter().collect(),
            ..FetchResponse::default()
        };
        (response, payload)
    };
    let servers = async {
        let mut first = Peer::greeted(&home).await;
        let frame = first.frame().await;
        let (response, payload) = answer(&frame, 10, true);
        first.answer(&frame, &response, &payload, true).await;
        // At the end of what it has it says so again.
        let frame = first.frame().await;
        let (mut response, _) = answer(&frame, 10, true);
        response.fetch_responses[0].batch_length = 0;
        first.answer(&frame, &response, &[], true).await;
        let frame = first.frame().await;
        let ranges = |stream| {
            vec![
                at_server(stream, 0, 10, 1, &address),
                at_server(stream, 10, -1, 9, &elsewhere),
            ]
        };
        list(&mut first, &frame, ranges).await;
        let mut second = Peer::greeted(&range_server).await;
        let frame = second.frame().await;
        let (response, payload) = answer(&frame, 25, false);
        second.answer(&frame, &response, &payload, true).await;
        (first, second)
    };
    let reading = async {
        let span = Span {
            stream: STREAM,
            start: Offset(0),
            end: Offset(20),
        };
        let mut reader = client.reader(vec![span], ReaderOptions::default());
        let mut bounds = Vec::new();
        while let Some(fetched) = reader.next().await {
            let fetched = fetched.unwrap();
            bounds.push((fetched.from.0, fetched.to.0));
        }
        bounds
    };
    let (bounds, _peers) = bounded(async { tokio::join!(reading, servers) }).await;
    assert_eq!(bounds, [(0, 10), (10, 20)]);
}

#[tokio::test]
async fn a_pause_that_is_asked_for_with_success_is_kept() {
    const PAUSE: Duration = Duration::from_secs(1);
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        let mut answer = stored(&request, 1);
        answer.throttle_time_ms = 1_000;
        peer.answer(&frame, &answer, &[], true).await;
        let asked_at = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..3 {
            let frame = peer.frame().await;
            waits.push((frame.opcode, asked_at.elapsed() >= PAUSE));
            let deleted = DeleteStreamsResponse {
                throttle_time_ms: 1_000,
                delete_responses: vec![DeleteStreamResult {
                    deleted_stream: Some(Stream::default()),
                    status: Status::success(),
                    ..DeleteStreamResult::default()
                }],
                status: Status::success(),
            };
            if frame.opcode == OpCode::APPEND {
                let request = sbp_messages::AppendRequest::decode(&frame.header).unwrap();
                peer.answer(&frame, &stored(&request, 2), &[], true).await;
            } else {
                peer.answer(&frame, &deleted, &[], true).await;
            }
        }
        (peer, waits)
    };
    let calls = async {
        client.append(STREAM, vec![1], &quick(8_000)).await.unwrap();
        // Another kind does not wait; the second of its kind does.
        client.delete_streams(&[STREAM], None).await.unwrap();
        let before = Instant::now();
        let options = quick(8_000);
        let (deleted, appended) = tokio::join!(
            client.delete_streams(&[STREAM], None),
            client.append(STREAM, vec![1], &options)
        );
        assert!(before.elapsed() >= PAUSE / 2);
        deleted.unwrap();
        appended.unwrap();
    };
    let ((), (_peer, waits)) = bounded(async { tokio::join!(calls, server) }).await;
    assert_eq!(waits[0], (OpCode::DELETE_STREAMS, false));
    assert!(waits[1].1 && waits[2].1, "{waits:?}");
}

#[tokio::test]
async fn a_full_disk_is_a_refusal_when_attempts_are_over() {
    let (listener, address) = listener().await;
    let mut config = ClientConfig::new(&address).unwrap();
    config.retry.max_attempts = 4;
    config.retry.backoff_min = Duration::from_millis(5);
    let client = Client::new(config, tokio::runtime::Handle::current());
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        for _ in 0..4 {
            let (frame, request) = peer.append().await;
            let status = Status::error(ErrorCode::INSUFFICIENT_STORAGE, "the disk is full");
            peer.answer(&frame, &entry_refused(&request, status), &[], true).await;
        }
        peer
    };
    let options = AppendOptions::default();
    let append = client.append(STREAM, vec![1], &options);
    let (outcome, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.code(), error.attempts()),
        (ErrorKind::Rejected, ErrorCode::INSUFFICIENT_STORAGE, 4)
    );
    assert!(error.is_retriable());
}

#[tokio::test]
async fn an_append_that_was_refused_and_then_found_nobody_says_why_it_was_refused() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        // It goes away, so the next attempt is another connection's, and nobody is there any more.
        peer.go_away(frame.call_id).await;
        drop(listener);
        let status = Status::error(ErrorCode::INSUFFICIENT_STORAGE, "the disk is full");
        peer.answer(&frame, &entry_refused(&request, status), &[], true).await;
        peer
    };
    let options = quick(600);
    let append = client.append(STREAM, vec![1], &options);
    let (outcome, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Rejected, ErrorCode::INSUFFICIENT_STORAGE)
    );
}

#[tokio::test]
async fn a_writer_needs_a_server_that_recognises_repeats() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        assert!(peer.try_frame().await.is_none(), "nothing is sent");
    };
    let append = async {
        let writer = client.writer(STREAM, WriterOptions::default());
        let error = writer.append(vec![1]).await.unwrap_err();
        client.close().await;
        error
    };
    let (error, ()) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Unsupported, codes::FEATURE_NOT_OFFERED)
    );
}

#[tokio::test]
async fn a_writer_leaves_a_connection_that_answers_nothing() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let greeting = [("idempotence", "64"), ("max-calls", "64")];
    let server = async {
        let mut silent = Peer::accept(&listener).await;
        silent.greet(&greeting).await;
        let (_, first) = silent.append().await;
        // It stays open, and nothing comes.
        let mut peer = Peer::accept(&listener).await;
        peer.greet(&greeting).await;
        let (frame, again) = peer.append().await;
        assert_eq!(again.append_requests, first.append_requests);
        peer.answer(&frame, &stored(&again, 4), &[], true).await;
        (silent, peer)
    };
    let options = WriterOptions {
        attempt_timeout: Duration::from_millis(200),
        ..WriterOptions::default()
    };
    let writer = client.writer(STREAM, options);
    let append = writer.append(vec![1]);
    let (ack, _peers) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(4)));
}

#[tokio::test]
async fn a_seal_of_the_open_range_is_repeated_for_the_same_range() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let frame = peer.frame().await;
        let request = DescribeRangesRequest::decode(&frame.header).unwrap();
        assert_eq!(request.ranges[0].range_index, None);
        let range = Range {
            range_index: RangeIndex(4),
            ..at_server(STREAM, 40, -1, 1, "")
        };
        let answer = DescribeRangesResponse {
            describe_responses: vec![DescribeRangeResult {
                stream_id: STREAM,
                range: Some(range),
                status: Status::success(),
            }],
            ..DescribeRangesResponse::default()
        };
        peer.answer(&frame, &answer, &[], true).await;
        // The seal is done and its answer lost.
        let frame = peer.frame().await;
        let first = SealRangesRequest::decode(&frame.header).unwrap();
        drop(peer);
        let mut peer = Peer::greeted(&listener).await;
        let frame = peer.frame().await;
        let second = SealRangesRequest::decode(&frame.header).unwrap();
        assert_eq!(first.ranges[0].range_index, Some(RangeIndex(4)));
        assert_eq!(first.ranges, second.ranges);
        let next = Range {
            range_index: RangeIndex(5),
            ..at_server(STREAM, 50, -1, 1, "")
        };
        let answer = SealRangesResponse {
            seal_responses: vec![SealRangesResult {
                stream_id: STREAM,
                range: Some(next),
                status: Status::success(),
                ..SealRangesResult::default()
            }],
            ..SealRangesResponse::default()
        };
        peer.answer(&frame, &answer, &[], true).await;
        peer
    };
    let open = [RangeId {
        stream_id: STREAM,
        ..RangeId::default()
    }];
    let seal = client.seal_ranges(&open, SealKind::PLACEMENT_DRIVER, None);
    let (sealed, _peer) = bounded(async { tokio::join!(seal, server) }).await;
    assert_eq!(sealed.unwrap()[0].as_ref().unwrap().range_index, RangeIndex(5));
}

#[tokio::test]
async fn a_delete_whose_answer_was_lost_has_deleted() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let gone = DeleteStreamsResponse {
        delete_responses: vec![DeleteStreamResult {
            deleted_stream: None,
            status: Status::error(ErrorCode::NOT_FOUND, "no such stream"),
            ..DeleteStreamResult::default()
        }],
        ..DeleteStreamsResponse::default()
    };
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let frame = peer.frame().await;
        peer.answer(&frame, &gone, &[], true).await;
        peer.frame().await;
        drop(peer);
        let mut peer = Peer::greeted(&listener).await;
        let frame = peer.frame().await;
        peer.answer(&frame, &gone, &[], true).await;
        peer
    };
    let deletes = async {
        let first = client.delete_streams(&[STREAM], None).await.unwrap().remove(0);
        let second = client.delete_streams(&[STREAM], None).await.unwrap().remove(0);
        (first, second)
    };
    let ((first, second), _peer) = bounded(async { tokio::join!(deletes, server) }).await;
    assert_eq!(first.unwrap_err().code(), ErrorCode::NOT_FOUND);
    assert_eq!(second.unwrap().stream_id, STREAM);
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_told_so() {
    let (listener, address) = listener().await;
    let config = ClientConfig::new(&address).unwrap();
    let client = Client::new(config, tokio::runtime::Handle::current());
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        peer.append().await;
        // A length that no frame has.
        peer.raw(&[0, 0, 0, 3, 23, 0, 0, 0, 0]).await;
        let frame = peer.frame().await;
        assert_eq!(frame.opcode, OpCode::GOAWAY);
        let told = GoAway::decode(&frame.header).unwrap();
        assert_eq!(told.status.code, ErrorCode::INVALID_REQUEST);
        assert!(!told.status.message.is_empty());
    };
    let options = quick(5_000);
    let append = client.append(STREAM, vec![1], &options);
    let (outcome, ()) = bounded(async { tokio::join!(append, server) }).await;
    assert!(outcome.unwrap_err().is_indeterminate());
}

/// An address that leads to a listener although it is nobody's in particular.
async fn nobodys() -> (tokio::net::TcpListener, String) {
    let (listener, address) = listener().await;
    let (_, port) = address.rsplit_once(':').unwrap();
    (listener, format!("0.0.0.0:{port}"))
}

/// Whether nobody has dialled; what was dialled before is in the queue of the listener by now.
pub(super) fn nobody_came(listener: tokio::net::TcpListener) -> bool {
    let accepted = listener.into_std().unwrap().accept();
    accepted.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn a_leader_whose_address_is_nobodys_is_not_dialled() {
    let (one, address) = listener().await;
    let (lure, odd) = nobodys().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&one).await;
        let frame = peer.frame().await;
        let answer = IdAllocationResponse {
            id: 0,
            status: not_leader(&odd),
        };
        peer.answer(&frame, &answer, &[], true).await;
        let frame = peer.frame().await;
        assert_eq!(frame.opcode, OpCode::ALLOCATE_ID, "whoever is known is asked again");
        let answer = IdAllocationResponse {
            id: 5,
            status: Status::success(),
        };
        peer.answer(&frame, &answer, &[], true).await;
        peer
    };
    let (id, _peer) = bounded(async { tokio::join!(client.allocate_id("here", None), server) }).await;
    assert_eq!(id.unwrap(), ServerId(5));
    assert!(nobody_came(lure));
}

#[tokio::test]
async fn a_range_whose_address_is_nobodys_is_asked_for_where_the_client_is() {
    let (one, address) = listener().await;
    let (lure, odd) = nobodys().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&one).await;
        let (frame, request) = peer.append().await;
        let elsewhere = Status::error(ErrorCode::RANGE_NOT_FOUND, "not here");
        peer.answer(&frame, &entry_refused(&request, elsewhere), &[], true)
            .await;
        let frame = peer.frame().await;
        list(&mut peer, &frame, |stream| vec![at_server(stream, 0, -1, 8, &odd)]).await;
        let (frame, request) = peer.append().await;
        peer.answer(&frame, &stored(&request, 41), &[], true).await;
        peer
    };
    let options = quick(5_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(41)));
    assert!(nobody_came(lure));
}
