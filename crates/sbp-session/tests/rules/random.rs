//! Sequences of right and wrong frames that nobody thought of, cut anywhere.

use proptest::prelude::*;
use sbp_frame::OpCode;

use crate::script::{Outcome, Raw, Subject, pattern};

fn raw() -> impl Strategy<Value = Raw> {
    let opcode = prop_oneof![
        8 => prop::sample::select(vec![OpCode::APPEND, OpCode::FETCH, OpCode::HEARTBEAT]),
        2 => Just(OpCode::PING),
        1 => prop::sample::select(vec![OpCode::GOAWAY, OpCode(0), OpCode(0x7777)]),
    ];
    let call_id = prop_oneof![8 => 0_u32..30, 1 => any::<u32>()];
    let lengths = (0_usize..40, prop_oneof![6 => 0_usize..200, 1 => 30_000_usize..80_000]);
    let rarely = |value: BoxedStrategy<u32>| prop_oneof![30 => Just(None), 1 => value.prop_map(Some)];
    let wrong = (
        prop_oneof![20 => Just(23_u8), 1 => any::<u8>()],
        prop_oneof![20 => Just(1_u8), 1 => any::<u8>()],
        rarely(prop_oneof![0_u32..100, any::<u32>()].boxed()),
        rarely((0_u32..100).boxed()),
        rarely(any::<u32>().boxed()),
    );
    (opcode, 0_u8..16, call_id, lengths, wrong).prop_map(|(opcode, flags, call_id, (header, payload), wrong)| {
        let (magic, format, frame_length, header_length, checksum) = wrong;
        let (header, payload) = (pattern(header), pattern(payload));
        Raw {
            frame_length,
            magic,
            opcode: opcode.0,
            flags,
            call_id,
            format,
            header_length,
            header,
            payload,
            checksum,
        }
    })
}

/// Plays the bytes in pieces of the given sizes, over and over.
fn play(is_server: bool, bytes: &[u8], sizes: &[usize]) -> Outcome {
    let mut subject = match is_server {
        true => Subject::server(),
        false => Subject::client()
            .with_calls(OpCode::APPEND, 8)
            .with_calls(OpCode::FETCH, 8),
    };
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (piece, later) = rest.split_at((*size).min(rest.len()));
        subject.receive(piece);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    subject.outcome()
}

proptest! {
    #[test]
    fn any_frames_have_one_outcome(
        is_server in any::<bool>(),
        frames in prop::collection::vec(raw(), 1..14),
        sizes in prop::collection::vec(prop_oneof![1_usize..20, 1_usize..2_000, 1_usize..100_000], 1..12),
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(Raw::bytes).collect();
        let whole = play(is_server, &bytes, &[usize::MAX]);
        prop_assert_eq!(play(is_server, &bytes, &sizes), whole);
    }

    #[test]
    fn any_bytes_have_one_outcome(
        is_server in any::<bool>(),
        valid_first in any::<bool>(),
        noise in prop::collection::vec(any::<u8>(), 1..400),
        sizes in prop::collection::vec(1_usize..30, 1..12),
    ) {
        let mut bytes = if valid_first { Raw::request(OpCode::PING, 1).bytes() } else { Vec::new() };
        // A length that is possible, so that more than four bytes are looked at.
        bytes.extend_from_slice(&[0, 0, 0, noise.len().to_le_bytes()[0] | 16, 23]);
        bytes.extend_from_slice(&noise);
        let whole = play(is_server, &bytes, &[usize::MAX]);
        prop_assert_eq!(play(is_server, &bytes, &sizes), whole);
    }
}
