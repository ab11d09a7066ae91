//! Clients that ask slowly, too much, or too often.

use std::io::{Read, Write};
use std::net::TcpStream;

use std::time::Duration;

use sbp_e2e::admin::create_many;
use sbp_e2e::peer::Peer;
use sbp_e2e::servers::quick_config;
use sbp_http::{HttpConfig, ObservedServer};

use super::{anywhere, ask, connect, read_answer, start, until};

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

/// Asks for metrics so often that the answers fill all buffers between the two ends, and reads none of them.
fn scrape_without_reading(server: &ObservedServer) -> TcpStream {
    let mut stream = connect(server.http_addr().unwrap());
    let questions = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    stream.write_all(questions.as_bytes()).unwrap();
    stream
}

#[test]
fn scrapers_that_read_nothing_hold_up_nobody() {
    let server = start(quick_config(None, "127.0.0.1:0"));
    create_many(&mut Peer::connect(&server), 500);
    let slow: Vec<_> = (0..20).map(|_| scrape_without_reading(&server)).collect();
    for path in ["/metrics", "/status.json", "/health/ready"] {
        assert_eq!(ask(&server, path).code, 200, "{path}");
    }
    drop(slow);
}

#[test]
fn a_scraper_that_reads_nothing_is_cut() {
    let http = HttpConfig {
        lifetime: Duration::from_secs(1),
        ..anywhere()
    };
    let server = ObservedServer::start(quick_config(None, "127.0.0.1:0"), Some(&http)).unwrap();
    create_many(&mut Peer::connect(&server), 500);
    let before = server.descriptors().len();
    let mut slow = scrape_without_reading(&server);
    slow.read_exact(&mut [0]).unwrap();
    until("its end", || server.descriptors().len() <= before);
    let mut text = Vec::new();
    // What was on its way, and then the end, perhaps by force.
    let _ended = slow.read_to_end(&mut text);
    let answers = String::from_utf8_lossy(&text).matches("# EOF").count();
    assert!(answers < 200, "{answers} answers were taken by somebody");
}
