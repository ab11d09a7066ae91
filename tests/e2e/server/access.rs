//! Who may do what: tokens, grants, and what somebody sees who has none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_client::{Client, ClientError, TokenSource};
use sbp_e2e::access::{Names, client_as, hello, one_shows_another_token};
use sbp_e2e::admin::seal;
use sbp_e2e::batches::raw_batch;
use sbp_e2e::clients::{client_with, stream_ids, whole};
use sbp_e2e::frames::header;
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::wait::{bounded, until};
use sbp_frame::OpCode;
use sbp_messages::{
    AppendResponse, ClientRole, DeleteStreamsRequest, DescribeRangesRequest, DescribeStreamsRequest,
    DescribeStreamsResponse, ErrorCode, FetchResponse, HeartbeatRequest, IdAllocationRequest, Message, RangeId,
    SealKind, Stream, Token,
};
use sbp_server::Durability;
use sbp_server::access::{Moment, TokenDigest};
use sbp_sim::{Operation, SimFileSystem};
use sbp_types::{Offset, RangeIndex, StreamId};

fn code(error: &ClientError) -> u16 {
    u16::try_from(error.code().0).unwrap()
}

async fn append(client: &Client, stream: StreamId) -> Result<(), ClientError> {
    let options = sbp_client::AppendOptions::default();
    let appended = client.append(stream, b"record".as_slice(), &options);
    bounded(appended).await.map(drop)
}

async fn read(client: &Client, stream: StreamId) -> Result<usize, ClientError> {
    let mut reader = client.reader(vec![whole(stream)], sbp_client::ReaderOptions::default());
    let mut batches = 0;
    while let Some(batch) = bounded(reader.next()).await {
        batch?;
        batches += 1;
    }
    Ok(batches)
}

fn named(name: &str) -> Vec<Stream> {
    vec![Stream {
        name: name.to_owned(),
        ..Stream::default()
    }]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_does_what_it_may_and_nothing_else() {
    let names = Names::default();
    let admin = names.add("root", &["admin:*", "read:*", "write:*"]);
    let billing = names.add("billing", &["read:orders/*", "write:orders/eu"]);
    let server = names.serve();
    let admin = client_as(&server, &admin);
    let ids = stream_ids(&admin, &["orders/eu", "orders/us", "secret"]).await;
    let [eu, us, secret] = ids[..] else {
        panic!("three streams")
    };
    append(&admin, secret).await.unwrap();
    append(&admin, us).await.unwrap();

    let billing = client_as(&server, &billing);
    assert_eq!(billing.find_stream("orders/eu", None).await.unwrap().stream_id, eu);
    append(&billing, eu).await.unwrap();
    assert_eq!(read(&billing, eu).await.unwrap(), 1);
    assert_eq!(read(&billing, us).await.unwrap(), 1);
    let listed = billing.list_streams(None).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(listed, ["orders/eu", "orders/us"]);

    // A stream that it may read and not write; one of somebody else; one that does not exist.
    let missing = StreamId(999);
    let shown = |error: ClientError| (code(&error), error.to_string());
    for (stream, grant) in [(us, "write"), (secret, "write"), (missing, "write")] {
        let (code, text) = shown(append(&billing, stream).await.unwrap_err());
        assert_eq!(code, 1403, "{text}");
        assert!(text.contains("billing may not append to stream"), "{text}");
        assert!(text.contains(&format!("the grant {grant}")), "{text}");
    }
    let alike = |error: ClientError, id: StreamId| error.to_string().replace(&format!("stream {id}"), "stream N");
    let forbidden = alike(read(&billing, secret).await.unwrap_err(), secret);
    assert!(forbidden.contains("1403"), "{forbidden}");
    assert!(!forbidden.contains("secret"), "the name is not told: {forbidden}");
    assert_eq!(forbidden, alike(read(&billing, missing).await.unwrap_err(), missing));
    for name in ["secret", "nothing"] {
        let (code, text) = shown(billing.find_stream(name, None).await.unwrap_err());
        assert_eq!(code, 1403, "{text}");
        assert!(text.contains("read:"), "{text}");
    }
    let create = billing.create_streams(named("orders/new"), None).await.unwrap();
    let (code, text) = shown(create.into_iter().next().unwrap().unwrap_err());
    assert_eq!(code, 1403, "{text}");
    assert!(text.contains("the grant admin:orders/new"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_is_told_so_at_once() {
    let names = Names::default();
    names.add("somebody", &["read:*"]);
    let server = names.serve();
    let sources = [
        (None, "the client sent no token"),
        (
            Some(TokenSource::Fixed(Token::new("sbp_of_another_server"))),
            "does not know the token",
        ),
        (Some(TokenSource::file("/no/such/file".into())), "cannot be read"),
        (Some(TokenSource::Fixed(Token::new("two words"))), "white space"),
    ];
    for (token, why) in sources {
        let client = client_with(server.address(), |config| {
            config.token = token;
            config.timeout = Duration::from_secs(60);
        });
        let started = Instant::now();
        let mut errors = vec![bounded(client.connect(None)).await.unwrap_err()];
        errors.push(bounded(client.list_streams(None)).await.unwrap_err());
        errors.push(bounded(client.find_stream("x", None)).await.unwrap_err());
        errors.push(append(&client, StreamId(1)).await.unwrap_err());
        errors.push(read(&client, StreamId(1)).await.unwrap_err());
        for error in errors {
            let text = error.to_string();
            assert_eq!(code(&error), 1401, "{text}");
            assert!(text.contains(why), "{text}");
            assert!(
                !text.contains("another_server") && !text.contains("two words"),
                "{text}"
            );
            assert!(!error.is_retriable(), "{text}");
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "final, not tried until the deadline"
        );
        bounded(client.close()).await;
    }
}

#[test]
fn only_a_known_peer_is_served_and_others_are_closed() {
    let names = Names::default();
    let token = names.add("reader", &["read:*"]);
    let server = names.serve();
    let mut peer = Peer::connect(&server);
    assert_eq!(
        peer.refused(&DescribeStreamsRequest::default(), b""),
        ErrorCode::UNAUTHORIZED
    );
    let refused = hello(&mut peer, &Token::new("wrong"), ClientRole::CLIENT);
    assert_eq!(refused.status.code, ErrorCode::UNAUTHORIZED);
    assert_eq!(refused.connection_id, 0);
    assert_eq!(
        peer.refused(&DescribeStreamsRequest::default(), b""),
        ErrorCode::UNAUTHORIZED
    );
    // The right one on the same connection.
    assert!(hello(&mut peer, &token, ClientRole::CLIENT).status.is_success());
    let (answer, _): (DescribeStreamsResponse, _) = peer.call(&DescribeStreamsRequest::default(), b"");
    assert!(answer.status.is_success());
    // A later HEARTBEAT without a token changes nothing.
    assert!(
        hello(&mut peer, &Token::default(), ClientRole::CLIENT)
            .status
            .is_success()
    );
    // Nobody guesses for long.
    let mut guessing = Peer::connect(&server);
    for _ in 0..3 {
        let refused = hello(&mut guessing, &Token::new("guess"), ClientRole::CLIENT);
        assert_eq!(refused.status.code, ErrorCode::UNAUTHORIZED);
    }
    assert!(guessing.recv_or_end().is_none(), "closed");
}

#[test]
fn the_roles_of_servers_need_a_grant() {
    let names = Names::default();
    let client = names.add("client", &["read:*", "write:*", "admin:*"]);
    let range_server = names.add("range-1", &["server"]);
    let server = names.serve();
    for role in [ClientRole::PLACEMENT_DRIVER, ClientRole::RANGE_SERVER] {
        let mut peer = Peer::connect(&server);
        let refused = hello(&mut peer, &client, role).status;
        assert_eq!(refused.code, ErrorCode::FORBIDDEN);
        assert!(refused.message.contains("the grant server"), "{refused}");
        assert_eq!(peer.refused(&IdAllocationRequest::default(), b""), ErrorCode::FORBIDDEN);
        let mut peer = Peer::connect(&server);
        assert!(hello(&mut peer, &range_server, role).status.is_success());
    }
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &client, ClientRole::CLIENT).status.is_success());
    assert_eq!(peer.refused(&IdAllocationRequest::default(), b""), ErrorCode::FORBIDDEN);
}

/// One request about several streams: each is judged by itself.
#[test]
fn entries_are_judged_one_by_one() {
    let names = Names::default();
    let root = names.add("root", &["admin:*"]);
    let one = names.add("one", &["read:a", "write:a"]);
    let server = names.serve();
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &root, ClientRole::CLIENT).status.is_success());
    let (a, b) = (peer.create("a"), peer.create("b"));
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &one, ClientRole::CLIENT).status.is_success());
    let batch = raw_batch(b"x");
    let entries = [(b, batch.len()), (a, batch.len()), (StreamId(77), batch.len())];
    let (answer, _): (AppendResponse, _) = peer.call(&append_request(&entries), &batch.repeat(3));
    let mut codes: Vec<_> = answer
        .append_responses
        .iter()
        .map(|one| (one.request_index, one.status.code))
        .collect();
    codes.sort_unstable_by_key(|(index, _)| *index);
    let (fine, not) = (ErrorCode::NONE, ErrorCode::FORBIDDEN);
    assert_eq!(codes, [(0, not), (1, fine), (2, not)]);
    let (answer, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(b, 0), from(a, 0)]), b"");
    let mut codes: Vec<_> = answer
        .fetch_responses
        .iter()
        .map(|one| (one.request_index, one.status.code))
        .collect();
    codes.sort_unstable_by_key(|(index, _)| *index);
    assert_eq!(codes, [(0, not), (1, fine)]);
}

/// A FETCH that was let in by a token waits on; another token of its peer lets it read nothing.
#[test]
fn what_waits_is_judged_by_the_rights_of_the_moment() {
    let names = Names::default();
    let wide = names.add("wide", &["read:*", "admin:*"]);
    let narrow = names.add("narrow", &["read:other"]);
    let server = names.serve();
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &wide, ClientRole::CLIENT).status.is_success());
    let stream = peer.create("s");
    let waiting = peer.send(&fetch_request(60_000, 1, &[from(stream, 0)]), b"");
    let greeting = HeartbeatRequest {
        token: narrow,
        ..HeartbeatRequest::default()
    };
    let greeting = peer.send(&greeting, b"");
    let mut frames = [peer.recv(), peer.recv()];
    frames.sort_by_key(|frame| frame.call_id == greeting);
    let [fetched, greeted] = frames;
    assert_eq!((fetched.call_id, greeted.call_id), (waiting, greeting));
    let answer = FetchResponse::decode(&fetched.header).unwrap();
    assert_eq!(answer.fetch_responses[0].status.code, ErrorCode::FORBIDDEN);
}

/// A token that is taken away ends its connections; rights that change count at once. Nobody else notices.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_and_changed_rights_count_while_the_server_runs() {
    let names = Names::default();
    let root = names.add("root", &["admin:*", "read:*", "write:*"]);
    let gone = names.add("gone", &["read:*"]);
    let server = names.serve();
    let root = client_as(&server, &root);
    let stream = stream_ids(&root, &["s"]).await[0];
    append(&root, stream).await.unwrap();
    let gone = client_as(&server, &gone);
    assert_eq!(read(&gone, stream).await.unwrap(), 1);
    names.revoke("gone");
    let revoked = tokio::task::block_in_place(|| {
        until("a revocation", || {
            let read = tokio::runtime::Handle::current().block_on(read(&gone, stream));
            read.err()
        })
    });
    assert_eq!(code(&revoked), 1401, "{revoked}");
    assert!(revoked.to_string().contains("was revoked"), "{revoked}");
    let again = client_as(&server, &names.add("again", &["read:*"]));
    tokio::task::block_in_place(|| {
        until("a new name", || {
            tokio::runtime::Handle::current().block_on(read(&again, stream)).ok()
        })
    });
    append(&root, stream).await.unwrap();
    assert_eq!(root.stats().connections, 1, "the connection of others stays");
}

/// A client with a source of tokens is asked for another one before the first expires, and keeps its connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_replaced_before_it_expires() {
    let names = Names::default();
    let soon = Moment::from(std::time::SystemTime::now()).after(Duration::from_secs(11));
    let first = names.add_with("job", &["read:*"], |entry| entry.expires = Some(soon));
    let second = names.add("job", &["read:*"]);
    let server = names.serve();
    let expired = one_shows_another_token(&server, &first, second).await;
    assert_eq!(code(&expired), 1401, "{expired}");
    assert!(expired.to_string().contains("expired at"), "{expired}");
}

/// Whoever may not know whether a stream exists cannot tell by how much is answered, or in how many pieces, either.
#[test]
fn a_forbidden_stream_and_one_that_does_not_exist_are_answered_in_as_many_bytes() {
    let names = Names::default();
    let root = names.add("root", &["admin:*", "write:*"]);
    let billing = names.add("billing", &["read:orders/*", "write:orders/*", "admin:orders/*"]);
    let server = names.serve();
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &root, ClientRole::CLIENT).status.is_success());
    let secret = peer.create("secret");
    peer.store(secret, b"record");
    // As many digits.
    let missing = StreamId(secret.0 + 1);
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &billing, ClientRole::CLIENT).status.is_success());
    let batch = raw_batch(b"x");
    let requests = |stream: StreamId, name: &str| -> Vec<(OpCode, Vec<u8>)> {
        let range = RangeId {
            stream_id: stream,
            ..RangeId::default()
        };
        let of = |stream| Stream {
            stream_id: stream,
            ..Stream::default()
        };
        vec![
            (
                OpCode::APPEND,
                header(&append_request(&[(stream, batch.len())])).to_vec(),
            ),
            (OpCode::FETCH, header(&fetch_request(0, 0, &[from(stream, 0)])).to_vec()),
            (
                OpCode::DESCRIBE_STREAMS,
                header(&DescribeStreamsRequest {
                    stream_ids: vec![stream],
                    ..Default::default()
                })
                .to_vec(),
            ),
            (
                OpCode::DESCRIBE_STREAMS,
                header(&DescribeStreamsRequest {
                    names: vec![name.to_owned()],
                    ..Default::default()
                })
                .to_vec(),
            ),
            (
                OpCode::DESCRIBE_RANGES,
                header(&DescribeRangesRequest {
                    ranges: vec![range],
                    ..Default::default()
                })
                .to_vec(),
            ),
            (
                OpCode::DELETE_STREAMS,
                header(&DeleteStreamsRequest {
                    streams: vec![of(stream)],
                    ..Default::default()
                })
                .to_vec(),
            ),
        ]
    };
    let mut answered = |opcode: OpCode, header: &[u8]| {
        let refusals = server.stats().refusals;
        let payload = if opcode == OpCode::APPEND { &batch[..] } else { b"" };
        let call = peer.send_raw(opcode, header, payload);
        // The only frame of its answer: the next one is that of the next request.
        let frame = peer.recv();
        assert_eq!(frame.call_id, call, "{opcode}");
        assert!(frame.flags.ends_answer(), "{opcode}");
        let refused = server.stats().refusals - refusals;
        (frame.flags, frame.header.len(), frame.payload.len(), refused)
    };
    for ((opcode, forbidden), (_, nothing)) in requests(secret, "secret").iter().zip(&requests(missing, "absent")) {
        let forbidden = answered(*opcode, forbidden);
        assert_eq!(forbidden, answered(*opcode, nothing), "{opcode}");
        assert_eq!(forbidden.3, 1, "{opcode} is refused");
    }
}

/// An append waits for the end of a seal while what its sender may do changes: it is refused at once, and not stored.
#[test]
fn an_append_that_waits_is_judged_by_the_rights_that_its_sender_has_then() {
    let disk = SimFileSystem::new();
    let names = Names::default();
    let root = names.add("root", &["admin:*", "read:*", "write:*"]);
    let gone = names.add("gone", &["write:*"]);
    let less = names.add("less", &["write:*"]);
    let server = names.serve_with(|config| {
        config.files = Some(Arc::new(disk.clone()));
        config.data_dir = Some("/data".into());
        config.durability = Durability::Fsync;
    });
    let known = |token: &Token| {
        let mut peer = Peer::connect(&server);
        assert!(hello(&mut peer, token, ClientRole::CLIENT).status.is_success());
        peer
    };
    let (mut first, mut sealer, mut other) = (known(&root), known(&root), known(&root));
    let (mut gone, mut reader) = (known(&gone), known(&less));
    let stream = first.create("s");
    let batch = raw_batch(b"x");
    let append = append_request(&[(stream, batch.len())]);

    let held = disk.hold(Operation::Sync, "segment-");
    first.send(&append, &batch);
    held.wait_until_reached();
    let sealing = std::thread::spawn(move || seal(&mut sealer, stream, 0, SealKind::PLACEMENT_DRIVER));
    until("the seal", || {
        let mut nowhere = append.clone();
        nowhere.append_requests[0].range_index = Some(RangeIndex(0));
        nowhere.append_requests[0].expected_offset = Some(Offset(1_000));
        let (answer, _): (AppendResponse, _) = other.call(&nowhere, &batch);
        (answer.append_responses[0].status.code == ErrorCode::RANGE_ALREADY_SEALED).then_some(())
    });
    let waiting = [gone.send(&append, &batch), reader.send(&append, &batch)];
    names.revoke("gone");
    names.revoke("less");
    names.add_with("less", &["read:*"], |entry| entry.sha256 = Some(TokenDigest::of(&less)));

    let refused = |peer: &mut Peer, call| {
        let answer = AppendResponse::decode(&peer.answer(call).header).unwrap();
        answer.append_responses[0].status.code
    };
    assert_eq!(refused(&mut gone, waiting[0]), ErrorCode::UNAUTHORIZED);
    assert_eq!(refused(&mut reader, waiting[1]), ErrorCode::FORBIDDEN);
    drop(held);
    assert_eq!(sealing.join().unwrap().start_offset, Offset(1));
    assert_eq!(other.store(stream, b"y"), 1, "nothing of theirs is stored");
}
