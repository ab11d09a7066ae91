//! Quotas of names: bytes a second, requests under way, connections, streams.

use std::sync::Arc;

use sbp_e2e::access::{Names, client_as, hello};
use sbp_e2e::admin::{created, stream_named};
use sbp_e2e::batches::raw_batch;
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::wait::{bounded, until};
use sbp_messages::{
    AppendResponse, ClientRole, DeleteStreamsRequest, DeleteStreamsResponse, ErrorCode, FetchRequest, FetchResponse,
    Message, Stream, SystemErrorResponse, Token,
};
use sbp_server::access::Quota;
use sbp_server::{Durability, Server};
use sbp_sim::{Operation, SimFileSystem};
use sbp_types::StreamId;

/// So slow that what is taken is not paid off while a test runs.
const SLOW: u64 = 1_000;
const LARGE: usize = 100_000;

fn limited(names: &Names, limit: impl FnOnce(&mut Quota)) -> Token {
    names.add_with("tenant", &["read:*", "write:*", "admin:*"], |entry| {
        limit(&mut entry.quota)
    })
}

fn known(server: &Server, token: &Token) -> Peer {
    let mut peer = Peer::connect(server);
    let status = hello(&mut peer, token, ClientRole::CLIENT).status;
    assert!(status.is_success(), "{status}");
    peer
}

fn append(peer: &mut Peer, stream: StreamId) -> (ErrorCode, i32, String) {
    let batch = raw_batch(&[7; LARGE]);
    let (answer, _): (AppendResponse, _) = peer.call(&append_request(&[(stream, batch.len())]), &batch);
    let status = &answer.append_responses[0].status;
    (status.code, answer.throttle_time_ms, status.message.clone())
}

fn fetch(peer: &mut Peer, stream: StreamId) -> (ErrorCode, i32, usize) {
    let (answer, payload): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    (answer.status.code, answer.throttle_time_ms, payload.len())
}

#[test]
fn appends_beyond_the_rate_are_asked_to_wait_and_beyond_twice_of_it_refused() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.bytes_in_per_second = Some(SLOW));
    let other = names.add("other", &["write:*"]);
    let server = names.serve();
    let mut peer = known(&server, &tenant);
    let stream = peer.create("s");
    let (code, wait, _) = append(&mut peer, stream);
    assert_eq!(code, ErrorCode::NONE, "one batch of any size");
    assert!((30_000..=100_000).contains(&wait), "{wait}");
    // On another connection of the same name too.
    for peer in [&mut known(&server, &tenant), &mut peer] {
        let (code, wait, message) = append(peer, stream);
        assert_eq!(code, ErrorCode::TOO_MANY_REQUESTS);
        assert!(wait >= 30_000, "{wait}");
        for part in ["tenant appends", "1000 bytes a second", "bytes-in"] {
            assert!(message.contains(part), "{message}");
        }
    }
    // Nobody else is asked to wait, and what was refused is not stored.
    assert_eq!(
        append(&mut known(&server, &other), stream),
        (ErrorCode::NONE, 0, String::new())
    );
    assert_eq!(fetch(&mut peer, stream).1, 0, "reading has a rate of its own");
    assert_eq!(peer.fetch_all(stream, 0).len(), 2);
}

#[test]
fn reads_beyond_the_rate_are_asked_to_wait_and_beyond_twice_of_it_refused() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.bytes_out_per_second = Some(SLOW));
    let server = names.serve();
    let mut peer = known(&server, &tenant);
    let stream = peer.create("s");
    assert_eq!(append(&mut peer, stream), (ErrorCode::NONE, 0, String::new()));
    let (code, wait, length) = fetch(&mut peer, stream);
    assert_eq!(code, ErrorCode::NONE);
    assert!(wait >= 30_000 && length > LARGE, "{wait} {length}");
    let (code, wait, length) = fetch(&mut known(&server, &tenant), stream);
    assert_eq!((code, length), (ErrorCode::TOO_MANY_REQUESTS, 0));
    assert!(wait >= 30_000, "{wait}");
}

#[test]
fn one_read_takes_no_more_than_twice_the_rate() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.bytes_out_per_second = Some(SLOW));
    let server = names.serve();
    let mut peer = known(&server, &tenant);
    let streams = [peer.create("a"), peer.create("b")];
    for stream in streams {
        for _ in 0..3 {
            assert_eq!(append(&mut peer, stream).0, ErrorCode::NONE);
        }
    }
    let both = fetch_request(0, 0, &streams.map(|stream| from(stream, 0)));
    let (answer, payload): (FetchResponse, _) = peer.call(&both, b"");
    assert!((LARGE..2 * LARGE).contains(&payload.len()), "{}", payload.len());
    assert!(answer.throttle_time_ms >= 30_000, "{}", answer.throttle_time_ms);
    let lengths: Vec<_> = answer
        .fetch_responses
        .iter()
        .map(|result| result.batch_length)
        .collect();
    assert_eq!(lengths.iter().filter(|length| **length != 0).count(), 1, "{lengths:?}");
}

/// Reads that wait were let in while nothing was owed; what they read counts all the same.
#[test]
fn reads_that_wait_get_no_more_than_twice_the_rate() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.bytes_out_per_second = Some(SLOW));
    let server = names.serve();
    let mut peer = known(&server, &tenant);
    let stream = peer.create("s");
    let mut waiting: Vec<_> = (0..4).map(|_| known(&server, &tenant)).collect();
    let waits = fetch_request(60_000, 1, &[from(stream, 0)]);
    let calls: Vec<_> = waiting.iter_mut().map(|peer| peer.send(&waits, b"")).collect();
    for peer in &mut waiting {
        let other = peer.send(&fetch_request(0, 0, &[from(stream, 0)]), b"");
        peer.answer(other);
    }
    assert_eq!(append(&mut peer, stream).0, ErrorCode::NONE);
    let mut lengths: Vec<_> = waiting
        .iter_mut()
        .zip(calls)
        .map(|(peer, call)| {
            let frame = peer.answer(call);
            let answer = FetchResponse::decode(&frame.header).unwrap();
            assert!(answer.throttle_time_ms >= 30_000, "{}", answer.throttle_time_ms);
            frame.payload.len()
        })
        .collect();
    lengths.sort_unstable();
    assert!(lengths[3] > LARGE, "{lengths:?}");
    assert_eq!(lengths[..3], [0, 0, 0]);
}

/// A quota that changes counts for connections that are there, and one that goes is forgotten.
#[test]
fn a_quota_changes_while_the_server_runs() {
    let names = Names::default();
    let tenant = names.add("tenant", &["read:*", "write:*", "admin:*"]);
    let server = names.serve();
    let mut peer = known(&server, &tenant);
    let stream = peer.create("s");
    assert_eq!(append(&mut peer, stream), (ErrorCode::NONE, 0, String::new()));
    // Another line of the same name: its quota is that of the name.
    let second = limited(&names, |quota| quota.bytes_in_per_second = Some(SLOW));
    until("the quota", || {
        (append(&mut peer, stream).0 == ErrorCode::TOO_MANY_REQUESTS).then_some(())
    });
    let mut with_second = known(&server, &second);
    assert_eq!(append(&mut with_second, stream).0, ErrorCode::TOO_MANY_REQUESTS);
    let mut file = sbp_server::access::AuthFile::change(&names.path()).unwrap();
    assert_eq!(file.remove(|entry| !entry.quota.is_unlimited()), 1);
    file.write().unwrap();
    until("no quota", || {
        (append(&mut peer, stream).0 == ErrorCode::NONE).then_some(())
    });
}

/// A client that waits as it is asked to appends all it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_waits_as_it_is_asked_to() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.bytes_in_per_second = Some(200_000));
    let server = names.serve();
    let client = client_as(&server, &tenant);
    let stream = sbp_e2e::clients::stream_ids(&client, &["s"]).await[0];
    let options = sbp_client::AppendOptions::default();
    for _ in 0..6 {
        bounded(client.append(stream, vec![7; LARGE], &options)).await.unwrap();
    }
    assert_eq!(server.stats().appends, 6);
    assert_eq!(server.stats().refusals, 0, "nothing was sent too early");
}

#[test]
fn requests_under_way_are_counted_over_all_connections() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.calls = Some(2));
    let writer = names.add("writer", &["write:*"]);
    let server = names.serve();
    let mut peer = known(&server, &tenant);
    let stream = peer.create("s");
    let waits = fetch_request(60_000, 1, &[from(stream, 0)]);
    let mut other = known(&server, &tenant);
    let first = peer.send(&waits, b"");
    other.send(&waits, b"");
    // Answered once both are in.
    hello(&mut peer, &Token::default(), ClientRole::CLIENT);
    hello(&mut other, &Token::default(), ClientRole::CLIENT);
    let refused = other.send(&waits, b"");
    let frame = other.recv();
    assert_eq!(frame.call_id, refused);
    let status = SystemErrorResponse::decode(&frame.header).unwrap().status;
    assert_eq!(status.code, ErrorCode::TOO_MANY_REQUESTS);
    assert!(status.message.contains("tenant has 2 requests under way"), "{status}");
    // One that is answered makes room, and so does a connection that ends.
    assert_eq!(append(&mut known(&server, &writer), stream).0, ErrorCode::NONE);
    peer.answer(first);
    drop(other);
    until("room", || {
        let mut peer = known(&server, &tenant);
        let calls = [
            peer.send(&waits, b""),
            peer.send(&fetch_request(0, 0, &[from(stream, 0)]), b""),
        ];
        calls
            .into_iter()
            .all(|call| FetchResponse::decode(&peer.answer(call).header).is_ok())
            .then_some(())
    });
}

/// A connection shows the token of another name while its requests wait for the disk: they count for that one from then on,
/// and are not taken from what it begins itself.
#[test]
fn requests_under_way_are_those_of_the_name_that_the_connection_has() {
    let names = Names::default();
    let limited = |name: &str| {
        names.add_with(name, &["read:*", "write:*", "admin:*"], |entry| {
            entry.quota.calls = Some(2)
        })
    };
    let (one, other) = (limited("one"), limited("other"));
    let disk = SimFileSystem::new();
    let server = names.serve_with(|config| {
        config.data_dir = Some("/data".into());
        config.files = Some(Arc::new(disk.clone()));
        config.durability = Durability::Fsync;
    });
    let mut peer = known(&server, &one);
    let stream = peer.create("s");
    let waits = fetch_request(60_000, 1, &[from(peer.create("quiet"), 0)]);
    let held = disk.hold(Operation::Sync, "segment-");
    let batch = raw_batch(b"x");
    let appends: Vec<_> = (0..2)
        .map(|_| peer.send(&append_request(&[(stream, batch.len())]), &batch))
        .collect();
    held.wait_until_reached();
    assert!(hello(&mut peer, &other, ClientRole::CLIENT).status.is_success());
    let mut another = known(&server, &other);
    assert_eq!(
        another.refused(&waits, b""),
        ErrorCode::TOO_MANY_REQUESTS,
        "two wait for the disk"
    );
    let mut first = known(&server, &one);
    first.send(&waits, b"");
    drop(held);
    for append in appends {
        peer.answer(append);
    }
    // Now these two are under way, and no third one may be.
    for _ in 0..2 {
        another.send(&waits, b"");
    }
    assert_eq!(another.refused(&waits, b""), ErrorCode::TOO_MANY_REQUESTS);
}

/// Whoever gives up what it waits for is not told to wait.
#[test]
fn a_withdrawal_makes_room() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.calls = Some(1));
    let server = names.serve();
    let mut peer = known(&server, &tenant);
    let stream = peer.create("s");
    let waiting = peer.send(&fetch_request(60_000, 1, &[from(stream, 0)]), b"");
    peer.send(&FetchRequest::withdrawal(waiting.raw()), b"");
    let frame = peer.recv();
    assert_eq!(frame.call_id, waiting, "{frame:?}");
    assert_eq!(
        FetchResponse::decode(&frame.header).unwrap().status.code,
        ErrorCode::NONE
    );
    let withdrawal = peer.recv();
    assert!(SystemErrorResponse::decode(&withdrawal.header).is_err() || withdrawal.flags.bits() != 0x07);
    assert_eq!(fetch(&mut peer, stream), (ErrorCode::NONE, 0, 0));
}

#[test]
fn a_connection_too_many_is_told_and_let_in_later() {
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.connections = Some(1));
    let server = names.serve();
    let first = known(&server, &tenant);
    let mut second = Peer::connect(&server);
    let status = hello(&mut second, &tenant, ClientRole::CLIENT).status;
    assert_eq!(status.code, ErrorCode::TOO_MANY_REQUESTS);
    assert!(
        status
            .message
            .contains("tenant has 1 connections to this server, and its quota is 1"),
        "{status}"
    );
    drop(first);
    until("room", || {
        let status = hello(&mut Peer::connect(&server), &tenant, ClientRole::CLIENT).status;
        status.is_success().then_some(())
    });
}

#[test]
fn streams_that_a_name_has_made_are_counted_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let names = Names::default();
    let tenant = limited(&names, |quota| quota.streams = Some(2));
    let root = names.add("root", &["admin:*"]);
    let data = directory.path().join("data");
    let serve = || names.serve_with(|config| config.data_dir = Some(data.clone()));
    let server = serve();
    let make = |peer: &mut Peer, name: &str| created(peer, vec![stream_named(name)]).remove(0);
    let mut peer = known(&server, &tenant);
    for (name, code) in [
        ("a", ErrorCode::NONE),
        ("b", ErrorCode::NONE),
        ("c", ErrorCode::FORBIDDEN),
        // It exists, and is answered as ever.
        ("a", ErrorCode::NONE),
    ] {
        assert_eq!(make(&mut peer, name).2, code, "{name}");
    }
    let mut admin = known(&server, &root);
    let (a, ..) = make(&mut admin, "a");
    assert_eq!(make(&mut admin, "of_root").2, ErrorCode::NONE, "others have their own");
    drop((peer, admin));
    server.shutdown().unwrap();
    let server = serve();
    let mut peer = known(&server, &tenant);
    assert_eq!(make(&mut peer, "c").2, ErrorCode::FORBIDDEN, "after a restart too");
    let request = DeleteStreamsRequest {
        streams: vec![Stream {
            stream_id: a.stream_id,
            ..Stream::default()
        }],
        ..DeleteStreamsRequest::default()
    };
    let (answer, _): (DeleteStreamsResponse, _) = peer.call(&request, b"");
    assert!(answer.delete_responses[0].status.is_success());
    assert_eq!(make(&mut peer, "c").2, ErrorCode::NONE);
}
