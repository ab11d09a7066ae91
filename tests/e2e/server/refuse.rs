//! What a server says to requests that make no sense, and that it goes on serving.

use std::time::Instant;

use bytes::BytesMut;
use sbp_e2e::batches::raw_batch;
use sbp_e2e::frames::frame_bytes;
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::servers::{config, start};
use sbp_e2e::wait::PATIENCE;
use sbp_frame::{CallId, Flags, FrameHead, OpCode};
use sbp_messages::{
    AppendInfo, AppendRequest, AppendResponse, ClientRole, CreateStreamsRequest, CreateStreamsResponse,
    DescribeStreamsRequest, Encoder, ErrorCode, FetchInfo, FetchRequest, FetchResponse, HeartbeatRequest,
    HeartbeatResponse, ListRangesRequest, Message, RangeCriteria, RangeId, SealKind, SealRangesRequest, Stream,
    SystemErrorResponse,
};
use sbp_server::{Server, ServerConfig};
use sbp_types::{Offset, RangeIndex, StreamId};

#[test]
fn appends_that_cannot_be_stored_are_refused_entry_by_entry() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let good = raw_batch(b"good");
    let mut flipped = BytesMut::from(&good[..]);
    let body = flipped.len() - 16;
    flipped[body] ^= 1;
    let huge = vec![0x22; (16 << 20) - (64 << 10) + 16];
    let with = |change: &dyn Fn(&mut AppendInfo)| {
        let mut info = AppendInfo {
            stream_id: stream,
            ..AppendInfo::default()
        };
        change(&mut info);
        info
    };
    let cases: [(&str, AppendInfo, &[u8], ErrorCode); 9] = [
        (
            "unknown stream",
            with(&|info| info.stream_id = StreamId(77)),
            &good,
            ErrorCode::NOT_FOUND,
        ),
        (
            "no stream",
            with(&|info| info.stream_id = StreamId(-1)),
            &good,
            ErrorCode::NOT_FOUND,
        ),
        ("too large", with(&|_| {}), &huge, ErrorCode::PAYLOAD_TOO_LARGE),
        ("body changed", with(&|_| {}), &flipped, ErrorCode::BATCH_CORRUPT),
        (
            "cut short",
            with(&|_| {}),
            &good[..good.len() - 13],
            ErrorCode::BATCH_CORRUPT,
        ),
        ("nothing", with(&|_| {}), b"", ErrorCode::BATCH_CORRUPT),
        (
            "unknown range",
            with(&|info| info.range_index = Some(RangeIndex(1))),
            &good,
            ErrorCode::RANGE_NOT_FOUND,
        ),
        (
            "no range",
            with(&|info| info.range_index = Some(RangeIndex(-2))),
            &good,
            ErrorCode::INVALID_REQUEST,
        ),
        (
            "elsewhere",
            with(&|info| info.expected_offset = Some(Offset(9))),
            &good,
            ErrorCode::PRECONDITION_FAILED,
        ),
    ];
    for (name, info, batch, code) in cases {
        let info = AppendInfo {
            batch_length: i32::try_from(batch.len()).unwrap(),
            ..info
        };
        let request = AppendRequest {
            timeout_ms: 0,
            append_requests: [info].into_iter().collect(),
        };
        let (response, _): (AppendResponse, _) = peer.call(&request, batch);
        let result = &response.append_responses[0];
        assert_eq!((result.status.code, result.base_offset), (code, None), "{name}");
        assert!(!result.status.message.is_empty(), "{name}");
    }
    assert_eq!(peer.store(stream, b"first"), 0, "nothing of all that was stored");
    assert_eq!(server.stats().appends_refused, 9);
}

#[test]
fn requests_without_sense_are_refused_as_a_whole_and_nothing_is_done() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let batch = raw_batch(b"x");
    let append = |change: &dyn Fn(&mut AppendRequest)| {
        let mut request = append_request(&[(stream, batch.len()), (stream, batch.len())]);
        change(&mut request);
        request
    };
    let two = [&batch[..], &batch].concat();
    let cases: [(&str, AppendRequest, &[u8]); 8] = [
        ("no entries", AppendRequest::default(), b""),
        (
            "lengths below the payload",
            append(&|r| r.append_requests[1].batch_length = 1),
            &two,
        ),
        ("lengths above the payload", append(&|_| {}), &batch),
        ("payload without entries", append(&|r| r.append_requests.clear()), &two),
        (
            "negative length",
            append(&|r| r.append_requests[0].batch_length = -1),
            &two,
        ),
        (
            "an index twice",
            append(&|r| r.append_requests[1].request_index = 0),
            &two,
        ),
        (
            "an index outside",
            append(&|r| r.append_requests[1].request_index = 2),
            &two,
        ),
        (
            "an impossible offset",
            append(&|r| r.append_requests[1].expected_offset = Some(Offset(-2))),
            &two,
        ),
    ];
    for (name, request, payload) in cases {
        assert_eq!(peer.refused(&request, payload), ErrorCode::INVALID_REQUEST, "{name}");
    }
    let fetch = |change: &dyn Fn(&mut FetchInfo)| {
        let mut info = from(stream, 0);
        change(&mut info);
        fetch_request(0, 0, &[info])
    };
    let cases = [
        ("no entries", FetchRequest::default()),
        ("an impossible offset", fetch(&|info| info.fetch_offset = Offset(-3))),
        ("an impossible size", fetch(&|info| info.batch_max_bytes = -2)),
        (
            "negative min_bytes",
            FetchRequest {
                min_bytes: -1,
                ..fetch(&|_| {})
            },
        ),
        (
            "negative max_bytes",
            FetchRequest {
                max_bytes: -1,
                ..fetch(&|_| {})
            },
        ),
        ("an index outside", {
            let mut request = fetch(&|_| {});
            request.fetch_requests[0].request_index = 1;
            request
        }),
    ];
    for (name, request) in cases {
        assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST, "{name}");
    }
    let many = vec![Stream::default(); 1_025];
    let request = CreateStreamsRequest {
        streams: many,
        ..Default::default()
    };
    assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST);
    assert_eq!(
        peer.refused(&CreateStreamsRequest::default(), b""),
        ErrorCode::INVALID_REQUEST
    );
    let token = DescribeStreamsRequest {
        continuation: "not a token".into(),
        ..Default::default()
    };
    assert_eq!(peer.refused(&token, b""), ErrorCode::INVALID_REQUEST);
    let token = ListRangesRequest {
        range_criteria: vec![RangeCriteria {
            stream_id: Some(stream),
            range_server: None,
        }],
        continuation: "not a token".into(),
        ..Default::default()
    };
    assert_eq!(peer.refused(&token, b""), ErrorCode::INVALID_REQUEST);
    assert_eq!(peer.store(stream, b"first"), 0, "nothing was stored");
    assert_eq!(server.stats().streams, 1, "nothing was created");
}

#[test]
fn headers_that_are_no_messages_are_refused_and_cost_something() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let mut header = BytesMut::new();
    append_request(&[(stream, 1)]).encode(&mut Encoder::new(), &mut header);
    for (name, bytes) in [
        ("zeros", vec![0; 64]),
        ("ones", vec![0xff; 64]),
        ("one byte", vec![1]),
        ("cut", header[..header.len() / 2].to_vec()),
        (
            "an offset that points outside",
            [&[0xf0, 0xff, 0xff, 0x7f], &header[4..]].concat(),
        ),
    ] {
        let call = peer.send_raw(OpCode::APPEND, &bytes, b"");
        assert_eq!(peer.expect_system_error(call), ErrorCode::INVALID_REQUEST, "{name}");
    }
    assert_eq!(peer.store(stream, b"still here"), 0);
    // Two points of 64 each: a peer that sends nothing else is left.
    let mut refusals = 0;
    for _ in 0..100 {
        let head = FrameHead {
            opcode: OpCode::FETCH,
            flags: Flags::NONE,
            raw_call_id: 1_000 + refusals,
            format: 1,
        };
        peer.write(&frame_bytes(head, &[0xff; 32], b""));
        match peer.recv_or_end() {
            Some(frame) if frame.opcode == OpCode::FETCH => refusals += 1,
            Some(frame) => {
                assert_eq!(frame.opcode, OpCode::GOAWAY);
                break;
            }
            None => break,
        }
    }
    assert!(
        (20..60).contains(&refusals),
        "{refusals} refusals before the server had enough"
    );
    assert_eq!(Peer::connect(&server).fetch_all(stream, 0).len(), 1);
}

#[test]
fn unknown_operations_are_ignored() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    // An empty table is a header of any operation.
    let mut header = BytesMut::new();
    SystemErrorResponse::default().encode(&mut Encoder::new(), &mut header);
    peer.send_raw(OpCode(0x7777), &header, b"whatever");
    peer.send_raw(OpCode(0), b"", b"");
    let call = peer.send_raw(OpCode::FETCH, b"", b"");
    assert_eq!(
        peer.expect_system_error(call),
        ErrorCode::INVALID_REQUEST,
        "the next answer is to the next request"
    );
}

#[test]
fn frames_that_the_session_refuses_are_answered_with_the_code_of_the_table() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let mut header = BytesMut::new();
    fetch_request(0, 0, &[from(stream, 0)]).encode(&mut Encoder::new(), &mut header);
    let head = FrameHead {
        opcode: OpCode::FETCH,
        flags: Flags::NONE,
        raw_call_id: 100,
        format: 2,
    };
    peer.write(&frame_bytes(head, &header, b""));
    assert_eq!(
        peer.expect_system_error(CallId::from_raw(100).unwrap()),
        ErrorCode::UNSUPPORTED_VERSION
    );
    let head = FrameHead {
        opcode: OpCode::FETCH,
        flags: Flags::NONE,
        raw_call_id: 101,
        format: 1,
    };
    peer.write(&frame_bytes(head, &vec![0; (1 << 20) + 1], b""));
    assert_eq!(
        peer.expect_system_error(CallId::from_raw(101).unwrap()),
        ErrorCode::INVALID_REQUEST
    );
    assert_eq!(peer.store(stream, b"x"), 0);
}

#[test]
fn a_payload_with_a_wrong_checksum_ends_the_connection_and_stores_nothing() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let batch = raw_batch(b"x");
    let mut header = BytesMut::new();
    append_request(&[(stream, batch.len())]).encode(&mut Encoder::new(), &mut header);
    let head = FrameHead {
        opcode: OpCode::APPEND,
        flags: Flags::NONE,
        raw_call_id: 100,
        format: 1,
    };
    let mut bytes = frame_bytes(head, &header, &batch);
    *bytes.last_mut().unwrap() ^= 1;
    peer.write(&bytes);
    let goodbye = peer.recv();
    assert_eq!(goodbye.opcode, OpCode::GOAWAY);
    assert!(peer.recv_or_end().is_none());
    assert_eq!(Peer::connect(&server).fetch_all(stream, 0), []);
}

#[test]
fn names_and_settings_are_judged_one_by_one() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let named = |name: &str| Stream {
        name: name.to_owned(),
        ..Stream::default()
    };
    let request = CreateStreamsRequest {
        streams: vec![
            named("good"),
            named("9bad"),
            Stream {
                replica_nums: 3,
                ..named("three")
            },
            Stream {
                schema: Some("no schema".into()),
                ..named("typed")
            },
            Stream {
                retention_period_ms: 5,
                ..named("good")
            },
        ],
        ..Default::default()
    };
    let (response, _): (CreateStreamsResponse, _) = peer.call(&request, b"");
    let codes: Vec<_> = response
        .create_responses
        .iter()
        .map(|result| result.status.code)
        .collect();
    assert_eq!(
        codes,
        [
            ErrorCode::NONE,
            ErrorCode::INVALID_REQUEST,
            ErrorCode::PD_NO_AVAILABLE_RS,
            ErrorCode::INVALID_REQUEST,
            ErrorCode::ALREADY_EXISTS
        ]
    );
    assert_eq!(response.create_responses[1].stream.as_ref().unwrap().name, "9bad");
    assert_eq!(server.stats().streams, 1);
}

#[test]
fn only_so_many_fetches_wait() {
    let server = Server::start(ServerConfig {
        max_waits: 3,
        ..config(None)
    })
    .unwrap();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for _ in 0..3 {
        peer.send(&fetch_request(60_000, 1, &[from(stream, 0)]), b"");
    }
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(60_000, 1, &[from(stream, 0)]), b"");
    assert_eq!(response.status.code, ErrorCode::TOO_MANY_REQUESTS);
    assert!(response.fetch_responses.is_empty());
    assert_eq!(peer.fetch_all(stream, 0), [], "one that can be answered at once is");
    Peer::connect(&server).store(stream, b"news");
    let ends = (0..3).filter(|_| peer.recv().flags.contains(Flags::END)).count();
    assert_eq!(ends, 3);
}

#[test]
fn a_peer_that_takes_no_answers_is_not_read_from_and_costs_bounded_memory() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let body = vec![5; 1 << 20];
    for _ in 0..16 {
        peer.store(stream, &body);
    }
    // 12 answers of 15 MiB each: 180 MiB that nobody takes yet.
    let info = FetchInfo {
        batch_max_bytes: 15 << 20,
        ..from(stream, 0)
    };
    let calls: Vec<_> = (0..12).map(|_| peer.send(&fetch_request(0, 0, &[info]), b"")).collect();
    let started = Instant::now();
    while server.stats().bytes_fetched < 64 << 20 && started.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    // Somebody else is served meanwhile, and the server has all the time it wants to do too much.
    let mut other = Peer::connect(&server);
    for n in 0..3 {
        assert_eq!(other.store(stream, b"x"), 16 + n);
    }
    let handed_over = server.stats().bytes_fetched;
    assert!(
        handed_over <= (64 << 20) + 2 * (16 << 20),
        "{handed_over} bytes lie here"
    );
    // Answers may overtake each other; each call gets its own.
    let mut answered: Vec<_> = calls
        .iter()
        .map(|_| {
            let frame = peer.recv();
            assert_eq!(frame.flags, Flags::RESPONSE | Flags::END);
            assert!(frame.payload.len() > 14 << 20);
            frame.call_id
        })
        .collect();
    answered.sort();
    assert_eq!(answered, calls);
}

#[test]
fn a_role_or_a_kind_outside_its_enum_is_refused_as_a_whole() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let greeting = |role| HeartbeatRequest {
        client_role: ClientRole(role),
        protocol_revision: 1,
        ..HeartbeatRequest::default()
    };
    for role in [99, -1, 4, i8::MIN, i8::MAX] {
        assert_eq!(
            peer.refused(&greeting(role), b""),
            ErrorCode::INVALID_REQUEST,
            "role {role}"
        );
    }
    for role in 0..=3 {
        let (answer, _): (HeartbeatResponse, _) = Peer::connect(&server).call(&greeting(role), b"");
        assert_eq!((answer.status.code, answer.client_role.0), (ErrorCode::NONE, role));
    }
    let (answer, _): (HeartbeatResponse, _) = peer.call(&greeting(3), b"");
    assert_eq!(
        answer.client_role,
        ClientRole::CLIENT,
        "what was refused agreed on nothing"
    );
    let stream = peer.create("s");
    for kind in [3, -1] {
        let request = SealRangesRequest {
            ranges: vec![RangeId {
                stream_id: stream,
                ..RangeId::default()
            }],
            kind: SealKind(kind),
            ..SealRangesRequest::default()
        };
        assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST, "kind {kind}");
    }
    assert_eq!(peer.store(stream, b"goes on"), 0);
}

#[test]
fn up_to_fifteen_zeros_behind_a_body_are_taken() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let padded = raw_batch(b"body");
    let end = padded.len() - 12;
    for zeros in 0..20 {
        let batch = [&padded[..end], &vec![0; zeros]].concat();
        let request = append_request(&[(stream, batch.len())]);
        let (response, _): (AppendResponse, _) = peer.call(&request, &batch);
        let result = &response.append_responses[0];
        let (code, offset) = match i64::try_from(zeros).unwrap() {
            taken @ 0..16 => (ErrorCode::NONE, Some(Offset(taken))),
            _ => (ErrorCode::BATCH_CORRUPT, None),
        };
        assert_eq!(
            (result.status.code, result.base_offset),
            (code, offset),
            "{zeros} zeros"
        );
    }
    // All of them in one payload, back to back.
    let found = peer.fetch_all(stream, 0);
    assert_eq!(found.len(), 16);
    assert!(found.iter().all(|(_, body)| &body[..] == b"body"));
}
