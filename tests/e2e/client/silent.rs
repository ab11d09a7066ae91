//! Servers that say nothing for longer than an attempt may take, and what is done without them.

use std::time::{Duration, Instant};

use sbp_client::{ErrorKind, WriterOptions};
use sbp_e2e::scripted::{Peer, client, listener, stored};
use sbp_e2e::wait::bounded;
use sbp_frame::OpCode;
use sbp_messages::{ErrorCode, Range, Status};
use sbp_types::{Offset, StreamId};

use crate::routing::{STREAM, at_server, list, nobody_came, not_leader, quick};

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

/// A range that two servers hold, of which the first takes the appends.
fn at_two_servers(stream: StreamId, servers: [(i32, &str); 2]) -> Range {
    let [(server, address), (follower, its_address)] = servers;
    let mut range = at_server(stream, 0, -1, server, address);
    let mut copies = at_server(stream, 0, -1, follower, its_address).servers;
    copies.iter_mut().for_each(|copy| copy.is_primary = false);
    range.servers.extend(copies);
    range
}

#[tokio::test]
async fn an_append_to_a_silent_server_is_in_doubt_long_before_its_time_is_over_where_others_have_the_stream() {
    let (home, address) = listener().await;
    let (silent, silent_address) = listener().await;
    let (other, other_address) = listener().await;
    let client = client(&address);
    let servers = async {
        let mut placement = Peer::greeted(&home).await;
        let (frame, _) = placement.append().await;
        let status = Status::error(ErrorCode::UNSUPPORTED_OPERATION, "a placement driver");
        placement.refuse(&frame, status).await;
        let frame = placement.frame().await;
        let at_first = [(1, silent_address.as_str()), (2, other_address.as_str())];
        list(&mut placement, &frame, |stream| vec![at_two_servers(stream, at_first)]).await;
        // Forgotten: the next append is asked for at home again.
        let (frame, _) = placement.append().await;
        let status = Status::error(ErrorCode::UNSUPPORTED_OPERATION, "a placement driver");
        placement.refuse(&frame, status).await;
        // Nobody has taken over yet: it is asked again, and nothing goes to the silent one meanwhile.
        for _not_yet in 0..2 {
            let frame = placement.frame().await;
            list(&mut placement, &frame, |stream| vec![at_two_servers(stream, at_first)]).await;
        }
        let frame = placement.frame().await;
        let then = [(2, other_address.as_str()), (1, silent_address.as_str())];
        list(&mut placement, &frame, |stream| vec![at_two_servers(stream, then)]).await;
        placement
    };
    let first = async {
        let mut peer = Peer::greeted(&silent).await;
        peer.append().await;
        let asked = peer.frame().await;
        assert_eq!(asked.opcode, OpCode::PING, "a sign of life is asked for");
        peer
    };
    let second = async {
        let mut peer = Peer::greeted(&other).await;
        let (frame, append) = peer.append().await;
        peer.answer(&frame, &stored(&append, 4), &[], true).await;
        peer
    };
    let appends = async {
        let begun = Instant::now();
        let error = client.append(STREAM, vec![1], &quick(60_000)).await.unwrap_err();
        let took = begun.elapsed();
        (
            error,
            took,
            client.append(STREAM, vec![2], &quick(10_000)).await.unwrap(),
        )
    };
    let ((error, took, ack), ..) = bounded(async { tokio::join!(appends, servers, first, second) }).await;
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(ack.base_offset, Some(Offset(4)));
    assert!(nobody_came(silent));
}

#[tokio::test]
async fn a_fresh_client_whose_first_server_is_silent_goes_to_the_next_one() {
    let (silent, silent_address) = listener().await;
    let (other, other_address) = listener().await;
    let client = client(&format!("{silent_address},{other_address}"));
    let first = Peer::accept(&silent);
    let second = async {
        let mut peer = Peer::greeted(&other).await;
        let (frame, append) = peer.append().await;
        peer.answer(&frame, &stored(&append, 4), &[], true).await;
        peer
    };
    let options = quick(10_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, ..) = bounded(async { tokio::join!(append, first, second) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(4)));
}

#[tokio::test]
async fn a_leader_that_was_silent_is_not_asked_again_while_others_still_name_it() {
    let (silent, silent_address) = listener().await;
    let (other, other_address) = listener().await;
    let client = client(&format!("{silent_address},{other_address}"));
    let first = async {
        let mut peer = Peer::greeted(&silent).await;
        let frame = peer.frame().await;
        assert_eq!(frame.opcode, OpCode::LIST_RANGES);
        peer
    };
    // Its lease has not ended yet when the client comes here.
    let second = async {
        for _names_it in 0..3 {
            let mut peer = Peer::greeted(&other).await;
            let frame = peer.frame().await;
            peer.refuse(&frame, not_leader(&silent_address)).await;
        }
        let mut peer = Peer::greeted(&other).await;
        let frame = peer.frame().await;
        list(&mut peer, &frame, |stream| {
            vec![at_server(stream, 0, -1, 2, &other_address)]
        })
        .await;
        peer
    };
    let asked = client.list_ranges(STREAM, None);
    let (ranges, _first, _second) = bounded(async { tokio::join!(asked, first, second) }).await;
    assert_eq!(ranges.unwrap().len(), 1);
    assert!(nobody_came(silent), "neither is it dialled because it was named first");
}

#[tokio::test]
async fn where_there_is_nobody_else_a_silent_server_is_waited_for() {
    let (only, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&only).await;
        let (frame, append) = peer.append().await;
        // As a process that was stopped for longer than others are waited for.
        tokio::time::sleep(Duration::from_secs(5)).await;
        peer.answer(&frame, &stored(&append, 4), &[], true).await;
        peer
    };
    let options = quick(10_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(4)));
}
