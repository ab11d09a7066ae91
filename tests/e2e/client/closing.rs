//! Connections that are replaced, servers that fall silent, and clients that are closed meanwhile.

use std::time::Duration;

use sbp_client::{AppendOptions, Client, ErrorKind, Position, TailOptions, Writer, WriterOptions};
use sbp_e2e::clients::client_with;
use sbp_e2e::scripted::{Peer, listener, stored};
use sbp_e2e::wait::{PATIENCE, bounded};
use sbp_frame::{Frame, OpCode};
use sbp_messages::{AppendRequest, ErrorCode, Message, Status};
use sbp_types::{Offset, StreamId};
use tokio::net::TcpListener;

const STREAM: StreamId = StreamId(3);
/// What a server of ours offers, as far as these tests need it.
const OURS: [(&str, &str); 4] = [
    ("names", "1"),
    ("bounded-fetch", "1"),
    ("idempotence", "64"),
    ("durability", "fsync"),
];

/// A client that gives a server 100 ms to answer its HEARTBEAT.
fn impatient(servers: &str) -> Client {
    client_with(servers, |config| {
        config.timeout = Duration::from_secs(10);
        config.connect_timeout = Duration::from_millis(100);
        config.retry.backoff_max = Duration::from_millis(50);
    })
}

/// A writer that gives an attempt 100 ms.
fn writer(client: &Client) -> Writer {
    let options = WriterOptions {
        timeout: Duration::from_secs(10),
        attempt_timeout: Duration::from_millis(100),
        ..WriterOptions::default()
    };
    client.writer(STREAM, options)
}

async fn ours(listener: &TcpListener) -> Peer {
    let mut peer = Peer::accept(listener).await;
    peer.greet(&OURS).await;
    peer
}

/// The next APPEND; HEARTBEATs and PINGs before it are left without an answer.
async fn append(peer: &mut Peer) -> (Frame, AppendRequest) {
    let frame = peer.frame().await;
    assert_eq!(frame.opcode, OpCode::APPEND);
    let request = AppendRequest::decode(&frame.header).unwrap();
    (frame, request)
}

/// Waits for the end of a connection, whatever comes before it.
async fn gone(peer: &mut Peer) {
    while peer.try_frame().await.is_some() {}
}

#[tokio::test]
async fn a_connection_that_was_replaced_ends_when_it_is_idle_and_close_returns() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let writer = writer(&client);
    let server = async {
        let mut stalled = ours(&listener).await;
        append(&mut stalled).await;
        let mut next = ours(&listener).await;
        let (frame, request) = append(&mut next).await;
        next.answer(&frame, &stored(&request, 0), &[], true).await;
        // The client is still open: the stalled connection ends by itself.
        gone(&mut stalled).await;
        next
    };
    let (ack, _next) = bounded(async { tokio::join!(writer.append(vec![1]), server) }).await;
    ack.unwrap();
    bounded(client.close()).await;
}

#[tokio::test]
async fn close_reaches_connections_that_were_replaced_and_still_wait_for_answers() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let writer = writer(&client);
    let reading = {
        let client = client.clone();
        tokio::spawn(async move {
            let from = [(STREAM, Position::At(Offset(0)))];
            let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
            drop(tail.next().await);
        })
    };
    let server = async {
        let mut stalled = ours(&listener).await;
        // The FETCH of the tail stays without an answer, for a minute if it must be; so does the append.
        let (mut fetches, mut appends) = (0, 0);
        while fetches == 0 || appends == 0 {
            match stalled.frame().await.opcode {
                OpCode::FETCH => fetches += 1,
                OpCode::APPEND => appends += 1,
                other => panic!("unexpected {other:?}"),
            }
        }
        let mut next = ours(&listener).await;
        loop {
            let frame = next.frame().await;
            if frame.opcode == OpCode::APPEND {
                let request = AppendRequest::decode(&frame.header).unwrap();
                next.answer(&frame, &stored(&request, 0), &[], true).await;
                break (stalled, next);
            }
        }
    };
    let (ack, (mut stalled, _next)) = bounded(async { tokio::join!(writer.append(vec![1]), server) }).await;
    ack.unwrap();
    bounded(async { tokio::join!(client.close(), gone(&mut stalled)) }).await;
    bounded(reading).await.unwrap();
}

/// On one thread, so that the runner finds both at once: the socket that was dialled, and that the client is closed.
#[tokio::test]
async fn close_while_dialling_returns() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let taker = listener.try_clone().unwrap();
    let (sender, connected) = std::sync::mpsc::channel();
    // Keeps each connection open until the client ends it. Ends with the test's process.
    std::thread::spawn(move || {
        for mut socket in taker.incoming().flatten() {
            // The test may be over.
            let _ = sender.send(());
            std::thread::spawn(move || std::io::copy(&mut socket, &mut std::io::sink()));
        }
    });
    for round in 0..48 {
        let client = impatient(&address);
        let ping = tokio::spawn({
            let client = client.clone();
            async move { drop(client.ping(None).await) }
        });
        // The ping is posted, which starts a runner; the runner begins to connect.
        for _ in 0..round % 3 {
            tokio::task::yield_now().await;
        }
        if round % 3 == 2 {
            // The kernel connects, and nobody looks.
            connected
                .recv_timeout(PATIENCE)
                .expect("the runner has begun to connect");
        }
        // The runtime learns of it, and goes on here before it wakes the runner.
        tokio::task::yield_now().await;
        bounded(client.close()).await;
        bounded(ping).await.unwrap();
    }
    drop(listener);
}

/// The same by chance, at every moment of a connection's beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_at_any_moment_returns() {
    let rounds = std::env::var("SBP_CLOSE_ROUNDS").map_or(300, |rounds| rounds.parse().unwrap());
    let (listener, address) = listener().await;
    let server = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            // Kept open until the client ends it.
            tokio::spawn(async move { tokio::io::copy(&mut socket, &mut tokio::io::sink()).await });
        }
    });
    for round in 0..rounds {
        let client = impatient(&address);
        let ping = tokio::spawn({
            let client = client.clone();
            async move { drop(client.ping(None).await) }
        });
        let until = std::time::Instant::now() + Duration::from_micros(round % 400);
        while std::time::Instant::now() < until {
            tokio::task::yield_now().await;
        }
        bounded(client.close()).await;
        bounded(ping).await.unwrap();
    }
    server.abort();
}

#[tokio::test]
async fn a_server_that_answered_heartbeat_once_and_falls_silent_is_asked_again() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let writer = writer(&client);
    let server = async {
        let mut stalled = ours(&listener).await;
        append(&mut stalled).await;
        // Two more connections on which the server says nothing, as one that is paused.
        let silent = [Peer::accept(&listener).await, Peer::accept(&listener).await];
        let mut next = ours(&listener).await;
        let (frame, request) = append(&mut next).await;
        next.answer(&frame, &stored(&request, 0), &[], true).await;
        (stalled, silent, next)
    };
    let (ack, _peers) = bounded(async { tokio::join!(writer.append(vec![1]), server) }).await;
    ack.unwrap();
    bounded(client.close()).await;
}

#[tokio::test]
async fn a_server_that_never_said_anything_is_not_taken_for_one_without_features() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let writer = writer(&client);
    let server = async {
        let silent = Peer::accept(&listener).await;
        let mut next = ours(&listener).await;
        let (frame, request) = append(&mut next).await;
        next.answer(&frame, &stored(&request, 0), &[], true).await;
        (silent, next)
    };
    let (ack, _peers) = bounded(async { tokio::join!(writer.append(vec![1]), server) }).await;
    ack.unwrap();
}

#[tokio::test]
async fn a_heartbeat_that_is_refused_for_the_moment_is_asked_again() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let writer = writer(&client);
    let server = async {
        let mut leaving = Peer::accept(&listener).await;
        let hello = leaving.frame().await;
        let status = Status::error(ErrorCode::SHUTTING_DOWN, "the server shuts down");
        leaving.refuse(&hello, status).await;
        let mut next = ours(&listener).await;
        let (frame, request) = append(&mut next).await;
        next.answer(&frame, &stored(&request, 0), &[], true).await;
        gone(&mut leaving).await;
        next
    };
    let (ack, _next) = bounded(async { tokio::join!(writer.append(vec![1]), server) }).await;
    ack.unwrap();
}

/// A connection whose HEARTBEAT gets no answer, until its client sends a PING, which gets one.
async fn answers_ping_alone(listener: &TcpListener) -> Peer {
    let mut peer = Peer::accept(listener).await;
    assert_eq!(peer.frame().await.opcode, OpCode::HEARTBEAT);
    let ping = peer.frame().await;
    assert_eq!(ping.opcode, OpCode::PING);
    peer.pong(&ping).await;
    peer
}

#[tokio::test]
async fn a_server_whose_answer_to_heartbeat_is_lost_is_not_taken_for_one_without_features() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let writer = writer(&client);
    let server = async {
        // Its client's own PING is answered, so that frames have come when the HEARTBEAT is overdue.
        let mut lost = answers_ping_alone(&listener).await;
        // As a server does that was stopped for longer than its client waits for the answer.
        let mut late = answers_ping_alone(&listener).await;
        let mut next = ours(&listener).await;
        let (frame, request) = append(&mut next).await;
        next.answer(&frame, &stored(&request, 0), &[], true).await;
        gone(&mut lost).await;
        gone(&mut late).await;
        next
    };
    let ping = async {
        client.ping(None).await.unwrap();
        writer.append(vec![1]).await
    };
    let (ack, _next) = bounded(async { tokio::join!(ping, server) }).await;
    ack.unwrap();
}

#[tokio::test]
async fn a_plain_peer_that_discards_heartbeats_is_known_by_its_answers_to_ping() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let server = async {
        for _ in 0..2 {
            gone(&mut answers_ping_alone(&listener).await).await;
        }
        let mut plain = answers_ping_alone(&listener).await;
        let (frame, request) = append(&mut plain).await;
        plain.answer(&frame, &stored(&request, 5), &[], true).await;
        plain
    };
    let options = AppendOptions::default();
    let (ack, _plain) = bounded(async { tokio::join!(client.append(STREAM, vec![1], &options), server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(5)));
}

#[tokio::test]
async fn what_may_be_stored_stays_in_doubt_whatever_the_last_attempt_failed_of() {
    let (listener, address) = listener().await;
    let client = impatient(&address);
    let writer = writer(&client);
    let server = async {
        let mut stalled = ours(&listener).await;
        append(&mut stalled).await;
        // Another server took the address over: one that knows no writers.
        let mut other = Peer::accept(&listener).await;
        other.greet(&[("names", "1")]).await;
        (stalled, other)
    };
    let (outcome, _peers) = bounded(async { tokio::join!(writer.append(vec![1]), server) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(
        !error.is_retriable() && error.to_string().contains("idempotence"),
        "{error}"
    );
}
