//! Who gets a connection, and how many.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sbp_server::{Server, ServerConfig};

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
