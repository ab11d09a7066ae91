//! Clients that ask slowly, too much, or too often.

use std::io::{Read, Write};
use std::net::TcpStream;

use sbp_e2e::peer::Peer;
use sbp_e2e::servers::quick_config;

use super::{ask, connect, read_answer, start};

#[test]
fn connections_that_never_finish_their_question_hold_up_nobody() {
    const SLOW: usize = 500;
    let server = start(quick_config(None, "127.0.0.1:0"));
    let address = server.http_addr().unwrap();
    let slow: Vec<TcpStream> = (0..SLOW)
        .map(|_| {
            let mut stream = connect(address);
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
                .unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(ask(&server, "/health/ready").code, 200);
    }
    assert!(server.descriptors().len() < 100, "{}", server.descriptors().len());
    // The oldest were ended to make room.
    let mut first = slow.into_iter().next().unwrap();
    let ended = first.read(&mut [0; 1_000]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    assert_eq!(peer.store(stream, b"served all the while"), 0);
}

#[test]
fn a_question_has_a_bounded_head() {
    let server = start(quick_config(None, "127.0.0.1:0"));
    let address = server.http_addr().unwrap();
    let mut stream = connect(address);
    write!(stream, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n").unwrap();
    for _ in 0..100 {
        // It may be refused before all of it is sent.
        let _ = write!(stream, "X-Long: {}\r\n", "x".repeat(1_000));
    }
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert!(
        read.is_err() || text.starts_with("HTTP/1.1 431") || text.is_empty(),
        "{text}"
    );
    let mut stream = connect(address);
    write!(stream, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n").unwrap();
    for n in 0..100 {
        let _ = write!(stream, "X-{n}: x\r\n");
    }
    let _ = write!(stream, "\r\n");
    assert_eq!(read_answer(stream).code, 431);
}
