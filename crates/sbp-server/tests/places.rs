//! Who gets a connection, and how many.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sbp_server::{Durability, Server, ServerConfig};
use support::{Peer, fetch_request, from};

const PATIENCE: Duration = Duration::from_secs(40);
/// A PING without header or payload.
const PING: [u8; 20] = [0, 0, 0, 16, 23, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0];

/// Dials from `host` and asks for an answer; nothing when the server closes instead.
fn greeted(server: &Server, host: &str) -> Option<TcpStream> {
    let address: SocketAddr = server.address().parse().unwrap();
    let from: SocketAddr = format!("{host}:0").parse().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may have closed it already.
    let _ = stream.write_all(&PING);
    let mut answer = [0; 20];
    match stream.read_exact(&mut answer) {
        Ok(()) => Some(stream),
        Err(error) => {
            let closed = [
                ErrorKind::UnexpectedEof,
                ErrorKind::ConnectionReset,
                ErrorKind::BrokenPipe,
            ];
            assert!(closed.contains(&error.kind()), "{error}");
            None
        }
    }
}

#[test]
fn an_address_has_so_many_places_and_a_server_so_many_in_all() {
    let server = Server::start(ServerConfig {
        max_connections: 5,
        max_connections_per_address: 3,
        ..ServerConfig::default()
    })
    .unwrap();
    let mut first: Vec<_> = (0..3).map(|_| greeted(&server, "127.0.0.1").unwrap()).collect();
    assert!(greeted(&server, "127.0.0.1").is_none(), "a fourth from one address");
    let second: Vec<_> = (0..2).map(|_| greeted(&server, "127.0.0.2").unwrap()).collect();
    assert!(greeted(&server, "127.0.0.2").is_none(), "a sixth in all");
    assert!(greeted(&server, "127.0.0.3").is_none());
    // A place that is given back can be taken again.
    first.pop();
    let deadline = Instant::now() + PATIENCE;
    let again = loop {
        if let Some(stream) = greeted(&server, "127.0.0.2") {
            break stream;
        }
        assert!(Instant::now() < deadline, "the place stays taken");
        std::thread::sleep(Duration::from_millis(5));
    };
    drop((first, second, again));
    server.shutdown().unwrap();
}

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn what_nobody_takes_is_bounded_however_much_is_asked_for() {
    let server = Server::start(ServerConfig {
        durability: Durability::None,
        ..ServerConfig::default()
    })
    .unwrap();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    // More than the log keeps in memory, so that most of it is read on other threads.
    let body = vec![5; 1 << 20];
    for _ in 0..150 {
        peer.store(stream, &body);
    }
    let before = resident();
    for _ in 0..1_000 {
        peer.send(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    }
    let mut most = before;
    let deadline = Instant::now() + PATIENCE;
    // Until it is cut, which ends the connection with a reset: nothing is read here before.
    while server.stats().connections_open > 0 {
        most = most.max(resident());
        assert!(Instant::now() < deadline, "never cut");
        std::thread::sleep(Duration::from_millis(5));
    }
    let grown = (most - before) >> 20;
    assert!(grown < 200, "{grown} MiB for answers that nobody takes");
    server.shutdown().unwrap();
}
