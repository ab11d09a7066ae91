//! Both ends of a Seastar RPC connection: bytes in any pieces have one outcome.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use sbp_seastar::{Call, ClientConfig, Codec, Connection, Event, Features, ServerConfig, Signature};
use sbp_wire::Endpoint;

/// What real peers said, and what each side of it says first.
const VECTORS: [&str; 7] = [
    include_str!("../../sbp-seastar/tests/vectors/calls.hex"),
    include_str!("../../sbp-seastar/tests/vectors/unknown-verb.hex"),
    include_str!("../../sbp-seastar/tests/vectors/lz4.hex"),
    include_str!("../../sbp-seastar/tests/vectors/fragmented.hex"),
    include_str!("../../sbp-seastar/tests/vectors/crate-lz4.hex"),
    include_str!("../../sbp-seastar/tests/vectors/stream.hex"),
    include_str!("../../sbp-seastar/tests/vectors/stream-verb.hex"),
];
/// The most that a byte becomes when decompressed, and what is allowed beside that.
const EXPANSION: usize = 256;

/// Which end reads, and what was agreed before the bytes come; nothing was, where the negotiation is among them.
#[derive(Clone, Copy)]
struct Way {
    is_client: bool,
    is_negotiated: bool,
    is_stream: bool,
    codec: Option<Codec>,
}

/// The first byte says who reads what, the second in pieces of how many bytes.
pub fn run(data: &[u8]) {
    let [way, step, bytes @ ..] = data else {
        return;
    };
    let way = Way {
        is_client: way & 1 == 1,
        is_negotiated: way & 2 == 2,
        is_stream: way & 4 == 4,
        codec: match way >> 3 & 3 {
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Lz4Fragmented),
            _ => None,
        },
    };
    let whole = play(way, bytes, usize::MAX);
    let step = (usize::from(*step) + 1).max(bytes.len() / 512);
    assert_eq!(
        play(way, bytes, step),
        whole,
        "the pieces that bytes come in change what happens"
    );
    let signature: Signature = "i32 [str] [[u8]] bytes f64? bool?".parse().expect("a signature");
    if let Ok(values) = signature.decode(&Bytes::copy_from_slice(bytes)) {
        assert!(signature.encode(&values).expect("it was read").len() <= bytes.len());
    }
}

/// What real peers said, as each side reads it.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for text in VECTORS {
        for side in [">", "<"] {
            let said = text.lines().filter_map(|line| line.split_once(' '));
            let steps: Vec<_> = said
                .filter(|(who, _)| *who == side)
                .map(|(_, digits)| bytes(digits))
                .collect();
            let way = u8::from(side == "<");
            for step in [0, 6, 255] {
                seeds.push([&[way, step], steps.concat().as_slice()].concat());
            }
            for (codec, frames) in (0..3_u8).zip(steps.iter().skip(1).cycle()) {
                seeds.push([&[way | 2 | codec << 3, 3], frames.as_slice()].concat());
            }
        }
    }
    for codec in 0..3_u8 {
        seeds.push(vec![2 | 4 | codec << 3, 0, 2, 0, 0, 0, b'h', b'i', 255, 255, 255, 255]);
    }
    seeds
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).filter_map(|place| digits.get(2 * place..2 * place + 2));
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// What happens when the bytes come in pieces of `step`. What is told is within what came.
fn play(way: Way, bytes: &[u8], step: usize) -> Vec<Event> {
    let now = Instant::now();
    let (mut told, mut calls) = (Vec::new(), Vec::new());
    let mut end = end(way, now);
    let most = match way.codec {
        _ if way.is_negotiated && way.codec.is_none() => bytes.len(),
        _ => bytes.len() * EXPANSION,
    };
    for piece in bytes.chunks(step.min(bytes.len()).max(1)) {
        take_in(&mut end, piece, &mut told, &mut calls, now);
        drain(&mut end, &mut told, &mut calls, now);
        assert!(end.held_bytes() <= 3 * most + 64 * 1024, "more is held than came");
    }
    // When a client stops waiting is counted from when its request came.
    for event in &mut told {
        if let Event::Called { due, .. } = event {
            *due = None;
        }
    }
    told
}

/// Requests that are not answered yet, and what they brought.
type Calls = Vec<(Call, Bytes)>;

fn take_in(end: &mut Connection, bytes: &[u8], told: &mut Vec<Event>, calls: &mut Calls, now: Instant) {
    let mut left = bytes;
    while !left.is_empty() {
        if !end.wants_read() {
            // At a limit it goes on once what it has told is answered; else it is closed. Nothing is answered earlier: an id
            // that is used again is a fault while its request is under way, and none behind it.
            drain(end, told, calls, now);
            for (call, payload) in calls.drain(..) {
                let _ = end.reply(call, Ok(&payload), now);
            }
            drain(end, told, calls, now);
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
}

/// Takes what there is to tell, and messages.
fn drain(end: &mut Connection, told: &mut Vec<Event>, calls: &mut Calls, now: Instant) {
    while let Some(event) = end.poll_event() {
        match &event {
            Event::Called { call, payload, .. } => calls.push((*call, payload.clone())),
            Event::Message(message) => end.took(message.len()),
            Event::Negotiated(negotiated) if negotiated.parent.is_some() => {
                let _ = end.admit(now);
            }
            _ => {}
        }
        told.push(event);
    }
}

/// An end as it is before the bytes come; a client that has negotiated waits for calls 1 to 9.
fn end(way: Way, now: Instant) -> Connection {
    let codecs = way.codec.map_or_else(|| Codec::ALL.to_vec(), |codec| vec![codec]);
    let mut end = match way.is_client {
        true => Connection::client(
            ClientConfig {
                codecs: codecs.clone(),
                parent: way.is_stream.then_some(1),
                ..ClientConfig::default()
            },
            now,
        ),
        false => Connection::server(
            ServerConfig {
                codecs: codecs.clone(),
                connection_id: Some(2),
                ..ServerConfig::default()
            },
            now,
        ),
    };
    if way.is_negotiated {
        let negotiation = Features {
            compress: way.codec.map(|codec| codec.name().into()),
            timeout: true,
            stream_parent: (way.is_stream && !way.is_client).then_some(1),
            handler_duration: true,
            ..Features::default()
        };
        let (mut told, mut calls) = (Vec::new(), Vec::new());
        take_in(&mut end, &negotiation.encode(), &mut told, &mut calls, now);
        drain(&mut end, &mut told, &mut calls, now);
        for user in 1..10 {
            let deadline = now + Duration::from_secs(30);
            // A stream has no calls.
            let _ = end.call(1, &Bytes::new(), deadline, user, now);
        }
    }
    end
}
