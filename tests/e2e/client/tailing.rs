//! What a tail makes of ends of ranges, of records that are gone, and of times.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use sbp_client::codes;
use sbp_client::{AppendOptions, Client, ErrorKind, Gap, OnGap, Position, TailEvent, TailOptions};
use sbp_e2e::batches::batch;
use sbp_e2e::clients::client_with;
use sbp_e2e::scripted::{Peer, client, listener};
use sbp_e2e::wait::{LIMIT, bounded, bounded_by};
use sbp_frame::{Frame, OpCode};
use sbp_messages::{
    ErrorCode, FetchInfo, FetchRequest, FetchResponse, FetchResult, ListRangesRequest, ListRangesResponse,
    ListRangesResult, Message, Range, RangeServer, ReplicaServer, Status,
};
use sbp_record::{EncodeOptions, RecordsBuilder, stamp_base_offset};
use sbp_types::{Offset, RangeIndex, ServerId, StreamId, TimestampMs};

const STREAM: StreamId = StreamId(3);

/// A client whose deadlines are all over in a fifth of a second.
fn hasty(servers: &str) -> Client {
    client_with(servers, |config| {
        config.timeout = Duration::from_millis(100);
        config.connect_timeout = Duration::from_millis(100);
        config.tail_wait = Duration::from_millis(50);
        config.retry.backoff_max = Duration::from_millis(50);
    })
}

async fn fetch(peer: &mut Peer) -> (Frame, FetchInfo) {
    let frame = peer.frame().await;
    assert_eq!(frame.opcode, OpCode::FETCH);
    let request = FetchRequest::decode(&frame.header).unwrap();
    (frame, request.fetch_requests[0])
}

fn result(asked: &FetchInfo, length: usize, start: i64, next: i64) -> FetchResult {
    FetchResult {
        stream_id: asked.stream_id,
        batch_length: i32::try_from(length).unwrap(),
        base_offset: Some(asked.fetch_offset),
        next_offset: Some(Offset(next)),
        start_offset: Some(Offset(start)),
        high_watermark: Some(Offset(next)),
        ..FetchResult::default()
    }
}

async fn answer(peer: &mut Peer, frame: &Frame, result: FetchResult, payload: &[u8]) {
    let response = FetchResponse {
        fetch_responses: [result].into_iter().collect(),
        ..FetchResponse::default()
    };
    peer.answer(frame, &response, payload, true).await;
}

/// A server that trimmed the stream to 7 while 5 was to be read next.
async fn trimmed(peer: &mut Peer) {
    let (frame, asked) = fetch(peer).await;
    assert_eq!(asked.fetch_offset, Offset(0));
    let payload = batch(0, 5);
    answer(peer, &frame, result(&asked, payload.len(), 0, 5), &payload).await;
    let (frame, asked) = fetch(peer).await;
    assert_eq!(asked.fetch_offset, Offset(5));
    let refused = FetchResult {
        status: Status::error(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, "trimmed"),
        high_watermark: Some(Offset(20)),
        base_offset: None,
        ..result(&asked, 0, 7, 7)
    };
    answer(peer, &frame, refused, &[]).await;
}

#[tokio::test]
async fn records_that_are_gone_are_an_error_that_names_them_and_the_tail_goes_on_behind_them() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        trimmed(&mut peer).await;
        let (frame, asked) = fetch(&mut peer).await;
        let payload = batch(7, 2);
        answer(&mut peer, &frame, result(&asked, payload.len(), 7, 9), &payload).await;
        peer
    };
    let following = async {
        let from = [(STREAM, Position::At(Offset(0)))];
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        assert_eq!(tail.next().await.unwrap().unwrap().to, Offset(5));
        let error = tail.next().await.unwrap().unwrap_err();
        let next = tail.next().await.unwrap().unwrap();
        assert_eq!((next.from, next.to), (Offset(7), Offset(9)));
        error
    };
    let (error, _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert_eq!((error.kind(), error.code()), (ErrorKind::Incomplete, codes::DATA_LOSS));
    let gap = error.gap().unwrap();
    assert_eq!(
        (gap.stream, gap.from, gap.to, gap.records()),
        (STREAM, Offset(5), Offset(7), 2)
    );
}

#[tokio::test]
async fn a_tail_outlasts_an_outage_that_is_longer_than_every_deadline() {
    let (listener, address) = listener().await;
    let client = hasty(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, asked) = fetch(&mut peer).await;
        let payload = batch(0, 1);
        answer(&mut peer, &frame, result(&asked, payload.len(), 0, 1), &payload).await;
        fetch(&mut peer).await;
        drop((peer, listener));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let again = tokio::net::TcpListener::bind(&address).await.unwrap();
        let mut peer = Peer::greeted(&again).await;
        let (frame, asked) = fetch(&mut peer).await;
        assert_eq!(asked.fetch_offset, Offset(1));
        let payload = batch(1, 1);
        answer(&mut peer, &frame, result(&asked, payload.len(), 0, 2), &payload).await;
        peer
    };
    let following = async {
        let from = [(STREAM, Position::At(Offset(0)))];
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        let first = tail.next().await.unwrap().unwrap().to;
        (first, tail.next().await.unwrap().unwrap().to)
    };
    let (seen, _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert_eq!(seen, (Offset(1), Offset(2)));
}

#[tokio::test]
async fn a_tail_outlasts_a_server_that_answers_nothing_for_longer_than_every_deadline() {
    let (listener, address) = listener().await;
    let client = hasty(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        for _ in 0..2 {
            fetch(&mut peer).await;
        }
        let (frame, asked) = fetch(&mut peer).await;
        let payload = batch(0, 1);
        answer(&mut peer, &frame, result(&asked, payload.len(), 0, 1), &payload).await;
        peer
    };
    let following = async {
        let from = [(STREAM, Position::At(Offset(0)))];
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        tail.next().await.unwrap().unwrap().to
    };
    let (seen, _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert_eq!(seen, Offset(1));
}

#[tokio::test]
async fn a_tail_that_is_told_so_gives_up_after_a_while_and_goes_on_when_it_is_asked_again() {
    let (listener, address) = listener().await;
    let client = hasty(&address);
    let (failed, told) = tokio::sync::oneshot::channel();
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        fetch(&mut peer).await;
        drop((peer, listener));
        told.await.unwrap();
        let again = tokio::net::TcpListener::bind(&address).await.unwrap();
        let mut peer = Peer::greeted(&again).await;
        let (frame, asked) = fetch(&mut peer).await;
        let payload = batch(0, 1);
        answer(&mut peer, &frame, result(&asked, payload.len(), 0, 1), &payload).await;
        peer
    };
    let following = async {
        let options = TailOptions {
            give_up_after: Some(Duration::from_millis(200)),
            ..TailOptions::default()
        };
        let from = [(STREAM, Position::At(Offset(0)))];
        let mut tail = client.tail(&from, options).await.unwrap();
        let error = tail.next().await.unwrap().unwrap_err();
        failed.send(()).unwrap();
        loop {
            // Each time somebody asks, it tries for as long as it was told.
            match tail.next().await.unwrap() {
                Ok(batch) => break (error, batch.to),
                Err(again) => assert_eq!(again.kind(), error.kind()),
            }
        }
    };
    let ((error, to), _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert!(error.is_retriable() && error.stream() == Some(STREAM), "{error}");
    assert_eq!(to, Offset(1));
}

#[tokio::test]
async fn a_tail_that_was_refused_is_never_over() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        for _ in 0..2 {
            let (frame, asked) = fetch(&mut peer).await;
            let mut refused = result(&asked, 0, 0, -1);
            refused.status = Status::error(ErrorCode::NOT_FOUND, "there is no such stream");
            answer(&mut peer, &frame, refused, &[]).await;
        }
        let (frame, asked) = fetch(&mut peer).await;
        let payload = batch(0, 1);
        answer(&mut peer, &frame, result(&asked, payload.len(), 0, 1), &payload).await;
        peer
    };
    let following = async {
        let from = [(STREAM, Position::At(Offset(0)))];
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        for _ in 0..2 {
            let error = tail.next().await.unwrap().unwrap_err();
            assert_eq!((error.code(), error.stream()), (ErrorCode::NOT_FOUND, Some(STREAM)));
        }
        tail.next().await.unwrap().unwrap().to
    };
    let (to, _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert_eq!(to, Offset(1));
}

#[tokio::test]
async fn a_tail_may_report_what_is_gone_and_go_on_behind_it() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        trimmed(&mut peer).await;
        let (frame, asked) = fetch(&mut peer).await;
        assert_eq!(asked.fetch_offset, Offset(7));
        // Once more, now inside a batch, which is returned whole.
        let payload = batch(6, 10);
        answer(&mut peer, &frame, result(&asked, payload.len(), 9, 16), &payload).await;
        peer
    };
    let following = async {
        let from = [(STREAM, Position::At(Offset(0)))];
        let options = TailOptions {
            on_gap: OnGap::Report,
            ..TailOptions::default()
        };
        let mut tail = client.tail(&from, options).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(match tail.next_event().await.unwrap().unwrap() {
                TailEvent::Batch(batch) => ("batch", batch.from.0, batch.to.0),
                TailEvent::Gap(Gap { from, to, .. }) => ("gap", from.0, to.0),
            });
        }
        (seen, tail)
    };
    let ((seen, _tail), _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert_eq!(seen, [("batch", 0, 5), ("gap", 5, 7), ("gap", 7, 9), ("batch", 9, 16)]);
}

#[tokio::test]
async fn a_tail_goes_on_in_the_next_range_wherever_that_is() {
    let (home, address) = listener().await;
    let (range_server, elsewhere) = listener().await;
    let client = client(&address);
    let range = |index, start, end, server, address: &str| Range {
        stream_id: STREAM,
        range_index: RangeIndex(index),
        start_offset: Offset(start),
        end_offset: Some(Offset(end)).filter(|end| *end >= Offset::ZERO),
        servers: vec![ReplicaServer {
            range_server: Some(RangeServer {
                server_id: ServerId(server),
                advertise_addr: address.to_owned(),
                ..RangeServer::default()
            }),
            is_primary: true,
            ..ReplicaServer::default()
        }],
        ..Range::default()
    };
    let servers = async {
        let mut first = Peer::greeted(&home).await;
        let (frame, asked) = fetch(&mut first).await;
        let payload = batch(0, 4);
        let end = FetchResult {
            end_of_range: true,
            ..result(&asked, payload.len(), 0, 4)
        };
        answer(&mut first, &frame, end, &payload).await;
        // There is no next range yet for a while.
        let mut lists = 0;
        let second = Peer::greeted(&range_server);
        tokio::pin!(second);
        let mut second = loop {
            let frame = tokio::select! {
                second = &mut second => break second,
                frame = first.frame() => frame,
            };
            if frame.opcode == OpCode::FETCH {
                let request = FetchRequest::decode(&frame.header).unwrap();
                let end = FetchResult {
                    end_of_range: true,
                    ..result(&request.fetch_requests[0], 0, 0, 4)
                };
                answer(&mut first, &frame, end, &[]).await;
                continue;
            }
            assert_eq!(frame.opcode, OpCode::LIST_RANGES);
            lists += 1;
            let request = ListRangesRequest::decode(&frame.header).unwrap();
            let mut ranges = vec![range(0, 0, 4, 1, &address)];
            if lists >= 3 {
                ranges.push(range(1, 4, -1, 9, &elsewhere));
            }
            let listed = ListRangesResponse {
                list_responses: vec![ListRangesResult {
                    range_criteria: request.range_criteria.into_iter().next(),
                    ranges,
                    status: Status::success(),
                }],
                ..ListRangesResponse::default()
            };
            first.answer(&frame, &listed, &[], true).await;
        };
        let (frame, asked) = fetch(&mut second).await;
        assert_eq!(asked.fetch_offset, Offset(4));
        let payload = batch(4, 3);
        answer(&mut second, &frame, result(&asked, payload.len(), 0, 7), &payload).await;
        (first, second)
    };
    let following = async {
        let from = [(STREAM, Position::At(Offset(0)))];
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let batch = tail.next().await.unwrap().unwrap();
            seen.push((batch.from.0, batch.to.0));
        }
        (seen, tail)
    };
    let ((seen, _tail), _peers) = bounded(async { tokio::join!(following, servers) }).await;
    assert_eq!(seen, [(0, 4), (4, 7)]);
}

#[tokio::test]
async fn a_tail_from_a_time_begins_with_the_first_record_of_that_time() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let timed = |base: i64, times: &[i64]| {
        let mut builder = RecordsBuilder::new();
        for &time in times {
            builder.push(Some(b"value"), None, Some(time * 1_000), &[]).unwrap();
        }
        let mut out = BytesMut::new();
        builder.finish(&EncodeOptions::default(), &mut out).unwrap();
        out[..9].copy_from_slice(&stamp_base_offset(Offset(base)));
        out.to_vec()
    };
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, asked) = fetch(&mut peer).await;
        assert_eq!(asked.start_timestamp_ms, Some(TimestampMs(30)));
        // Only leading records are left out; what comes later is wanted whatever its time.
        let payload = [timed(10, &[10, 20, 30, 5]), timed(14, &[1, 2])].concat();
        let found = FetchResult {
            base_offset: Some(Offset(10)),
            ..result(&asked, payload.len(), 0, 16)
        };
        answer(&mut peer, &frame, found, &payload).await;
        let (_, asked) = fetch(&mut peer).await;
        assert_eq!((asked.fetch_offset, asked.start_timestamp_ms), (Offset(16), None));
        peer
    };
    let following = async {
        let from = [(STREAM, Position::Time(TimestampMs(30)))];
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        let first = tail.next().await.unwrap().unwrap();
        let second = tail.next().await.unwrap().unwrap();
        ([(first.from.0, first.to.0), (second.from.0, second.to.0)], tail)
    };
    let ((seen, _tail), _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert_eq!(seen, [(12, 14), (14, 16)]);
}

/// Tails of one client share a connection, which lets some of them wait at the server: the others take turns, also with those
/// that nobody reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_tails_than_may_wait_on_a_connection_all_get_what_is_appended() {
    const READ: usize = 300;
    const IDLE: usize = 300;
    const SOON: Duration = Duration::from_secs(5);
    let server = sbp_e2e::servers::quick_anywhere();
    let client = client_with(server.address(), |_| ());
    let stream = sbp_e2e::clients::stream(&client).await;
    bounded_by(LIMIT, async {
        let from = [(stream, Position::Latest)];
        let mut idle = Vec::new();
        let mut tails = Vec::new();
        for _ in 0..IDLE {
            idle.push(client.tail(&from, TailOptions::default()).await.unwrap());
        }
        for _ in 0..READ {
            tails.push(client.tail(&from, TailOptions::default()).await.unwrap());
        }
        for round in 0..3 {
            let reading: Vec<_> = tails
                .into_iter()
                .map(|mut tail| {
                    tokio::spawn(async move {
                        let batch = tail.next().await.unwrap().unwrap();
                        (tail, batch.from)
                    })
                })
                .collect();
            let options = AppendOptions::default();
            client.append(stream, vec![1], &options).await.unwrap();
            let began = Instant::now();
            tails = Vec::new();
            for read in reading {
                let (tail, offset) = read.await.unwrap();
                assert_eq!(offset, Offset(round));
                tails.push(tail);
            }
            assert!(began.elapsed() < SOON, "round {round} took {:?}", began.elapsed());
        }
        assert_eq!(server.stats().refusals, 0, "no FETCH is one too many");
        client.close().await;
    })
    .await;
}
