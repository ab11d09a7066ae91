//! What a server makes of headers does not depend on how their bytes arrive: one script of good and bad requests, over
//! sockets, in 1,000 seeded random chunkings.
//!
//! Which frames are taken for which is the session's matter and tested there; this is about what stands in them.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::BytesMut;
use sbp_e2e::batches::raw_batch;
use sbp_e2e::frames::{frame_bytes, system_error};
use sbp_e2e::peer::{Peer, append_request, fetch_request};
use sbp_e2e::servers::start;
use sbp_frame::{CallId, Flags, FrameHead, OpCode};
use sbp_messages::{
    AppendRequest, AppendResponse, Encoder, ErrorCode, FetchInfo, FetchResponse, Message, TrimStreamsRequest,
    TrimStreamsResponse, TrimmedStream,
};
use sbp_server::Server;
use sbp_types::{Offset, StreamId};

const CHUNKINGS: u64 = 1_000;
/// As many of them have the header that takes long to verify, too.
const WITH_BOMB: u64 = 50;

/// One request, and what is to be answered: a system error, the status of its only entry, or nothing at all.
struct Asked {
    name: &'static str,
    bytes: Vec<u8>,
    answer: Option<Answer>,
}

/// Name, operation, header, payload and answer.
type Case<'a> = (&'static str, OpCode, Vec<u8>, &'a [u8], Option<Answer>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    System(ErrorCode),
    Entry(ErrorCode),
}

fn header<M: Message>(message: &M) -> Vec<u8> {
    let mut header = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut header);
    header.to_vec()
}

/// A header that names one table so often that whoever visits each of them has much to do.
fn bomb() -> Vec<u8> {
    let count = 20_000_u32;
    // The root: offset, vtable of two fields, table; then the vector, the shared table's vtable and the table.
    let mut bytes = Vec::new();
    let mut put = |words: &[u32]| {
        words
            .iter()
            .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()))
    };
    put(&[16, 0, 8 | 12 << 16, 8 << 16 | 4, 8, 0, 4, count]);
    let table = 32 + 4 * count + 4;
    put(&(0..count).map(|n| table - (32 + 4 * n)).collect::<Vec<_>>());
    put(&[4 | 4 << 16, 4]);
    bytes
}

/// The script. Every request's number is its place in it, from 1; the last one appends a record.
fn script(stream: StreamId, has_bomb: bool) -> Vec<Asked> {
    let batch = raw_batch(b"record");
    let good = append_request(&[(stream, batch.len())]);
    let two = append_request(&[(stream, batch.len()), (stream, batch.len())]);
    let twice = [&batch[..], &batch].concat();
    let with = |change: &dyn Fn(&mut AppendRequest)| {
        let mut request = two.clone();
        change(&mut request);
        header(&request)
    };
    let fetch = |change: &dyn Fn(&mut FetchInfo)| {
        let mut request = fetch_request(0, 0, &[sbp_e2e::peer::from(stream, 0)]);
        change(&mut request.fetch_requests[0]);
        header(&request)
    };
    let trim = |offset| {
        let mut request = TrimStreamsRequest::default();
        request.trimmed_streams.push(TrimmedStream {
            stream_id: stream,
            trim_offset: Offset(offset),
        });
        header(&request)
    };
    let invalid = Some(Answer::System(ErrorCode::INVALID_REQUEST));
    let entry = |code| Some(Answer::Entry(code));
    let whole = header(&good);
    let cases: Vec<Case<'_>> = vec![
        ("no header", OpCode::APPEND, vec![], b"", invalid),
        ("unknown opcode", OpCode(0x7777), whole.clone(), &batch, None),
        ("zeros", OpCode::APPEND, vec![0; 64], b"", invalid),
        ("ones", OpCode::FETCH, vec![0xff; 64], b"", invalid),
        (
            "half a header",
            OpCode::APPEND,
            whole[..whole.len() / 2].to_vec(),
            &batch,
            invalid,
        ),
        ("many tables in one", OpCode::APPEND, bomb(), b"", invalid),
        (
            "no entries",
            OpCode::APPEND,
            header(&AppendRequest::default()),
            b"",
            invalid,
        ),
        (
            "lengths below the payload",
            OpCode::APPEND,
            whole.clone(),
            &twice,
            invalid,
        ),
        (
            "lengths above the payload",
            OpCode::APPEND,
            header(&two),
            &batch,
            invalid,
        ),
        (
            "a negative length",
            OpCode::APPEND,
            with(&|r| r.append_requests[0].batch_length = -1),
            &twice,
            invalid,
        ),
        (
            "an index twice",
            OpCode::APPEND,
            with(&|r| r.append_requests[1].request_index = 0),
            &twice,
            invalid,
        ),
        (
            "an index outside",
            OpCode::APPEND,
            with(&|r| r.append_requests[1].request_index = 2),
            &twice,
            invalid,
        ),
        (
            "a negative offset",
            OpCode::FETCH,
            fetch(&|f| f.fetch_offset = Offset(-3)),
            b"",
            invalid,
        ),
        (
            "beyond the end",
            OpCode::FETCH,
            fetch(&|f| f.fetch_offset = Offset(1 << 40)),
            b"",
            entry(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS),
        ),
        (
            "the largest offset",
            OpCode::FETCH,
            fetch(&|f| f.fetch_offset = Offset(i64::MAX)),
            b"",
            entry(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS),
        ),
        (
            "another stream",
            OpCode::FETCH,
            fetch(&|f| f.stream_id = StreamId(i64::MAX)),
            b"",
            entry(ErrorCode::NOT_FOUND),
        ),
        (
            "trim beyond the end",
            OpCode::TRIM_STREAMS,
            trim(1 << 40),
            b"",
            entry(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS),
        ),
        (
            "trim below zero",
            OpCode::TRIM_STREAMS,
            trim(-1),
            b"",
            entry(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS),
        ),
        ("good", OpCode::APPEND, whole.clone(), &batch, entry(ErrorCode::NONE)),
    ];
    let frame = |(place, (name, opcode, header, payload, answer)): (usize, Case<'_>)| {
        let head = FrameHead {
            opcode,
            flags: Flags::NONE,
            raw_call_id: u32::try_from(place).unwrap() + 1,
            format: 1,
        };
        let bytes = frame_bytes(head, &header, payload);
        Asked { name, bytes, answer }
    };
    let wanted = cases
        .into_iter()
        .filter(|case| has_bomb || case.0 != "many tables in one");
    wanted.enumerate().map(frame).collect()
}

/// Writes `bytes` in pieces that a seed decides.
fn write_in_chunks(peer: &mut Peer, bytes: &[u8], seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let most = [60, 300, 1_460, bytes.len()][dice.usize(..4)];
    let mut rest = bytes;
    while !rest.is_empty() {
        // The bomb is 80 KB: in small pieces at its ends only.
        let most = if rest.len() > 4_000 && dice.usize(..8) > 0 {
            most.max(20_000)
        } else {
            most
        };
        let (piece, later) = rest.split_at(dice.usize(1..=most).min(rest.len()));
        peer.write(piece);
        rest = later;
    }
}

/// The status of an answer with one entry.
fn entry_code(opcode: OpCode, header: &[u8]) -> ErrorCode {
    match opcode {
        OpCode::APPEND => AppendResponse::decode(header).unwrap().append_responses[0].status.code,
        OpCode::FETCH => FetchResponse::decode(header).unwrap().fetch_responses[0].status.code,
        OpCode::TRIM_STREAMS => {
            TrimStreamsResponse::decode(header).unwrap().trim_responses[0]
                .status
                .code
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_thousand_chunkings_have_one_outcome() {
    let server = start(None);
    let stream = Peer::connect(&server).create("s");
    play(&server, &script(stream, true), 0..WITH_BOMB);
    play(&server, &script(stream, false), WITH_BOMB..CHUNKINGS);
    let stored = Peer::connect(&server).fetch_all(stream, 0);
    assert_eq!(
        stored.len() as u64,
        CHUNKINGS,
        "each stored its one good record, and nothing of the others"
    );
    server.shutdown().unwrap();
}

/// Sends the script in the chunkings of these seeds, each on a connection of its own.
fn play(server: &Server, script: &[Asked], seeds: Range<u64>) {
    let bytes: Vec<u8> = script.iter().flat_map(|asked| asked.bytes.clone()).collect();
    let expected: BTreeMap<u32, Answer> = script
        .iter()
        .zip(1..)
        .filter_map(|(asked, call)| Some((call, asked.answer?)))
        .collect();
    for seed in seeds {
        let mut peer = Peer::connect(server);
        write_in_chunks(&mut peer, &bytes, seed);
        let mut answers = BTreeMap::new();
        while answers.len() < expected.len() {
            let frame = peer.recv();
            assert!(frame.flags.contains(Flags::RESPONSE | Flags::END), "{frame:?}");
            let answer = match frame.flags.contains(Flags::SYSTEM_ERROR) {
                true => Answer::System(system_error(&frame).unwrap()),
                false => Answer::Entry(entry_code(frame.opcode, &frame.header)),
            };
            assert_eq!(answers.insert(frame.call_id.raw(), answer), None, "answered twice");
        }
        for (call, answer) in &expected {
            let name = script[*call as usize - 1].name;
            assert_eq!(answers.get(call), Some(answer), "{name} with seed {seed}");
        }
        assert_eq!(
            CallId::from_raw(u32::try_from(script.len()).unwrap()).map(CallId::raw),
            answers.keys().last().copied()
        );
    }
}
