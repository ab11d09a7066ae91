//! The frame codec and the receiving half of a connection: bytes in any pieces have one outcome.

use std::time::Instant;

use bytes::{BufMut, BytesMut};
use sbp_frame::{Frame, OpCode, PRELUDE_LENGTH, Prelude, checksum};
use sbp_session::{Event, Outgoing, Role, Session, SessionConfig};

use crate::vectors;

/// Own requests that a client has made before the bytes come: ids 1 to this.
const CALLS: u64 = 8;
/// Bytes behind which no long part begins.
const MOST: usize = 256 * 1024;

/// The first byte says who reads, in pieces of how many bytes, and whether lengths and checksums are put right first.
pub fn run(data: &[u8]) {
    let Some((&way, bytes)) = data.split_first() else {
        return;
    };
    prelude(bytes);
    let bytes = if way & 1 == 0 { bytes.to_vec() } else { mended(bytes) };
    let mut buffer = BytesMut::from(bytes.as_slice());
    while let Ok(Some(_)) = Frame::decode(&mut buffer) {}
    let role = if way & 2 == 0 { Role::Server } else { Role::Client };
    let whole = play(role, &bytes, usize::MAX);
    // Few bytes at a time, but never so few that a long input takes long.
    let step = (usize::from(way >> 2) + 1).max(bytes.len() / 512);
    let pieces = play(role, &bytes, step);
    assert_eq!(pieces, whole, "the pieces that bytes come in change what happens");
}

/// Every frame of the vectors, each alone and all glued, as each side reads them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let files = vectors::files("frames");
    let frames: Vec<Vec<u8>> = files
        .iter()
        .flat_map(|(_, vectors)| vectors)
        .flat_map(|vector| &vector.parts)
        .map(|(_, bytes)| bytes.clone())
        .collect();
    let mut seeds = vec![
        [&[0], frames.concat().as_slice()].concat(),
        [&[26], frames.concat().as_slice()].concat(),
    ];
    for (number, frame) in frames.iter().enumerate() {
        let way = u8::try_from(number).unwrap_or_default().wrapping_mul(7);
        seeds.push([&[way], frame.as_slice()].concat());
    }
    for (way, flags) in [(1, 0x80), (9, 0x40), (3, 0x83), (11, 0xc3), (253, 0x80)] {
        let mut long = Prelude::new(OpCode::FETCH, flags, 1, 1, 70_000, 90_000)
            .map_or_else(|_| Vec::new(), |prelude| prelude.to_bytes().to_vec());
        long.extend_from_slice(&frames.concat());
        seeds.push([&[way], long.as_slice()].concat());
    }
    seeds
}

fn prelude(bytes: &[u8]) {
    let Some(first) = bytes.first_chunk::<PRELUDE_LENGTH>() else {
        return;
    };
    let prelude = Prelude::parse(first);
    assert_eq!(prelude.to_bytes(), *first, "a prelude is its sixteen bytes");
    if let (true, Some(payload)) = (prelude.has_possible_length(), prelude.payload_length()) {
        assert_eq!(
            prelude.wire_length(),
            u64::from(prelude.header_length) + u64::from(payload) + 20
        );
    }
}

/// The bytes as frames whose lengths and checksums are right, so that what is behind those checks is reached. Two flag
/// bits without a meaning ask for a long header or payload, which short inputs could not have.
fn mended(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((first, rest)) = bytes.split_first_chunk::<PRELUDE_LENGTH>() {
        let told = Prelude::parse(first);
        let is_long = |bit: u8| told.flags & bit != 0 && out.len() < MOST;
        let (header, rest) = part(told.header_length, rest, is_long(0x40));
        let (payload, rest) = part(told.frame_length, rest, is_long(0x80));
        let flags = told.flags & 0x07;
        if let Ok(right) = Prelude::new(told.opcode, flags, told.raw_call_id, 1, header.len(), payload.len()) {
            out.extend_from_slice(&right.to_bytes());
            out.extend_from_slice(&header);
            out.extend_from_slice(&payload);
            out.put_u32(checksum(&payload));
        }
        bytes = rest;
    }
    out
}

/// Bytes for a part of a frame: the next of the input, or many that no input has.
fn part(told: u32, rest: &[u8], is_long: bool) -> (Vec<u8>, &[u8]) {
    let told = usize::try_from(told).unwrap_or_default();
    if is_long {
        let pattern = (0..told & 0x3_ffff).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]);
        return (pattern.collect(), rest);
    }
    let (here, rest) = rest.split_at((told & 0x1ff).min(rest.len()));
    (here.to_vec(), rest)
}

/// What happened, in words that compare: no addresses, no pieces.
fn play(role: Role, bytes: &[u8], step: usize) -> Vec<String> {
    let now = Instant::now();
    let mut session = Session::new(SessionConfig::new(role), now);
    let mut seen = Vec::new();
    if role == Role::Client {
        for user in 1..=CALLS {
            let opcode = if user % 2 == 0 { OpCode::APPEND } else { OpCode::FETCH };
            let request = Outgoing {
                opcode,
                header: b"header",
                payload: &[],
                user,
                deadline: None,
                receive_charge: 1 << 20,
            };
            session.send_request(now, request).expect("room for a request");
        }
    }
    for piece in bytes.chunks(step.min(bytes.len().max(1))) {
        feed(&mut session, piece, now);
        seen.extend(std::iter::from_fn(|| session.poll_event()).map(|event| words(&event)));
    }
    session.handle_eof(now);
    seen.extend(std::iter::from_fn(|| session.poll_event()).map(|event| words(&event)));
    seen
}

fn feed(session: &mut Session, mut piece: &[u8], now: Instant) {
    while !piece.is_empty() && session.wants_read() {
        let mut buffer = session.recv_buffer();
        let count = piece.len().min(buffer.remaining_mut());
        let (here, later) = piece.split_at(count);
        buffer.put_slice(here);
        session.handle_received(count, now);
        piece = later;
    }
}

fn words(event: &Event) -> String {
    match event {
        Event::Request(frame) => format!("request {}", told(frame)),
        Event::Response { user, frame, end, .. } => format!("response {user} {end} {}", told(frame)),
        Event::Pong { user, .. } => format!("pong {user}"),
        event => format!("{event:?}"),
    }
}

/// A frame in few words: its parts by length and checksum.
fn told(frame: &Frame) -> String {
    let payload = frame.payload.chunks().concat();
    let head = (frame.opcode, frame.flags, frame.call_id, frame.format);
    let header = (frame.header.len(), checksum(&frame.header));
    format!("{head:?} {header:?} {:?}", (payload.len(), checksum(&payload)))
}
