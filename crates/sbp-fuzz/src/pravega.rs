//! Both ends of a Pravega connection, and events: bytes in any pieces have one outcome.

use std::time::Instant;

use bytes::{BufMut, Bytes};
use sbp_pravega::{ClientConfig, Connection, Event, Events, Fault, Reply, Request, ServerConfig, WriterId};
use sbp_wire::Endpoint;

/// What real peers said.
const VECTORS: [&str; 12] = [
    include_str!("../../sbp-pravega/tests/vectors/writer.hex"),
    include_str!("../../sbp-pravega/tests/vectors/bytes.hex"),
    include_str!("../../sbp-pravega/tests/vectors/partial.hex"),
    include_str!("../../sbp-pravega/tests/vectors/append-forms.hex"),
    include_str!("../../sbp-pravega/tests/vectors/conditional.hex"),
    include_str!("../../sbp-pravega/tests/vectors/attributes.hex"),
    include_str!("../../sbp-pravega/tests/vectors/table.hex"),
    include_str!("../../sbp-pravega/tests/vectors/table-wheel.hex"),
    include_str!("../../sbp-pravega/tests/vectors/unknown-type.hex"),
    include_str!("../../sbp-pravega/tests/vectors/negative-length.hex"),
    include_str!("../../sbp-pravega/tests/vectors/other-versions.hex"),
    include_str!("../../sbp-pravega/tests/vectors/no-setup.hex"),
];

/// The first byte says who reads, and in pieces of how many bytes.
pub fn run(data: &[u8]) {
    let Some((&way, bytes)) = data.split_first() else {
        return;
    };
    let step = (usize::from(way >> 2) + 1).max(bytes.len() / 512);
    let wrong = "the pieces that bytes come in change what happens";
    match way & 3 {
        3 => assert_eq!(cut(bytes, step), cut(bytes, usize::MAX), "{wrong}"),
        end => assert_eq!(
            play(end == 1, bytes, step),
            play(end == 1, bytes, usize::MAX),
            "{wrong}"
        ),
    }
}

/// What real peers said, as each side reads it, and the bytes of a segment.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, text) in VECTORS.iter().enumerate() {
        let way = u8::try_from(number).unwrap_or_default().wrapping_mul(20) & !3;
        for (end, side) in [(0, "> "), (1, "< ")] {
            let mut said = vec![way | end];
            for digits in text.lines().filter_map(|line| line.strip_prefix(side)) {
                said.extend(bytes(digits));
            }
            seeds.push(said);
        }
    }
    seeds.push(b"\x07\0\0\0\0\0\0\0\x03one\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05three".to_vec());
    seeds
}

pub(crate) fn bytes(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).filter_map(|place| digits.get(2 * place..2 * place + 2));
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// The events in bytes that come in pieces of `step`, and what ends them.
fn cut(bytes: &[u8], step: usize) -> (Vec<(i64, Bytes)>, Option<Fault>) {
    let mut events = Events::new(0);
    let mut found = Vec::new();
    for piece in bytes.chunks(step.min(bytes.len()).max(1)) {
        events.push(Bytes::copy_from_slice(piece));
        loop {
            match events.next_event() {
                Ok(Some(event)) => found.push(event),
                Ok(None) => break,
                Err(fault) => return (found, Some(fault)),
            }
        }
    }
    (found, None)
}

/// What happens when the bytes come in pieces of `step`. What is told is within what came.
fn play(is_client: bool, bytes: &[u8], step: usize) -> Vec<Event> {
    let now = Instant::now();
    let mut end = match is_client {
        true => client(now),
        false => Connection::server(ServerConfig::default(), now),
    };
    let before = end.held_bytes();
    let mut told = Vec::new();
    for piece in bytes.chunks(step.min(bytes.len()).max(1)) {
        let mut left = piece;
        while !left.is_empty() {
            if !end.wants_read() {
                // At a limit it goes on once what it has told is answered; else it is closed.
                drain(&mut end, &mut told, now);
                if !end.wants_read() {
                    break;
                }
            }
            let mut buffer = end.recv_buffer();
            assert!(buffer.remaining_mut() > 0, "a buffer always has room");
            let (head, tail) = left.split_at(left.len().min(buffer.remaining_mut()));
            buffer.put_slice(head);
            end.handle_received(head.len(), now);
            left = tail;
        }
        drain(&mut end, &mut told, now);
        // Replies are longer than the shortest requests.
        assert!(
            end.held_bytes() <= before + 8 * bytes.len() + 64 * 1024,
            "more is held than came"
        );
    }
    let appended: usize = told
        .iter()
        .map(|event| match event {
            Event::Request {
                request: Request::Append { data, .. },
                ..
            } => data.len(),
            _ => 0,
        })
        .sum();
    assert!(appended <= bytes.len(), "more was appended than came");
    told
}

/// Takes what there is to tell, and answers requests with something.
fn drain(end: &mut Connection, told: &mut Vec<Event>, now: Instant) {
    while let Some(event) = end.poll_event() {
        if let Event::Request { call, request } = &event {
            let reply = match request {
                Request::SetupAppend { segment, writer, .. } => Reply::AppendSetup {
                    segment: segment.clone(),
                    writer: *writer,
                    last: 0,
                },
                _ => Reply::AttributeUpdated(true),
            };
            let _ = end.answer(*call, &reply, now);
        }
        told.push(event);
    }
}

/// A client that has asked for something of every kind, with ids from 1 on.
fn client(now: Instant) -> Connection {
    let mut client = Connection::client(ClientConfig::default(), now);
    let (segment, token) = (|| String::from("probe/x/0.#epoch.0"), String::new);
    let writer = WriterId(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
    let requests = [
        Request::SetupAppend {
            writer,
            segment: segment(),
            token: token(),
        },
        Request::Append {
            writer,
            data: Bytes::from_static(b"\0\0\0\0\0\0\0\0"),
            events: 1,
            last: 2,
        },
        Request::Read {
            segment: segment(),
            offset: 0,
            length: 1_000,
            token: token(),
        },
        Request::Info {
            segment: segment(),
            token: token(),
        },
        Request::Seal {
            segment: segment(),
            token: token(),
        },
    ];
    for (user, request) in (0..).zip(&requests) {
        client.send(request, user, now).expect("it fits");
    }
    client
}
