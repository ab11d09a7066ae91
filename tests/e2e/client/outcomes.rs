//! What callers are told when a server answers, refuses, misbehaves or vanishes.

use std::time::Duration;

use sbp_client::codes;
use sbp_client::{AppendOptions, Client, ClientConfig, Durability, ErrorKind};
use sbp_e2e::scripted::{Peer, client, entry_refused, listener, stored};
use sbp_e2e::wait::{PATIENCE, bounded};
use sbp_frame::{CallId, OpCode};
use sbp_messages::{ErrorCode, HeartbeatResponse, Status, SystemErrorResponse};
use sbp_types::{Offset, StreamId};

const STREAM: StreamId = StreamId(3);

fn quick(timeout_ms: u64) -> AppendOptions {
    AppendOptions {
        timeout: Some(Duration::from_millis(timeout_ms)),
        ..AppendOptions::default()
    }
}

#[tokio::test]
async fn an_acknowledgement_says_where_and_how_durably() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        assert_eq!(request.append_requests[0].stream_id, STREAM);
        assert!(request.timeout_ms > 0 && request.timeout_ms <= 10_000);
        peer.answer(&frame, &stored(&request, 41), &[], true).await;
        peer
    };
    let options = AppendOptions::default();
    let append = client.append(STREAM, vec![1, 2, 3], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let ack = ack.unwrap();
    assert_eq!(
        (ack.stream, ack.base_offset, ack.last_offset()),
        (STREAM, Some(Offset(41)), Some(Offset(41)))
    );
    assert_eq!(ack.durability, Durability::Fsync);
}

#[tokio::test]
async fn a_refusal_is_definite_and_names_code_stream_and_server() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        let status = Status::error(ErrorCode::NOT_FOUND, "stream 3 does not exist");
        peer.answer(&frame, &entry_refused(&request, status), &[], true).await;
        let (frame, _) = peer.append().await;
        peer.refuse(&frame, Status::error(ErrorCode::INVALID_REQUEST, "no"))
            .await;
        peer
    };
    let appends = async {
        let first = client.append(STREAM, vec![1], &quick(5_000)).await.unwrap_err();
        let second = client.append(STREAM, vec![1], &quick(5_000)).await.unwrap_err();
        (first, second)
    };
    let ((first, second), _peer) = bounded(async { tokio::join!(appends, server) }).await;
    assert_eq!(
        (first.kind(), first.code(), first.stream()),
        (ErrorKind::Rejected, ErrorCode::NOT_FOUND, Some(STREAM))
    );
    assert_eq!(first.endpoint(), Some(address.as_str()));
    assert!(!first.is_indeterminate() && !first.is_retriable());
    assert!(first.to_string().contains("stream 3 does not exist"), "{first}");
    assert_eq!(
        (second.kind(), second.code()),
        (ErrorKind::Rejected, ErrorCode::INVALID_REQUEST)
    );
}

#[tokio::test]
async fn a_connection_lost_after_the_append_was_sent_leaves_it_indeterminate() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        peer.append().await;
    };
    let options = quick(5_000);
    let append = client.append(STREAM, vec![1], &options);
    let (outcome, ()) = bounded(async { tokio::join!(append, server) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Indeterminate, codes::CONNECTION_LOST)
    );
    assert_eq!((error.stream(), error.attempts()), (Some(STREAM), 1));
}

#[tokio::test]
async fn a_deadline_after_sending_is_indeterminate() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        peer.append().await;
        peer
    };
    let options = quick(100);
    let append = client.append(STREAM, vec![1], &options);
    let (outcome, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Indeterminate, codes::DEADLINE_AFTER_SEND)
    );
    assert!(error.is_timeout());
}

#[tokio::test]
async fn a_deadline_while_the_append_waits_its_turn_is_definite() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::accept(&listener).await;
        // Once for the connection itself, once because the test connects first.
        peer.greet(&[("max-calls", "1")]).await;
        peer.greet(&[("max-calls", "1")]).await;
        // The first is never answered, so the second never gets its turn.
        let (_, request) = peer.append().await;
        assert_eq!(request.append_requests[0].stream_id, StreamId(1));
        peer
    };
    let appends = async {
        client.connect(None).await.unwrap();
        let options = quick(4_000);
        let first = client.append(StreamId(1), vec![1], &options);
        let late = quick(150);
        let second = client.append(StreamId(2), vec![2], &late);
        tokio::pin!(first);
        tokio::select! {
            biased;
            _ = &mut first => panic!("nobody answers the first append"),
            outcome = second => outcome,
        }
    };
    let connect_then = async {
        let mut peer = server.await;
        assert!(
            tokio::time::timeout(Duration::from_millis(300), peer.try_frame())
                .await
                .is_err(),
            "the second append must not be sent"
        );
    };
    let (outcome, ()) = bounded(async { tokio::join!(appends, connect_then) }).await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND)
    );
    assert!(error.is_timeout() && !error.is_indeterminate());
}

#[tokio::test]
async fn an_append_the_peer_did_not_start_goes_first_on_the_next_connection() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut old = Peer::greeted(&listener).await;
        let (first, first_request) = old.append().await;
        let (_, second_request) = old.append().await;
        assert_eq!(second_request.append_requests[0].stream_id, StreamId(2));
        // Only the first was started; its answer comes after the announcement.
        old.go_away(first.call_id).await;
        old.answer(&first, &stored(&first_request, 10), &[], true).await;
        let mut new = Peer::greeted(&listener).await;
        let (frame, request) = new.append().await;
        assert_eq!(request.append_requests[0].stream_id, StreamId(2));
        new.answer(&frame, &stored(&request, 20), &[], true).await;
        (old, new)
    };
    let options = quick(8_000);
    let first = client.append(StreamId(1), vec![1], &options);
    let second = client.append(StreamId(2), vec![2], &options);
    let (first, second, _peers) = bounded(async { tokio::join!(first, second, server) }).await;
    assert_eq!(
        (first.unwrap().base_offset, second.unwrap().base_offset),
        (Some(Offset(10)), Some(Offset(20)))
    );
}

#[tokio::test]
async fn appends_wait_for_those_on_the_old_connection() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut old = Peer::greeted(&listener).await;
        let (first, first_request) = old.append().await;
        old.go_away(first.call_id).await;
        // Submitted only now; must not be sent before the first append is over.
        let second = tokio::spawn({
            let client = client.clone();
            async move { client.append(STREAM, vec![2], &quick(8_000)).await }
        });
        let early = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
        if let Ok(accepted) = early {
            panic!("nothing is to be sent yet, but {:?} connected", accepted.unwrap().1);
        }
        old.answer(&first, &stored(&first_request, 10), &[], true).await;
        let mut new = Peer::greeted(&listener).await;
        let (frame, request) = new.append().await;
        new.answer(&frame, &stored(&request, 11), &[], true).await;
        second.await.unwrap().unwrap()
    };
    let first_options = quick(8_000);
    let first = client.append(STREAM, vec![1], &first_options);
    let (first, second) = bounded(async { tokio::join!(first, server) }).await;
    assert_eq!(
        (first.unwrap().base_offset, second.base_offset),
        (Some(Offset(10)), Some(Offset(11)))
    );
}

#[tokio::test]
async fn a_throttled_append_is_sent_again() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        let status = Status::error(ErrorCode::TOO_MANY_REQUESTS, "slowly");
        peer.answer(&frame, &entry_refused(&request, status), &[], true).await;
        let (frame, request) = peer.append().await;
        peer.answer(&frame, &stored(&request, 5), &[], true).await;
        peer
    };
    let options = quick(8_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(5)));
}

#[tokio::test]
async fn answers_that_make_no_sense_are_protocol_errors() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        let mut twice = stored(&request, 1);
        twice.append_responses.push(twice.append_responses[0].clone());
        peer.answer(&frame, &twice, &[], true).await;
        let (frame, request) = peer.append().await;
        let mut strange = stored(&request, 1);
        strange.append_responses[0].request_index = 9;
        peer.answer(&frame, &strange, &[], true).await;
        let (frame, request) = peer.append().await;
        let mut none = stored(&request, 1);
        none.append_responses.clear();
        peer.answer(&frame, &none, &[], true).await;
        peer
    };
    let appends = async {
        let first = client.append(STREAM, vec![1], &quick(5_000)).await.unwrap_err();
        let second = client.append(STREAM, vec![1], &quick(5_000)).await.unwrap_err();
        let third = client.append(STREAM, vec![1], &quick(5_000)).await.unwrap_err();
        [first, second, third]
    };
    let (errors, _peer) = bounded(async { tokio::join!(appends, server) }).await;
    for error in errors {
        // Something was answered, so it may well have been stored.
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Indeterminate, codes::PROTOCOL_VIOLATION)
        );
    }
}

#[tokio::test]
async fn entries_of_one_frame_fare_for_themselves() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        assert_eq!(request.append_requests.len(), 3);
        let mut answer = stored(&request, 7);
        answer.append_responses[1].status = Status::error(ErrorCode::NOT_FOUND, "gone");
        answer.append_responses.reverse();
        // Results may come in several frames and in any order.
        let mut part = answer.clone();
        part.append_responses.truncate(1);
        peer.answer(&frame, &part, &[], false).await;
        answer.append_responses.remove(0);
        peer.answer(&frame, &answer, &[], true).await;
        peer
    };
    let batches = (1..=3).map(|id| (StreamId(id), vec![1].into())).collect();
    let options = quick(5_000);
    let append = client.append_all(batches, &options);
    let (outcome, _peer) = bounded(async { tokio::join!(append, server) }).await;
    let entries = outcome.unwrap().entries;
    assert_eq!(entries[0].as_ref().unwrap().stream, StreamId(1));
    assert_eq!(entries[1].as_ref().unwrap_err().code(), ErrorCode::NOT_FOUND);
    assert_eq!(entries[2].as_ref().unwrap().stream, StreamId(3));
}

#[tokio::test]
async fn a_peer_that_is_no_sbp_server_is_named_as_such() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        loop {
            let mut peer = Peer::accept(&listener).await;
            peer.frame().await;
            peer.raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        }
    };
    let connect = client.connect(Some(Duration::from_secs(2)));
    let error = bounded(async {
        tokio::select! {
            outcome = connect => outcome.unwrap_err(),
            () = server => unreachable!("it serves for ever"),
        }
    })
    .await;
    assert!(error.to_string().contains("does not speak"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_soon_and_names_the_address() {
    let (listener, address) = listener().await;
    drop(listener);
    let client = client(&address);
    let connect = bounded(client.connect(None)).await.unwrap_err();
    let append = bounded(client.append(STREAM, vec![1], &AppendOptions::default()))
        .await
        .unwrap_err();
    for error in [connect, append] {
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Unreachable, codes::CONNECTION_FAILED)
        );
        assert!(error.to_string().contains(&address), "{error}");
        assert!(error.is_retriable() && !error.is_indeterminate());
    }
}

#[tokio::test]
async fn a_server_that_is_being_started_is_waited_for() {
    let (listener, address) = listener().await;
    drop(listener);
    let mut config = ClientConfig::new(&address).unwrap();
    config.retry.first_connect_wait = Duration::from_secs(60);
    let client = Client::new(config, tokio::runtime::Handle::current());
    let server = async {
        // As long as several attempts to connect take.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let listener = tokio::net::TcpListener::bind(&address).await.unwrap();
        let mut peer = Peer::greeted(&listener).await;
        let hello = peer.frame().await;
        assert_eq!(hello.opcode, OpCode::HEARTBEAT);
        peer.answer(&hello, &HeartbeatResponse::default(), &[], true).await;
        peer
    };
    let (connected, _peer) = bounded(async { tokio::join!(client.connect(None), server) }).await;
    connected.unwrap();
}

#[tokio::test]
async fn a_call_whose_time_ends_before_any_server_was_reached_says_why() {
    let (listener, address) = listener().await;
    drop(listener);
    let mut config = ClientConfig::new(&address).unwrap();
    config.retry.first_connect_wait = Duration::from_secs(60);
    let client = Client::new(config, tokio::runtime::Handle::current());
    let connect = client.connect(Some(Duration::from_millis(300)));
    let error = bounded(connect).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn the_next_server_is_tried_when_the_first_is_down() {
    let (down, down_address) = listener().await;
    drop(down);
    let (listener, address) = listener().await;
    let client = client(&format!("{down_address},{address}"));
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        peer.answer(&frame, &stored(&request, 1), &[], true).await;
        peer
    };
    let options = quick(8_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    ack.unwrap();
}

#[tokio::test]
async fn too_much_at_once_is_refused_by_the_variant_that_does_not_queue() {
    let (listener, address) = listener().await;
    let mut config = ClientConfig::new(&address).unwrap();
    config.max_calls = 2;
    let client = Client::new(config, tokio::runtime::Handle::current());
    let one = |submissions: &mut sbp_client::Submissions| {
        let entry = submissions
            .place_raw_copy(&AppendOptions::default().encode_options(STREAM), b"x")
            .unwrap();
        let (reply, outcome) = sbp_client::Reply::future();
        submissions.push(sbp_client::AppendOp::new(
            [entry].into_iter().collect(),
            client.deadline(None),
            reply,
        ));
        outcome
    };
    let mut submissions = sbp_client::Submissions::new();
    let first = one(&mut submissions);
    let second = one(&mut submissions);
    client.try_submit(&mut submissions).unwrap();
    let _third = one(&mut submissions);
    let error = client.try_submit(&mut submissions).unwrap_err();
    assert_eq!((error.kind(), submissions.len()), (ErrorKind::Backpressure, 1));
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        for offset in 0..2 {
            let (frame, request) = peer.append().await;
            peer.answer(&frame, &stored(&request, offset), &[], true).await;
        }
        peer
    };
    let (first, second, _peer) = bounded(async { tokio::join!(first, second, server) }).await;
    assert!(first.unwrap().is_ok() && second.unwrap().is_ok());
    client.try_submit(&mut submissions).unwrap();
}

#[tokio::test]
async fn a_closed_client_finishes_what_was_sent_and_refuses_the_rest() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (frame, request) = peer.append().await;
        let closing = tokio::spawn({
            let client = client.clone();
            async move { client.close().await }
        });
        tokio::task::yield_now().await;
        peer.answer(&frame, &stored(&request, 0), &[], true).await;
        while peer.try_frame().await.is_some() {}
        closing.await.unwrap();
    };
    let options = quick(5_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, ()) = bounded(async { tokio::join!(append, server) }).await;
    ack.unwrap();
    let error = bounded(client.append(STREAM, vec![1], &options)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_closed_client_does_not_wait_for_ever() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        peer.append().await;
        // No answer comes, and the append itself could wait for one much longer.
        client.close().await;
        peer
    };
    let options = quick(600_000);
    let (ack, _peer) = bounded(async { tokio::join!(client.append(STREAM, vec![1], &options), server) }).await;
    assert!(ack.unwrap_err().is_indeterminate());
}

#[tokio::test]
async fn a_goaway_before_anything_was_started_costs_nothing() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut old = Peer::greeted(&listener).await;
        old.append().await;
        old.go_away(CallId::from_raw(1).unwrap()).await;
        drop(old);
        let mut new = Peer::greeted(&listener).await;
        let (frame, request) = new.append().await;
        new.answer(&frame, &stored(&request, 1), &[], true).await;
        new
    };
    let options = quick(8_000);
    let append = client.append(STREAM, vec![1], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(1)));
}

#[tokio::test]
async fn a_client_that_is_asked_says_that_it_serves_nothing() {
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let (append, request) = peer.append().await;
        for (raw, opcode) in [
            (1, OpCode::APPEND),
            (2, OpCode::FETCH),
            (9, OpCode::DESCRIBE_PD_CLUSTER),
        ] {
            let id = CallId::from_raw(raw).unwrap();
            peer.ask(opcode, id, b"any").await;
            let refusal = peer.frame().await;
            assert_eq!(
                (refusal.opcode, refusal.call_id, refusal.flags.bits()),
                (opcode, id, 0x07)
            );
            let status = SystemErrorResponse::decode(&refusal.header).unwrap().status;
            assert_eq!(status.code, ErrorCode::UNSUPPORTED_OPERATION);
        }
        peer.ask(OpCode::PING, CallId::from_raw(3).unwrap(), b"any").await;
        let pong = peer.frame().await;
        assert_eq!((pong.flags.bits(), &pong.header[..]), (0x03, &b"any"[..]));
        peer.answer(&append, &stored(&request, 5), &[], true).await;
        peer
    };
    let options = AppendOptions::default();
    let append = client.append(STREAM, vec![1], &options);
    let (ack, _peer) = bounded(async { tokio::join!(append, server) }).await;
    assert_eq!(ack.unwrap().base_offset, Some(Offset(5)), "its own calls go on");
}

#[tokio::test]
async fn a_ping_tells_the_time_there_and_back() {
    const HELD_BACK: Duration = Duration::from_millis(30);
    let (listener, address) = listener().await;
    let client = client(&address);
    let server = async {
        let mut peer = Peer::greeted(&listener).await;
        let ping = peer.frame().await;
        tokio::time::sleep(HELD_BACK).await;
        peer.pong(&ping).await;
        let ping = peer.frame().await;
        drop(peer);
        ping
    };
    let pings = async {
        let there = client.ping(None).await.unwrap();
        (there, client.ping(Some(Duration::from_millis(200))).await)
    };
    let ((rtt, unanswered), ping) = bounded(async { tokio::join!(pings, server) }).await;
    assert!(rtt >= HELD_BACK && rtt < PATIENCE, "{rtt:?}");
    assert_eq!(ping.flags.bits(), 0);
    assert!(
        unanswered.is_err(),
        "a connection that is gone answers nothing: {unanswered:?}"
    );
}
