//! Whole frames: taken apart, and put together again to the same bytes.

use sbp_frame::{
    FORMAT_FLATBUFFERS, Flags, FrameHead, MAGIC, OpCode, PRELUDE_LENGTH, PayloadPart, Prelude, PushFrame, WriteQueue,
    checksum,
};
use sbp_messages::*;
use sbp_types::{Offset, StreamId};
use smallvec::smallvec;

use super::Header;
use super::reader;

/// A frame's parts.
#[derive(Debug)]
struct Parts {
    prelude: Prelude,
    header: Vec<u8>,
    payload: Vec<u8>,
}

fn take_apart(bytes: &[u8]) -> Parts {
    let (head, body) = bytes.split_first_chunk::<PRELUDE_LENGTH>().expect("sixteen bytes");
    let prelude = Prelude::parse(head);
    assert!(prelude.has_possible_length());
    assert_eq!(
        (prelude.magic, prelude.wire_length()),
        (MAGIC, u64::try_from(bytes.len()).expect("short"))
    );
    let header_length = usize::try_from(prelude.header_length).expect("short");
    let payload_length = usize::try_from(prelude.payload_length().expect("the header fits")).expect("short");
    let (header, rest) = body.split_at(header_length);
    let (payload, trailer) = rest.split_at(payload_length);
    assert_eq!(trailer, checksum(payload).to_be_bytes());
    Parts {
        prelude,
        header: header.to_vec(),
        payload: payload.to_vec(),
    }
}

fn put_together(parts: &Parts) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    let head = FrameHead {
        opcode: parts.prelude.opcode,
        flags: Flags::from_bits_truncate(parts.prelude.flags),
        raw_call_id: parts.prelude.raw_call_id,
        format: parts.prelude.format,
    };
    let payload = [PayloadPart::Copy(&parts.payload)];
    queue.push_frame(head, &parts.header, &payload).expect("it fits");
    let mut slices = [std::io::IoSlice::new(&[]); 4];
    let count = queue.slices(&mut slices);
    slices[..count].iter().flat_map(|slice| slice.to_vec()).collect()
}

/// What the frames are about: (operation, flags, call).
fn told(parts: &Parts) -> (OpCode, u8, u32) {
    (parts.prelude.opcode, parts.prelude.flags, parts.prelude.raw_call_id)
}

/// The header as our encoder writes it is longer at times; what counts is that it says the same.
fn assert_header<H: Header>(parts: &Parts, value: &H) {
    assert_eq!(&H::from_bytes(&parts.header), value);
    assert_eq!(&H::from_bytes(&value.to_bytes()), value);
}

fn judge(name: &str, parts: &Parts) {
    let status = Status::error(ErrorCode::INVALID_REQUEST, "no");
    match name {
        "ping" => assert_eq!((told(parts), parts.header.len()), ((OpCode::PING, 0, 1), 0)),
        "ping-full" => assert_eq!(
            (told(parts), parts.header.as_slice()),
            ((OpCode::PING, 0, 2), &[0xff][..])
        ),
        "pong" => assert_eq!(
            (told(parts), parts.header.as_slice()),
            ((OpCode::PING, 3, 2), &[0xff][..])
        ),
        "goaway-bare" => assert_eq!((told(parts), parts.header.len()), ((OpCode::GOAWAY, 0, 0), 0)),
        "goaway" => {
            assert_eq!(told(parts), (OpCode::GOAWAY, 0, 9));
            let header = GoAway {
                grace_ms: 10_000,
                ..GoAway::default()
            };
            assert_header(parts, &header);
        }
        "heartbeat" => {
            assert_eq!(told(parts), (OpCode::HEARTBEAT, 0, 1));
            let header = HeartbeatRequest {
                client_id: "c".to_owned(),
                client_role: ClientRole::CLIENT,
                protocol_revision: 1,
                ..HeartbeatRequest::default()
            };
            assert_header(parts, &header);
        }
        "create" => {
            assert_eq!(told(parts), (OpCode::CREATE_STREAMS, 0, 3));
            let stream = Stream {
                name: "flights".to_owned(),
                replica_nums: 1,
                ..Stream::default()
            };
            let header = CreateStreamsRequest {
                timeout_ms: 500,
                streams: vec![stream],
            };
            assert_header(parts, &header);
        }
        "append" => {
            assert_eq!(told(parts), (OpCode::APPEND, 0, 0x7fff_0000));
            let entry = AppendInfo {
                stream_id: StreamId(1),
                batch_length: 5,
                ..AppendInfo::default()
            };
            let header = AppendRequest {
                timeout_ms: 0,
                append_requests: smallvec![entry],
            };
            header.validate(parts.payload.len()).expect("the lengths add up");
            assert_header(parts, &header);
        }
        "appended" => {
            assert_eq!(told(parts), (OpCode::APPEND, 3, 4));
            let result = AppendResult {
                stream_id: StreamId(1),
                base_offset: Some(Offset(40)),
                ..AppendResult::default()
            };
            let header = AppendResponse {
                append_responses: smallvec![result],
                ..AppendResponse::default()
            };
            assert_header(parts, &header);
        }
        "fetched" => {
            assert_eq!(told(parts), (OpCode::FETCH, 1, 5));
            let result = FetchResult {
                stream_id: StreamId(1),
                batch_length: 5,
                record_count: 1,
                ..FetchResult::default()
            };
            let header = FetchResponse {
                fetch_responses: smallvec![result],
                ..FetchResponse::default()
            };
            header.validate(parts.payload.len()).expect("the lengths add up");
            assert_header(parts, &header);
        }
        "refused" => {
            assert_eq!(told(parts), (OpCode::LIST_RANGES, 7, 6));
            assert_header(parts, &SystemErrorResponse { status });
        }
        other => panic!("no test knows the frame {other}"),
    }
}

#[test]
fn every_frame() {
    let mut count = 0;
    for (_, vectors) in reader::files("frames") {
        for vector in vectors {
            let bytes = vector.by("python").expect("bytes");
            let parts = take_apart(bytes);
            assert_eq!(parts.prelude.format, FORMAT_FLATBUFFERS, "{}", vector.name);
            judge(&vector.name, &parts);
            assert_eq!(put_together(&parts), bytes, "{}", vector.name);
            count += 1;
        }
    }
    assert_eq!(count, 11, "frames were read");
}
