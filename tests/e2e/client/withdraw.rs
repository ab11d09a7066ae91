//! FETCHes that nobody waits for any more are taken back from the server.

use std::time::Duration;

use sbp_client::{AppendOptions, Client, FetchEntry, FetchOptions, Position, Tail, TailOptions};
use sbp_e2e::clients::{client_with, stream};
use sbp_e2e::scripted::{Peer, listener};
use sbp_e2e::servers::quick_anywhere;
use sbp_e2e::wait::{LIMIT, bounded, bounded_by};
use sbp_frame::{Frame, OpCode};
use sbp_messages::{FetchRequest, FetchResponse, Message};
use sbp_types::{Offset, StreamId};

/// Longer than any test: what is still asked for at the end of one was not taken back.
const LONG: Duration = Duration::from_secs(60);

fn patient(servers: &str) -> Client {
    client_with(servers, |config| config.tail_wait = LONG)
}

async fn tail(client: &Client, stream: StreamId) -> Tail {
    let from = [(stream, Position::At(Offset(0)))];
    client.tail(&from, TailOptions::default()).await.unwrap()
}

/// Waits until so many requests of a client are with its server.
async fn asked(client: &Client, requests: u64) {
    let look = async {
        while client.stats().in_flight != requests {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    bounded(look).await;
}

/// By default a server lets 256 FETCHes of a connection wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thousand_tails_of_an_idle_stream_are_closed_and_none_is_refused() {
    let server = quick_anywhere();
    let client = patient(server.address());
    let stream = stream(&client).await;
    let opening_and_closing = async {
        for _ in 0..10 {
            let mut tails = Vec::new();
            for _ in 0..100 {
                tails.push(tail(&client, stream).await);
            }
            asked(&client, 100).await;
            drop(tails);
            asked(&client, 0).await;
        }
        // Closed before their FETCHes are on their way, or just when they are.
        for _ in 0..100 {
            drop(tail(&client, stream).await);
        }
        asked(&client, 0).await;
    };
    bounded_by(LIMIT, opening_and_closing).await;
    let mut last = tail(&client, stream).await;
    asked(&client, 1).await;
    let options = AppendOptions::default();
    client.append(stream, b"x".as_slice(), &options).await.unwrap();
    assert_eq!(bounded(last.next()).await.unwrap().unwrap().to, Offset(1));
    assert_eq!((server.stats().refusals, client.stats().connections), (0, 1));
    drop(last);
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_fetch_that_is_not_awaited_any_more_is_withdrawn() {
    let server = quick_anywhere();
    let client = patient(server.address());
    let stream = stream(&client).await;
    let entry = FetchEntry {
        stream,
        from: Position::At(Offset(0)),
        end: None,
        batch_max_bytes: 0,
    };
    let options = FetchOptions {
        max_wait: LONG,
        min_bytes: 1,
        ..FetchOptions::default()
    };
    for _ in 0..300 {
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.fetch_one(entry, options).await.map(drop) }
        });
        asked(&client, 1).await;
        waiting.abort();
        assert!(bounded(waiting).await.unwrap_err().is_cancelled());
        asked(&client, 0).await;
    }
    assert_eq!(server.stats().refusals, 0);
    client.close().await;
    server.shutdown().unwrap();
}

/// What a server with these features gets after a tail was closed whose FETCH waits, up to the PING behind that: the
/// FETCH of the tail, and what came between.
async fn after_closing(features: &[(&str, &str)]) -> (Frame, Vec<Frame>, Peer) {
    let (listener, address) = listener().await;
    let client = patient(&address);
    let serving = async {
        let mut peer = Peer::accept(&listener).await;
        peer.greet(features).await;
        let waiting = peer.frame().await;
        (peer, waiting)
    };
    let (tail, (mut peer, waiting)) = bounded(async { tokio::join!(tail(&client, StreamId(3)), serving) }).await;
    drop(tail);
    // There is one thread: the task of the tail ends before anything else is posted.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let pinging = tokio::spawn(async move { client.ping(None).await });
    let mut between = Vec::new();
    let ping = async {
        loop {
            let frame = peer.frame().await;
            if frame.opcode == OpCode::PING {
                return;
            }
            between.push(frame);
        }
    };
    bounded(ping).await;
    pinging.abort();
    (waiting, between, peer)
}

#[tokio::test]
async fn a_server_that_offers_it_is_told_once_and_any_other_is_not() {
    let plain = [("names", "1"), ("bounded-fetch", "1")];
    let (_, between, _peer) = after_closing(&plain).await;
    assert!(between.is_empty(), "{between:?}");
    let ours = [("names", "1"), ("bounded-fetch", "1"), ("withdraw", "1")];
    let (waiting, between, mut peer) = after_closing(&ours).await;
    let [withdrawal] = between.as_slice() else {
        panic!("{between:?}");
    };
    assert_eq!(withdrawal.opcode, OpCode::FETCH);
    let request = FetchRequest::decode(&withdrawal.header).unwrap();
    assert_eq!(request, FetchRequest::withdrawal(waiting.call_id.raw()));
    // A late answer with data does no harm, nor does one that comes behind that of the withdrawal.
    peer.answer(withdrawal, &FetchResponse::default(), &[], true).await;
    peer.answer(&waiting, &FetchResponse::default(), &[], true).await;
}
