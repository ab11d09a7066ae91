//! Clients that ask slowly, too much, or too often.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sbp_e2e::admin::create_many;
use sbp_e2e::peer::Peer;
use sbp_e2e::servers::quick_config;
use sbp_http::{HttpConfig, ObservedServer};

use super::hung::waiting_figures;
use super::{anywhere, ask, connect, get, read_answer, start, until};

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

/// Connects so often that one more has to make room, without a whole request, and waits until all of them were accepted.
fn say_nothing(server: &ObservedServer) -> Vec<TcpStream> {
    let silent = (0..200).map(|number: usize| {
        let mut stream = connect(server.http_addr().unwrap());
        if number.is_multiple_of(2) {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
        }
        stream
    });
    let silent = silent.collect();
    assert_eq!(ask(server, "/health/live").code, 200);
    silent
}

#[test]
fn who_says_nothing_cuts_off_nobody_who_is_being_answered() {
    let (server, held) = waiting_figures();
    let address = server.http_addr().unwrap();
    let waiting = std::thread::spawn(move || get(address, "/status.json"));
    held.wait_until_reached();
    let silent = say_nothing(&server);
    drop(held);
    let answer = waiting.join().unwrap();
    assert_eq!(answer.code, 200);
    assert_eq!(answer.json()["phase"], "serving", "all of it");
    drop(silent);
}

#[test]
fn who_says_nothing_goes_before_those_who_were_answered() {
    const QUESTION: &[u8] = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let server = start(quick_config(None, "127.0.0.1:0"));
    let mut known = connect(server.http_addr().unwrap());
    let mut answer = [0; 4];
    known.write_all(QUESTION).unwrap();
    known.read_exact(&mut answer).unwrap();
    let silent = say_nothing(&server);
    // What is left of the first answer, and the second one.
    known.write_all(&QUESTION[..QUESTION.len() - 2]).unwrap();
    known.write_all(b"Connection: close\r\n\r\n").unwrap();
    let mut rest = String::new();
    known.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("alive").count(), 2, "{rest}");
    drop(silent);
}

#[test]
fn while_all_are_being_answered_the_next_one_waits() {
    const ALL: usize = 64;
    let (server, held) = waiting_figures();
    let mut asked: Vec<_> = (0..ALL).map(|_| connect(server.http_addr().unwrap())).collect();
    for stream in &mut asked {
        stream
            .write_all(b"GET /status.json?limit=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
    }
    held.wait_until_reached();
    let mut more = connect(server.http_addr().unwrap());
    write!(
        more,
        "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    drop(held);
    for stream in asked {
        assert_eq!(read_answer(stream).code, 200);
    }
    assert_eq!(read_answer(more).code, 200);
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
