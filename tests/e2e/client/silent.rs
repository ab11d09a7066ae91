//! Servers that say nothing for longer than an attempt may take, and what is done without them.

use std::time::Duration;

use sbp_client::{ErrorKind, WriterOptions};
use sbp_e2e::scripted::{Peer, client, listener, stored};
use sbp_e2e::wait::bounded;
use sbp_messages::{ErrorCode, Status};
use sbp_types::Offset;

use crate::routing::{STREAM, at_server, list, quick};

/// A client that knows from `home` that the stream is at a server, which says nothing to it until an append's time is over;
/// `greets` says whether that answers HEARTBEAT. The next append goes to where the stream is then.
async fn append_past_a_silent_server(greets: bool) {
    let (home, address) = listener().await;
    let (silent, silent_address) = listener().await;
    let (other, other_address) = listener().await;
    let client = client(&address);
    let at_first = silent_address.clone();
    let servers = async {
        let mut placement = Peer::greeted(&home).await;
        for (server, address) in [(1, &at_first), (2, &other_address)] {
            // It does not take appends itself.
            let (frame, _) = placement.append().await;
            let status = Status::error(ErrorCode::UNSUPPORTED_OPERATION, "a placement driver");
            placement.refuse(&frame, status).await;
            let frame = placement.frame().await;
            list(&mut placement, &frame, |stream| {
                vec![at_server(stream, 0, -1, server, address)]
            })
            .await;
        }
        placement
    };
    let first = async {
        let mut peer = Peer::accept(&silent).await;
        if greets {
            peer.greet(&[]).await;
            peer.append().await;
        }
        peer
    };
    let second = async {
        let mut peer = Peer::greeted(&other).await;
        let (frame, append) = peer.append().await;
        peer.answer(&frame, &stored(&append, 4), &[], true).await;
        peer
    };
    let appends = async {
        let error = client.append(STREAM, vec![1], &quick(400)).await.unwrap_err();
        (error, client.append(STREAM, vec![2], &quick(10_000)).await.unwrap())
    };
    let ((error, ack), ..) = bounded(async { tokio::join!(appends, servers, first, second) }).await;
    let kind = if greets {
        ErrorKind::Indeterminate
    } else {
        ErrorKind::TimedOut
    };
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(ack.base_offset, Some(Offset(4)));
}

#[tokio::test]
async fn a_writer_asks_again_where_its_stream_is_while_the_server_that_it_was_sent_to_is_silent() {
    let (home, address) = listener().await;
    let (silent, silent_address) = listener().await;
    let (other, other_address) = listener().await;
    let client = client(&address);
    let greeting = [("idempotence", "64"), ("max-calls", "64")];
    let servers = async {
        let mut placement = Peer::accept(&home).await;
        placement.greet(&greeting).await;
        let (frame, _) = placement.append().await;
        let status = Status::error(ErrorCode::UNSUPPORTED_OPERATION, "a placement driver");
        placement.refuse(&frame, status).await;
        // When it is asked for the second time, nobody has taken over yet.
        for (server, address) in [(1, &silent_address), (1, &silent_address), (2, &other_address)] {
            let frame = placement.frame().await;
            list(&mut placement, &frame, |stream| {
                vec![at_server(stream, 0, -1, server, address)]
            })
            .await;
        }
        placement
    };
    let stopped = async {
        let mut peer = Peer::accept(&silent).await;
        peer.greet(&greeting).await;
        peer.append().await;
        // Whoever connects now is not greeted.
        (peer, Peer::accept(&silent).await)
    };
    let next = async {
        let mut peer = Peer::accept(&other).await;
        peer.greet(&greeting).await;
        let (frame, append) = peer.append().await;
        peer.answer(&frame, &stored(&append, 4), &[], true).await;
        peer
    };
    let options = WriterOptions {
        attempt_timeout: Duration::from_millis(200),
        ..WriterOptions::default()
    };
    let writer = client.writer(STREAM, options);
    let (ack, ..) = bounded(async { tokio::join!(writer.append(vec![1]), servers, stopped, next) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(4)));
}

#[tokio::test]
async fn behind_an_append_whose_time_is_over_it_is_asked_where_the_stream_is() {
    append_past_a_silent_server(true).await;
}

#[tokio::test]
async fn behind_an_append_that_never_left_it_is_asked_where_the_stream_is() {
    append_past_a_silent_server(false).await;
}
