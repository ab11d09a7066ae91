//! Connections whose peers do not say who they are, and those who do beside them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::{Resource, getrlimit, setrlimit};
use sbp_client::{AppendOptions, Client, ClientError};
use sbp_e2e::access::{Names, client_as};
use sbp_e2e::batches::records;
use sbp_e2e::clients::{contents, stream_ids};
use sbp_e2e::frames::{frame_bytes, header};
use sbp_e2e::peer::Peer;
use sbp_e2e::wait::{PATIENCE, bounded, until};
use sbp_frame::{Flags, Frame, FrameHead, OpCode};
use sbp_messages::{ClientRole, ErrorCode, GoAway, HeartbeatRequest, Message as _, Token};
use sbp_server::Server;
use sbp_types::StreamId;

/// As many connections as a test of strangers opens.
const MANY: usize = 10_000;

/// Has this process open so many files, and some more.
fn make_room_for(files: usize) {
    let wanted = u64::try_from(files + 4_000).unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        setrlimit(Resource::Nofile, limit).expect("a limit of open files that this test fits into");
    }
}

/// Connections to a server, from several addresses: one has too few ports. Each says `words`, then nothing.
fn strangers(server: &Server, count: usize, words: &[u8]) -> Vec<TcpStream> {
    let address: SocketAddr = server.local_addr();
    (0..count)
        .map(|number| {
            let from: SocketAddr = format!("127.0.3.{}:0", number % 40 + 1).parse().unwrap();
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&from.into()).unwrap();
            socket.connect(&address.into()).unwrap();
            let mut stream = TcpStream::from(socket);
            // Its place may be taken already.
            let _ = stream.write_all(words);
            stream
        })
        .collect()
}

/// A HEARTBEAT with a token that nobody knows.
fn unknown() -> Vec<u8> {
    let request = HeartbeatRequest {
        token: Token::new("sbp_of_nobody"),
        ..HeartbeatRequest::default()
    };
    let head = FrameHead {
        opcode: OpCode::HEARTBEAT,
        flags: Flags::NONE,
        raw_call_id: 1,
        format: 1,
    };
    frame_bytes(head, &header(&request), b"")
}

/// Appends and reads all back.
async fn work(client: &Client, stream: StreamId, rounds: usize) -> Result<(), ClientError> {
    for round in 0..rounds {
        bounded(client.append(
            stream,
            records([format!("{round}").as_str()]),
            &AppendOptions::default(),
        ))
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_who_say_nothing_keep_nobody_out() {
    make_room_for(MANY);
    let names = Names::default();
    let token = names.add("job", &["read:*", "write:*", "admin:*"]);
    let server = names.serve_with(|config| {
        // All that are known have to fit beside the strangers.
        config.max_connections = 4;
        config.max_unauthenticated_connections = 200;
    });
    let first = client_as(&server, &token);
    let stream = stream_ids(&first, &["s"]).await[0];
    let half = MANY / 2;
    let silent = tokio::task::block_in_place(|| strangers(&server, half, b""));
    let refused = tokio::task::block_in_place(|| strangers(&server, half, &unknown()));
    work(&first, stream, 100).await.unwrap();
    // Others become known while all these are open.
    let (second, third) = (client_as(&server, &token), client_as(&server, &token));
    work(&second, stream, 100).await.unwrap();
    work(&third, stream, 100).await.unwrap();
    assert_eq!(contents(&third, stream).await.len(), 300);
    for client in [&first, &second, &third] {
        assert_eq!(client.stats().connections, 1, "none was lost");
    }
    let open = server.stats().connections_open;
    assert!(open <= 203, "{open} connections are open");
    assert_eq!(server.stats().connections_accepted, u64::try_from(MANY + 3).unwrap());
    drop((silent, refused));
}

#[test]
fn the_oldest_stranger_leaves_for_the_newest_and_who_is_known_stays() {
    let names = Names::default();
    let token = names.add("job", &["read:*"]);
    let server = names.serve_with(|config| config.max_unauthenticated_connections = 2);
    let mut known = Peer::connect(&server);
    assert!(
        sbp_e2e::access::hello(&mut known, &token, ClientRole::CLIENT)
            .status
            .is_success()
    );
    let mut strangers = strangers(&server, 3, b"");
    strangers[0].set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(strangers[0].read(&mut [0; 16]), Ok(0) | Err(_)), "closed");
    // The two others are there, and one of them may still become known.
    let mut late = Peer::connect(&server);
    assert!(
        sbp_e2e::access::hello(&mut late, &token, ClientRole::CLIENT)
            .status
            .is_success()
    );
    until("the places", || (server.stats().connections_open <= 4).then_some(()));
    for peer in [&mut known, &mut late] {
        assert!(
            sbp_e2e::access::hello(peer, &Token::default(), ClientRole::CLIENT)
                .status
                .is_success()
        );
    }
}

/// Whatever a stranger floods a server with, it is cut after a few frames, and told why.
#[test]
fn a_flood_of_strangers_is_cut() {
    let names = Names::default();
    let _ = names.add("job", &["read:*"]);
    let server = names.serve();
    // More than a connection's buffers on both sides hold.
    const MOST: usize = 64 << 20;
    let kinds = [
        ("long HEARTBEATs", OpCode::HEARTBEAT, 1 << 20, 0),
        ("APPENDs", OpCode::APPEND, 64, 15 << 20),
        ("small FETCHes", OpCode::FETCH, 64, 0),
        ("unreadable HEARTBEATs", OpCode::HEARTBEAT, 64, 0),
        ("large PINGs", OpCode::PING, 900, 0),
    ];
    for (what, opcode, header, payload) in kinds {
        let mut flood = TcpStream::connect(server.local_addr()).unwrap();
        flood.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut words = flood.try_clone().unwrap();
        words.set_read_timeout(Some(PATIENCE)).unwrap();
        let heard = std::thread::spawn(move || {
            let mut heard = Vec::new();
            // Until it is closed, or reset.
            let _ = words.read_to_end(&mut heard);
            heard
        });
        let (header, payload) = (vec![0xff; header], vec![0; payload]);
        let (mut taken, mut call) = (0, 0);
        while taken < MOST {
            call += 1;
            let head = FrameHead {
                opcode,
                flags: Flags::NONE,
                raw_call_id: call,
                format: 1,
            };
            match flood.write(&frame_bytes(head, &header, &payload)) {
                Ok(count) => taken += count,
                Err(_) => break,
            }
        }
        drop(flood);
        assert!(taken < MOST, "{what}: {taken} bytes were taken");
        let mut heard = bytes::BytesMut::from(&heard.join().unwrap()[..]);
        let mut last = None;
        while let Some(frame) = Frame::decode(&mut heard).unwrap() {
            last = Some(frame);
        }
        let last = last.unwrap_or_else(|| panic!("{what}: nothing was said"));
        assert_eq!(last.opcode, OpCode::GOAWAY, "{what}");
        let status = GoAway::decode(&last.header).unwrap().status;
        assert_eq!(status.code, ErrorCode::UNAUTHORIZED, "{what}");
    }
}

#[test]
fn one_known_too_many_is_told_so_and_makes_room() {
    let names = Names::default();
    let token = names.add("job", &["read:*"]);
    let server = names.serve_with(|config| config.max_connections = 1);
    let mut known = Peer::connect(&server);
    assert!(
        sbp_e2e::access::hello(&mut known, &token, ClientRole::CLIENT)
            .status
            .is_success()
    );
    let mut second = Peer::connect(&server);
    let refused = sbp_e2e::access::hello(&mut second, &token, ClientRole::CLIENT).status;
    assert_eq!(refused.code, ErrorCode::TOO_MANY_REQUESTS);
    assert!(refused.message.contains("has 1 connections"), "{refused}");
    assert!(second.recv_or_end().is_none(), "closed");
    drop(known);
    until("the place", || {
        let mut third = Peer::connect(&server);
        let answer = sbp_e2e::access::hello(&mut third, &token, ClientRole::CLIENT);
        answer.status.is_success().then_some(())
    });
}
