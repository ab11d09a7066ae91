//! What one sees of a server over HTTP.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod bounds;
mod hung;
mod known;
mod paths;
mod stopped;
mod tls;
mod troubles;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sbp_e2e::wait::LIMIT;
use sbp_http::{HttpConfig, ObservedServer};
use sbp_server::ServerConfig;
use serde_json::Value;

/// Listens anywhere on loopback.
fn anywhere() -> HttpConfig {
    HttpConfig {
        per_stream: true,
        ..HttpConfig::default()
    }
}

fn start(config: ServerConfig) -> ObservedServer {
    ObservedServer::start(config, Some(&anywhere())).unwrap()
}

/// An answer.
#[derive(Debug)]
struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn read_answer(mut stream: TcpStream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    let head = head.to_lowercase();
    let body = match head.contains("transfer-encoding: chunked") {
        true => from_chunks(body),
        false => body.to_owned(),
    };
    Answer { code, head, body }
}

/// The text whose pieces these are.
fn from_chunks(mut rest: &str) -> String {
    let mut text = String::new();
    loop {
        let (length, behind) = rest.split_once("\r\n").unwrap();
        let (piece, behind) = behind.split_at(usize::from_str_radix(length, 16).unwrap());
        rest = behind.strip_prefix("\r\n").unwrap();
        if piece.is_empty() {
            assert_eq!(rest, "", "nothing comes behind the last piece");
            return text;
        }
        text.push_str(piece);
    }
}

/// Asks as one program, with a host and a path.
fn ask_as(address: SocketAddr, host: &str, path: &str) -> Answer {
    let mut stream = connect(address);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    read_answer(stream)
}

/// Asks with a token.
fn ask_with(server: &ObservedServer, token: &str, path: &str) -> Answer {
    let mut stream = connect(server.http_addr().unwrap());
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}");
    write!(stream, "{head}\r\nConnection: close\r\n\r\n").unwrap();
    read_answer(stream)
}

fn get(address: SocketAddr, path: &str) -> Answer {
    ask_as(address, &address.to_string(), path)
}

fn ask(server: &ObservedServer, path: &str) -> Answer {
    get(server.http_addr().unwrap(), path)
}

fn status(server: &ObservedServer) -> Value {
    let answer = ask(server, "/status.json");
    assert_eq!(answer.code, 200, "{answer:?}");
    answer.json()
}

/// The value of a metric, with its labels as they are written.
fn metric(server: &ObservedServer, name: &str) -> f64 {
    let text = ask(server, "/metrics").body;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}
