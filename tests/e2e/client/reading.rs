//! What readers and tails ask for, and what they make of the answers.

use std::time::{Duration, Instant};

use sbp_client::codes;
use sbp_client::{Client, ErrorKind, FetchEntry, FetchOptions, Position, ReaderOptions, Span, TailOptions};
use sbp_e2e::batches::batch;
use sbp_e2e::frames::answer_bytes;
use sbp_e2e::scripted::{Peer, client, listener};
use sbp_e2e::wait::bounded;
use sbp_frame::{Frame, OpCode};
use sbp_messages::{ErrorCode, FetchInfo, FetchRequest, FetchResponse, FetchResult, Message, Status};
use sbp_types::{Offset, StreamId};

const STREAM: StreamId = StreamId(3);

fn span(start: i64, end: i64) -> Span {
    Span {
        stream: STREAM,
        start: Offset(start),
        end: Offset(end),
    }
}

async fn fetch(peer: &mut Peer) -> (Frame, FetchRequest) {
    let frame = peer.frame().await;
    assert_eq!(frame.opcode, OpCode::FETCH);
    let request = FetchRequest::decode(&frame.header).unwrap();
    (frame, request)
}

fn result(asked: &FetchInfo, payload: &[u8], next: i64, high_watermark: i64) -> FetchResult {
    FetchResult {
        stream_id: asked.stream_id,
        request_index: asked.request_index,
        batch_length: i32::try_from(payload.len()).unwrap(),
        base_offset: Some(asked.fetch_offset),
        next_offset: Some(Offset(next)),
        start_offset: Some(Offset(0)),
        high_watermark: Some(Offset(high_watermark)),
        ..FetchResult::default()
    }
}

fn response(results: impl IntoIterator<Item = FetchResult>) -> FetchResponse {
    FetchResponse {
        fetch_responses: results.into_iter().collect(),
        ..FetchResponse::default()
    }
}

#[tokio::test]
async fn reading_goes_on_behind_what_was_handed_out_when_the_connection_is_lost() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = fetch(&mut peer).await;
        let asked = &request.fetch_requests[0];
        assert_eq!((asked.fetch_offset, asked.end_offset), (Offset(5), Some(Offset(25))));
        assert_eq!(request.max_wait_ms, 0);
        assert!(request.max_bytes > 0 && request.max_bytes <= 32 << 20);
        let payload = [batch(0, 10), batch(10, 5)].concat();
        peer.answer(&frame, &response([result(asked, &payload, 15, 100)]), &payload, false)
            .await;
        drop(peer);
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = fetch(&mut peer).await;
        let asked = &request.fetch_requests[0];
        assert_eq!(asked.fetch_offset, Offset(15));
        let payload = batch(15, 20);
        peer.answer(&frame, &response([result(asked, &payload, 35, 100)]), &payload, true)
            .await;
        peer
    };
    let reading = async {
        let mut reader = client.reader(vec![span(5, 25)], ReaderOptions::default());
        let mut bounds = Vec::new();
        while let Some(fetched) = reader.next().await {
            let fetched = fetched.unwrap();
            bounds.push((fetched.base_offset.0, fetched.from.0, fetched.to.0));
        }
        bounds
    };
    let (bounds, _peer) = bounded(async { tokio::join!(reading, server) }).await;
    assert_eq!(bounds, [(0, 5, 10), (10, 10, 15), (15, 15, 25)]);
}

/// What a reader of 0 .. `end` hands out: where each batch's records begin and end.
async fn read_until(client: &Client, end: i64) -> Vec<(i64, i64)> {
    let mut reader = client.reader(vec![span(0, end)], ReaderOptions::default());
    let mut found = Vec::new();
    while let Some(fetched) = reader.next().await {
        let fetched = fetched.unwrap();
        found.push((fetched.from.0, fetched.to.0));
    }
    found
}

/// A FETCH from `from` on, and a large answer to it that says it goes on at `next`.
async fn large_answer(peer: &mut Peer, from: i64, records: usize, next: i64) -> Vec<u8> {
    let (frame, request) = fetch(peer).await;
    let asked = &request.fetch_requests[0];
    assert_eq!(asked.fetch_offset, Offset(from));
    let payload = batch(from, records);
    answer_bytes(
        &frame,
        &response([result(asked, &payload, next, 1_000_000)]),
        &payload,
        true,
    )
}

/// Sends all of an answer but its last byte, which is returned.
async fn nearly_all(peer: &mut Peer, mut answer: Vec<u8>) -> Vec<u8> {
    let last = answer.split_off(answer.len() - 1);
    peer.raw(&answer).await;
    last
}

#[tokio::test]
async fn what_follows_a_large_answer_is_asked_for_while_it_comes_in() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let first = large_answer(&mut peer, 0, 20_000, 20_000).await;
        let last = nearly_all(&mut peer, first).await;
        let second = large_answer(&mut peer, 20_000, 30_000, 50_000).await;
        peer.raw(&last).await;
        peer.raw(&second).await;
        peer
    };
    let (found, mut peer) = bounded(async { tokio::join!(read_until(&client, 40_000), server) }).await;
    assert_eq!(found, [(0, 20_000), (20_000, 40_000)]);
    bounded(client.close()).await;
    while let Some(frame) = bounded(peer.try_frame()).await {
        assert_ne!(frame.opcode, OpCode::FETCH, "nothing is asked for behind the end");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_what_its_header_said_is_read_on_from_where_it_ends() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let first = large_answer(&mut peer, 0, 20_000, 25_000).await;
        let last = nearly_all(&mut peer, first).await;
        let ahead = large_answer(&mut peer, 25_000, 10_000, 35_000).await;
        peer.raw(&last).await;
        peer.raw(&ahead).await;
        let second = large_answer(&mut peer, 20_000, 20_000, 40_000).await;
        peer.raw(&second).await;
        peer
    };
    let (found, _peer) = bounded(async { tokio::join!(read_until(&client, 40_000), server) }).await;
    assert_eq!(found, [(0, 20_000), (20_000, 40_000)]);
}

#[tokio::test]
async fn a_connection_lost_amid_an_answer_takes_what_was_asked_ahead_with_it() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let first = large_answer(&mut peer, 0, 20_000, 20_000).await;
        nearly_all(&mut peer, first).await;
        large_answer(&mut peer, 20_000, 20_000, 40_000).await;
        drop(peer);
        let mut peer = Peer::greeted(&listener).await;
        for from in [0, 20_000] {
            let answer = large_answer(&mut peer, from, 20_000, from + 20_000).await;
            peer.raw(&answer).await;
        }
        peer
    };
    let (found, _peer) = bounded(async { tokio::join!(read_until(&client, 40_000), server) }).await;
    assert_eq!(found, [(0, 20_000), (20_000, 40_000)]);
}

/// What a reader of 0 .. 20 says when the server answers with this.
async fn outcome_of(answer: impl FnOnce(&FetchInfo) -> (FetchResponse, Vec<u8>)) -> sbp_client::ClientError {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = fetch(&mut peer).await;
        let (response, payload) = answer(&request.fetch_requests[0]);
        peer.answer(&frame, &response, &payload, true).await;
        while peer.try_frame().await.is_some() {}
    };
    let reading = async {
        let mut reader = client.reader(vec![span(0, 20)], ReaderOptions::default());
        loop {
            if let Err(error) = reader.next().await.expect("an error comes before the end") {
                break error;
            }
        }
    };
    bounded(async {
        tokio::select! {
            error = reading => error,
            () = server => unreachable!("the connection stays open"),
        }
    })
    .await
}

#[tokio::test]
async fn small_spans_that_come_together_are_handed_out_together() {
    const SPANS: i64 = 200;
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let mut asked = Vec::new();
        let mut left = SPANS;
        while left > 0 {
            let (frame, request) = fetch(&mut peer).await;
            // The third answer leaves its last span without anything: it is asked for again.
            let held = usize::from(asked.len() == 2);
            let answered = &request.fetch_requests[..request.fetch_requests.len() - held];
            let payload = batch(0, 3);
            let results = answered.iter().map(|info| result(info, &payload, 3, 3));
            let nothing = request.fetch_requests.iter().skip(answered.len());
            let results = results.chain(nothing.map(|info| result(info, &[], 0, 3)));
            peer.answer(&frame, &response(results), &payload.repeat(answered.len()), true)
                .await;
            left -= i64::try_from(answered.len()).unwrap();
            asked.push(request.fetch_requests.len());
        }
        (peer, asked)
    };
    let reading = async {
        let spans = (0..SPANS).map(|stream| Span {
            stream: StreamId(stream),
            ..span(0, 3)
        });
        let mut reader = client.reader(spans.collect(), ReaderOptions::default());
        let (mut streams, mut takes) = (Vec::new(), 0);
        while let Some(fetched) = reader.next_many().await {
            streams.extend(
                fetched
                    .unwrap()
                    .iter()
                    .map(|batch| (batch.stream.0, batch.from.0, batch.to.0)),
            );
            takes += 1;
        }
        (streams, takes)
    };
    let ((streams, takes), (_peer, asked)) = bounded(async { tokio::join!(reading, server) }).await;
    assert_eq!(streams, (0..SPANS).map(|stream| (stream, 0, 3)).collect::<Vec<_>>());
    assert_eq!(asked, [64, 64, 64, 9]);
    assert!(
        takes <= 2 * asked.len(),
        "what came together is handed out together: {takes}"
    );
}

#[tokio::test]
async fn a_gap_is_an_error_that_names_the_offset() {
    let error = outcome_of(|asked| {
        let payload = [batch(0, 5), batch(7, 13)].concat();
        (response([result(asked, &payload, 20, 20)]), payload)
    })
    .await;
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Incomplete, Some(Offset(5))));
    assert_eq!(error.stream(), Some(STREAM));
}

#[tokio::test]
async fn an_end_before_the_spans_end_is_an_error() {
    let error = outcome_of(|asked| (response([result(asked, &[], 0, 0)]), Vec::new())).await;
    assert_eq!((error.kind(), error.code()), (ErrorKind::Incomplete, codes::DATA_LOSS));
}

#[tokio::test]
async fn records_that_are_gone_are_named_with_the_bounds() {
    let error = outcome_of(|asked| {
        let status = Status::error(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, "gone");
        (
            response([FetchResult {
                status,
                start_offset: Some(Offset(7)),
                ..result(asked, &[], 7, 30)
            }]),
            Vec::new(),
        )
    })
    .await;
    assert_eq!(
        (error.code(), error.offset()),
        (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, Some(Offset(0)))
    );
    assert!(error.to_string().contains("between 7 and 30"), "{error}");
}

#[tokio::test]
async fn lengths_that_do_not_add_up_break_the_protocol() {
    for surplus in [-16, 16] {
        let error = outcome_of(|asked| {
            let payload = batch(0, 20);
            let mut told = result(asked, &payload, 20, 20);
            told.batch_length += surplus;
            (response([told]), payload)
        })
        .await;
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Protocol, codes::PROTOCOL_VIOLATION)
        );
    }
}

#[tokio::test]
async fn a_peer_without_bounds_in_fetch_is_refused_and_not_guessed_at() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::accept(&listener).await;
        peer.greet(&[("names", "1")]).await;
        assert!(peer.try_frame().await.is_none(), "no FETCH is sent");
    };
    let reading = async {
        let error = client
            .reader(vec![span(0, 20)], ReaderOptions::default())
            .next()
            .await
            .unwrap()
            .unwrap_err();
        client.close().await;
        error
    };
    let (error, ()) = bounded(async { tokio::join!(reading, server) }).await;
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Unsupported, codes::FEATURE_NOT_OFFERED)
    );
}

#[tokio::test]
async fn a_tail_asks_again_only_for_what_was_answered() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (first, request) = fetch(&mut peer).await;
        let asked: Vec<_> = request.fetch_requests.iter().map(|info| info.stream_id.0).collect();
        assert_eq!(asked, [1, 2, 3]);
        assert!(request.min_bytes > 0 && request.max_wait_ms > 0);
        // Two of three, in one frame that is not the last.
        let payload = [batch(0, 1), batch(0, 2)].concat();
        let length = batch(0, 1).len();
        let results = [
            result(&request.fetch_requests[2], &payload[..length], 1, 1),
            result(&request.fetch_requests[0], &payload[length..], 2, 2),
        ];
        peer.answer(&first, &response(results), &payload, false).await;
        let (second, again) = fetch(&mut peer).await;
        let mut asked: Vec<_> = again
            .fetch_requests
            .iter()
            .map(|info| (info.stream_id.0, info.fetch_offset.0))
            .collect();
        asked.sort_unstable();
        assert_eq!(asked, [(1, 2), (3, 1)]);
        assert_ne!(first.call_id, second.call_id);
        // The one that waited is answered under the first number; its end brings nothing for the others.
        let payload = batch(0, 3);
        let last = result(&request.fetch_requests[1], &payload, 3, 3);
        peer.answer(&first, &response([last]), &payload, true).await;
        let (_, third) = fetch(&mut peer).await;
        assert_eq!(third.fetch_requests.len(), 1);
        assert_eq!(
            (third.fetch_requests[0].stream_id, third.fetch_requests[0].fetch_offset),
            (StreamId(2), Offset(3))
        );
        peer
    };
    let following = async {
        let streams: Vec<_> = (1..=3).map(|id| (StreamId(id), Position::At(Offset(0)))).collect();
        let mut tail = client.tail(&streams, TailOptions::default()).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let fetched = tail.next().await.unwrap().unwrap();
            seen.push((fetched.stream.0, fetched.len()));
        }
        (seen, tail)
    };
    let ((seen, _tail), _peer) = bounded(async { tokio::join!(following, server) }).await;
    assert_eq!(seen, [(3, 1), (1, 2), (2, 3)]);
}

#[tokio::test]
async fn no_more_is_asked_for_than_there_is_memory_set_aside() {
    let (listener, address) = listener().await;
    let mut config = sbp_client::ClientConfig::new(&address).unwrap();
    config.receive_credit = 1 << 20;
    config.batch_max_bytes = 256 << 10;
    let client = Client::new(config, tokio::runtime::Handle::current());
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = fetch(&mut peer).await;
        assert_eq!(request.max_bytes, 1 << 20);
        assert!(
            request
                .fetch_requests
                .iter()
                .all(|info| info.batch_max_bytes == 256 << 10)
        );
        // All that was asked for is spent on the front span and is not taken by its consumer.
        let mut payload = Vec::new();
        let mut next = 0;
        while payload.len() < 1 << 20 {
            payload.extend(batch(next, 1_000));
            next += 1_000;
        }
        let answer = response([result(&request.fetch_requests[0], &payload, next, 1_000_000)]);
        peer.answer(&frame, &answer, &payload, true).await;
        let early = tokio::time::timeout(Duration::from_millis(200), peer.try_frame()).await;
        assert!(early.is_err(), "nothing is asked for while nothing is free");
        peer
    };
    let spans: Vec<_> = (0..8).map(|_| span(0, 1_000_000)).collect();
    let mut reader = client.reader(spans, ReaderOptions::default());
    let mut peer = bounded(server).await;
    // Taking everything that arrived returns the credit.
    let taken = bounded(reader.next_many()).await.unwrap().unwrap();
    assert!(!taken.is_empty());
    let wait_for_more = tokio::spawn(async move { reader.next_many().await });
    let (_, request) = bounded(fetch(&mut peer)).await;
    assert_eq!(request.fetch_requests[0].fetch_offset, taken.last().unwrap().to);
    drop(peer);
    wait_for_more.abort();
}

#[tokio::test]
async fn a_pause_that_the_answer_to_one_fetch_asks_for_is_kept() {
    const PAUSE: Duration = Duration::from_secs(1);
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (first, request) = fetch(&mut peer).await;
        let answer = FetchResponse {
            throttle_time_ms: 1_000,
            ..response([result(&request.fetch_requests[0], &[], 0, 0)])
        };
        peer.answer(&first, &answer, &[], true).await;
        let answered_at = Instant::now();
        let (second, _) = fetch(&mut peer).await;
        let waited = answered_at.elapsed();
        peer.answer(&second, &answer, &[], true).await;
        (peer, waited)
    };
    let entry = FetchEntry {
        stream: STREAM,
        from: Position::At(Offset(0)),
        end: None,
        batch_max_bytes: 0,
    };
    let fetches = async {
        for _ in 0..2 {
            client.fetch_one(entry, FetchOptions::default()).await.unwrap();
        }
    };
    let ((), (_peer, waited)) = bounded(async { tokio::join!(fetches, server) }).await;
    assert!(waited >= PAUSE, "{waited:?}");
}
