//! The proxy between real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sbp_frame::{FORMAT_FLATBUFFERS, Flags, Frame, FrameHead, OpCode, PayloadPart, PushFrame, WriteQueue};
use sbp_proxy::{Action, Direction, Fault, Held, Hook, Observer, Proxy, ProxyConfig, ProxyError, Rule};

const LIMIT: Duration = Duration::from_secs(20);

/// A server that answers each frame with one of the same payload.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut peer = Peer::new(stream.unwrap());
            thread::spawn(move || {
                while let Some(frame) = peer.receive() {
                    peer.send(frame.opcode, Flags::RESPONSE | Flags::END, frame.call_id.raw(), &{
                        frame.payload.into_contiguous()
                    });
                }
            });
        }
    });
    address
}

/// One end of a connection.
struct Peer {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Peer {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    fn connect(proxy: &Proxy) -> Self {
        Self::new(TcpStream::connect(proxy.local_addr()).unwrap())
    }

    fn send(&mut self, opcode: OpCode, flags: Flags, call: u32, payload: &[u8]) {
        let mut queue = WriteQueue::new();
        let head = FrameHead {
            opcode,
            flags,
            raw_call_id: call,
            format: FORMAT_FLATBUFFERS,
        };
        queue
            .push_frame(head, b"header", &[PayloadPart::Copy(payload)])
            .unwrap();
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = queue.slices(&mut slices);
            match self.stream.write_vectored(&slices[..count]) {
                Ok(written) => queue.advance(written),
                // The other side has cut the connection; whoever reads will see it.
                Err(_) => return,
            }
        }
    }

    fn ask(&mut self, call: u32) {
        self.send(OpCode::APPEND, Flags::NONE, call, &call.to_be_bytes());
    }

    /// The next frame; nothing when the connection has ended.
    fn receive(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn answers(&mut self, count: usize) -> Vec<u32> {
        (0..count)
            .map(|_| self.receive().expect("the connection ended").call_id.raw())
            .collect()
    }
}

fn proxy(rules: &[&str]) -> Proxy {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let config = ProxyConfig {
        rules,
        ..ProxyConfig::new(echo())
    };
    Proxy::start(config).unwrap()
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn frames_of_all_sizes_go_through_and_are_counted() {
    let (send, seen) = mpsc::channel();
    let config = ProxyConfig {
        observer: Some(Observer::new(move |seen, action| {
            send.send((seen.direction, seen.number, action)).unwrap();
        })),
        ..ProxyConfig::new(echo())
    };
    let proxy = Proxy::start(config).unwrap();
    let mut client = Peer::connect(&proxy);
    for (call, size) in [(1, 0), (2, 100), (3, 5_000_000)] {
        let payload = vec![7; size];
        client.send(OpCode::FETCH, Flags::NONE, call, &payload);
        let answer = client.receive().unwrap();
        assert_eq!(answer.call_id.raw(), call);
        assert!(answer.payload.into_contiguous()[..] == payload[..]);
    }
    let counts = proxy.counts();
    assert_eq!(
        (counts.frames_to_server, counts.frames_to_client, counts.faults()),
        (3, 3, 0)
    );
    assert_eq!(counts.bytes_to_server, 5_000_100 + 3 * 26);
    assert_eq!((counts.connections, counts.open, counts.foreign), (1, 1, 0));
    drop(client);
    wait_for("the end of the connection", || proxy.counts().open == 0);
    proxy.shutdown();
    let seen: Vec<_> = seen.try_iter().collect();
    assert_eq!(seen.len(), 6);
    assert!(seen.contains(&(Direction::ToServer, 3, Action::Passed)));
}

#[test]
fn every_fault_reaches_the_sockets() {
    let proxy = proxy(&[
        "drop request APPEND nth=1",
        "duplicate answer APPEND nth=1",
        "reorder answer APPEND nth=1",
        "delay=30ms answer nth=2",
    ]);
    let mut client = Peer::connect(&proxy);
    let begin = Instant::now();
    for call in 1..=5 {
        client.ask(call);
    }
    // The first request is lost; the second's answer comes twice; the third's is overtaken by the fourth's.
    assert_eq!(client.answers(5), [2, 2, 4, 3, 5]);
    assert!(begin.elapsed() >= Duration::from_millis(30));
    let counts = proxy.counts();
    assert_eq!(
        (counts.dropped, counts.duplicated, counts.reordered, counts.delayed),
        (1, 1, 1, 1)
    );
    let rules: Vec<_> = proxy.rules().iter().map(|count| (count.matched, count.fired)).collect();
    // A rule does not count what one in front of it has taken.
    assert_eq!(rules, [(5, 1), (4, 1), (3, 1), (2, 1)]);
}

#[test]
fn cuts_end_both_sides() {
    let proxy = proxy(&["cut answer nth=3"]);
    let mut client = Peer::connect(&proxy);
    for call in 1..=5 {
        client.ask(call);
    }
    assert_eq!(client.answers(2), [1, 2]);
    assert!(client.receive().is_none());
    wait_for("the end of the connection", || proxy.counts().open == 0);
    // A cut inside a frame: its bytes are there, and no more.
    proxy.add("cut=9 answer nth=1".parse().unwrap());
    let mut client = Peer::connect(&proxy);
    client.ask(1);
    assert!(client.receive().is_none());
    assert_eq!(client.buffer.len(), 9);
    assert_eq!(proxy.counts().cut, 2);
    // And one that no frame asks for.
    let mut client = Peer::connect(&proxy);
    client.ask(1);
    assert_eq!(client.answers(1), [1]);
    proxy.cut_all();
    assert!(client.receive().is_none());
}

#[test]
fn connections_that_are_reset_end_with_an_error_on_both_sides() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(ProxyConfig::new(listener.local_addr().unwrap().to_string())).unwrap();
    let mut client = Peer::connect(&proxy);
    let mut server = Peer::new(listener.accept().unwrap().0);
    client.ask(1);
    assert!(server.receive().is_some());
    proxy.reset_all();
    for peer in [&mut client, &mut server] {
        let read = peer.stream.read(&mut [0; 8]);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_hook_on_another_thread_decides() {
    let (send, held) = mpsc::channel::<Held>();
    let hook = Hook::new(move |frame| send.send(frame).unwrap());
    let proxy = proxy(&[]);
    let id = proxy.add(Rule::new(Fault::Hold(hook)).answers().times(3));
    let mut client = Peer::connect(&proxy);
    for call in 1..=4 {
        client.ask(call);
    }
    let first = held.recv_timeout(LIMIT).unwrap();
    assert_eq!((first.seen().call_id, first.seen().opcode), (1, OpCode::APPEND));
    let frame = Frame::decode(&mut BytesMut::from(&first.bytes()[..])).unwrap().unwrap();
    assert_eq!(frame.payload.into_contiguous()[..], 1_u32.to_be_bytes());
    first.pass();
    held.recv_timeout(LIMIT).unwrap().discard();
    assert_eq!(client.answers(1), [1]);
    held.recv_timeout(LIMIT).unwrap().cut();
    assert!(client.receive().is_none());
    assert_eq!(proxy.remove(id).unwrap().fired, 3);
}

#[test]
fn a_target_can_come_later_and_change() {
    let proxy = Proxy::start(ProxyConfig::default()).unwrap();
    assert!(Peer::connect(&proxy).receive().is_none(), "there is nobody to talk to");
    proxy.set_target(Some(echo()));
    let mut client = Peer::connect(&proxy);
    client.ask(1);
    assert_eq!(client.answers(1), [1]);
    // A port where nobody listens.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    proxy.set_target(Some(gone.to_string()));
    assert!(Peer::connect(&proxy).receive().is_none());
    client.ask(2);
    assert_eq!(client.answers(1), [2], "connections that were there stay");
    assert_eq!(proxy.counts().refused, 2);
}

#[test]
fn what_is_no_frame_goes_through() {
    let proxy = proxy(&["drop"]);
    let mut client = Peer::connect(&proxy);
    // The echo fails on it and closes, which comes back.
    client.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(client.receive().is_none());
    assert_eq!((proxy.counts().foreign, proxy.counts().dropped), (1, 0));
}

#[test]
fn it_ends_with_its_connections_and_frees_its_port() {
    let proxy = proxy(&[]);
    let address = proxy.local_addr();
    let mut client = Peer::connect(&proxy);
    client.ask(1);
    assert_eq!(client.answers(1), [1]);
    assert_eq!(proxy.descriptors().len(), 3, "listener and two sockets");
    proxy.shutdown();
    proxy.shutdown();
    assert!(client.receive().is_none());
    assert!(TcpStream::connect(address).is_err());
    let again = ProxyConfig {
        listen: address.to_string(),
        ..ProxyConfig::new(echo())
    };
    Proxy::start(again).unwrap();
}

#[test]
fn it_listens_on_this_machine_only_unless_told_otherwise() {
    let config = |listen: &str| ProxyConfig {
        listen: listen.to_owned(),
        ..ProxyConfig::default()
    };
    let refused = Proxy::start(config("0.0.0.0:0")).unwrap_err();
    assert!(matches!(refused, ProxyError::InsecureListen { .. }), "{refused}");
    let told = ProxyConfig {
        insecure_listen: true,
        ..config("0.0.0.0:0")
    };
    assert!(Proxy::start(told).is_ok());
    assert!(matches!(
        Proxy::start(config("nonsense")).unwrap_err(),
        ProxyError::Listen(_)
    ));
    let first = Proxy::start(ProxyConfig::default()).unwrap();
    let taken = Proxy::start(config(&first.address())).unwrap_err().to_string();
    assert!(taken.contains("taken by another process"), "{taken}");
}
