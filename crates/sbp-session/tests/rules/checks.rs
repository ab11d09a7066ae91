//! The order of checks, the cost of bad frames, and what flags and numbers mean.

use std::time::Duration;

use bytes::Bytes;
use sbp_frame::{CallId, Flags, OpCode};
use sbp_session::{CallFailure, RejectReason, SessionConfig, Violation};

use crate::script::{Raw, Seen, Subject, Why, pattern};

/// A server that has seen a frame and has request 5 in flight.
fn server() -> Subject {
    let mut subject = Subject::server();
    subject.receive(&Raw::request(OpCode::APPEND, 5).bytes());
    subject.seen();
    subject
}

/// A request with everything wrong that can be wrong behind its length; each test mends what comes earlier in the order.
fn worst() -> Raw {
    Raw {
        magic: 99,
        opcode: 0x7777,
        flags: 0x01,
        call_id: 0x8000_0005,
        format: 9,
        header_length: Some(5_000),
        checksum: Some(1),
        ..Raw::request(OpCode::APPEND, 5).payload(pattern(20))
    }
}

fn reject(raw: u32, reason: RejectReason) -> Vec<Seen> {
    vec![Seen::Reject {
        raw,
        reason,
        must_answer: true,
    }]
}

#[test]
fn the_first_check_that_matches_decides() {
    let mut raw = worst();
    let mut subject = server();
    subject.receive(&raw.bytes());
    assert_eq!(subject.outcome().discarded, 1, "magic before the header's length");

    raw.magic = 23;
    let mut subject = server();
    subject.receive(&raw.bytes());
    let over = Violation::HeaderOverFrame {
        header: 5_000,
        frame: 16 + 6 + 20,
    };
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(over))],
        "then the header's length"
    );

    raw.header_length = Some(0);
    let mut subject = server();
    subject.receive(&raw.bytes());
    assert_eq!(subject.outcome().discarded, 1, "then the answer that nobody asked for");

    raw.flags = 0;
    let mut subject = server();
    subject.receive(&raw.bytes());
    assert_eq!(subject.outcome().discarded, 1, "then the unknown opcode");

    raw.opcode = OpCode::APPEND.0;
    let mut subject = server();
    subject.receive(&raw.bytes());
    assert_eq!(
        subject.seen(),
        reject(0x8000_0005, RejectReason::CallIdTopBit),
        "then the number"
    );

    raw.call_id = 5;
    let mut subject = server();
    subject.receive(&raw.bytes());
    assert_eq!(
        subject.seen(),
        reject(5, RejectReason::HeaderFormat(9)),
        "then the format"
    );

    raw.format = 1;
    let mut subject = server();
    subject.receive(&raw.bytes());
    assert_eq!(
        subject.seen(),
        reject(5, RejectReason::HeaderMissing),
        "then the header that is missing"
    );

    raw.header_length = None;
    let mut subject = server();
    subject.receive(&raw.bytes());
    let found = sbp_frame::checksum(&raw.payload);
    let wrong = Violation::Checksum { stated: 1, found };
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(wrong))],
        "then the checksum"
    );

    raw.checksum = None;
    let mut subject = server();
    subject.receive(&raw.bytes());
    let in_flight = Violation::CallIdInFlight(CallId::from_raw(5).unwrap());
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(in_flight))],
        "then the number in flight"
    );

    raw.call_id = 6;
    let mut subject = server();
    subject.receive(&raw.bytes());
    assert!(
        matches!(subject.seen().as_slice(), [Seen::Request { call: 6, .. }]),
        "and then it is a request"
    );
}

#[test]
fn go_away_is_known_by_its_opcode() {
    for raw in [
        Raw::request(OpCode::GOAWAY, 0),
        Raw::request(OpCode::GOAWAY, 5).flags(0x01),
        Raw::request(OpCode::GOAWAY, 0x8000_0005).flags(0xff).format(77),
    ] {
        let mut subject = server();
        subject.receive(&raw.bytes());
        let expected = Seen::PeerGoAway {
            last_started: raw.call_id,
            header: b"header".to_vec(),
        };
        assert_eq!(subject.seen(), [expected], "{raw:?}");
        subject.receive(&raw.bytes());
        assert_eq!(
            (subject.seen(), subject.session.stats().discarded),
            (vec![], 0),
            "a second one is free"
        );
        subject.receive(&raw.bytes());
        let outcome = subject.outcome();
        assert_eq!(
            (outcome.seen, outcome.discarded, outcome.closed),
            (vec![], 1, false),
            "more of them are not"
        );
    }
}

#[test]
fn a_go_away_whose_header_is_too_large_counts_without_it() {
    let mut subject = server();
    subject.receive(&Raw::request(OpCode::GOAWAY, 3).header(pattern((1 << 20) + 1)).bytes());
    assert_eq!(
        subject.seen(),
        [Seen::PeerGoAway {
            last_started: 3,
            header: vec![]
        }]
    );
}

#[test]
fn flags_of_requests_are_ignored_and_never_echoed() {
    let mut subject = server();
    subject.receive(&Raw::request(OpCode::APPEND, 6).flags(0xfe).bytes());
    assert!(
        matches!(subject.seen().as_slice(), [Seen::Request { call: 6, .. }]),
        "END without RESPONSE is a request"
    );
    subject.receive(&Raw::request(OpCode::PING, 7).flags(0xf8).bytes());
    let pong = subject.sent().pop().unwrap();
    assert_eq!(pong.flags, Flags::RESPONSE | Flags::END);
}

#[test]
fn pings_are_answered_with_what_they_brought() {
    let mut subject = server();
    subject.receive(
        &Raw::request(OpCode::PING, 70)
            .format(42)
            .header(*b"any")
            .payload(*b"thing")
            .bytes(),
    );
    subject.receive(&Raw::request(OpCode::PING, 3).header([]).bytes());
    assert_eq!(subject.seen(), []);
    let pongs = subject.sent();
    let [pong, bare] = pongs.as_slice() else {
        panic!("two answers")
    };
    assert_eq!(
        (pong.call_id.raw(), pong.format, &pong.header[..]),
        (70, 42, &b"any"[..])
    );
    assert_eq!(pong.payload.clone().into_contiguous(), Bytes::from_static(b"thing"));
    assert_eq!((bare.call_id.raw(), bare.header.len(), bare.payload.len()), (3, 0, 0));
    assert_eq!(subject.session.stats().pings_answered, 2);
}

#[test]
fn too_many_pings_are_discarded() {
    let ping = |id| Raw::request(OpCode::PING, id).bytes();
    let mut subject = server();
    (0..200).for_each(|id| subject.receive(&ping(id + 10)));
    assert_eq!(subject.sent().len(), 200);
    (0..64).for_each(|id| subject.receive(&ping(id + 300)));
    assert_eq!(subject.sent().len(), 0);
    assert_eq!(subject.session.stats().discarded, 64);
    subject.now += Duration::from_millis(100);
    (0..10).for_each(|id| subject.receive(&ping(id + 400)));
    assert_eq!(subject.sent().len(), 10, "a hundred come back each second");
    (0..2).for_each(|id| subject.receive(&ping(id + 500)));
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(Violation::TooManyDiscards))]
    );
}

#[test]
fn discards_are_put_up_with_to_a_limit() {
    let unknown = |id| {
        Raw {
            opcode: 0x7777,
            ..Raw::request(OpCode::APPEND, id)
        }
        .bytes()
    };
    let mut subject = server();
    (0..64).for_each(|id| subject.receive(&unknown(id)));
    assert_eq!(subject.seen(), []);
    subject.now += Duration::from_millis(125);
    subject.receive(&unknown(100));
    assert_eq!(subject.seen(), [], "one comes back each eighth of a second");
    subject.receive(&unknown(101));
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(Violation::TooManyDiscards))]
    );
    let go_away = subject.sent().pop().unwrap();
    assert_eq!(
        (go_away.opcode, go_away.call_id.raw(), go_away.flags),
        (OpCode::GOAWAY, 5, Flags::NONE)
    );
    assert_eq!(go_away.header, Bytes::from_static(b"violation"));
    assert!(subject.session.is_closed());
}

#[test]
fn malformed_headers_cost_two_and_other_refusals_nothing() {
    let mut subject = server();
    for id in 10..1_000 {
        subject.receive(&Raw::request(OpCode::APPEND, id).format(2).bytes());
    }
    assert_eq!(subject.seen().len(), 990);
    for _ in 0..32 {
        subject.session.handle_malformed_header(subject.now);
    }
    assert_eq!(subject.seen(), []);
    subject.session.handle_malformed_header(subject.now);
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(Violation::TooManyDiscards))]
    );
}

#[test]
fn a_client_serves_nothing_but_ping() {
    let mut subject = Subject::client();
    for id in 1..10_000 {
        subject.receive(&Raw::request(OpCode::APPEND, id).payload(pattern(100)).bytes());
        assert_eq!(subject.seen(), reject(id, RejectReason::NotServed));
    }
    assert_eq!(subject.session.peer_calls(), 0, "so it keeps nothing of them");
    subject.receive(&Raw::request(OpCode::PING, 1).bytes());
    assert_eq!(subject.sent().len(), 1);
}

#[test]
fn unknown_opcodes_are_answered_where_asked_for() {
    let mut subject = Subject::new(SessionConfig {
        answer_unknown_opcodes: true,
        ..SessionConfig::server()
    });
    subject.receive(
        &Raw {
            opcode: 0x7777,
            ..Raw::request(OpCode::APPEND, 4)
        }
        .bytes(),
    );
    assert_eq!(subject.seen(), reject(4, RejectReason::UnknownOpCode));
    assert_eq!(subject.outcome().discarded, 0);
}

#[test]
fn numbers_may_fall_and_may_be_used_again() {
    let mut subject = Subject::server();
    for id in [9, 3, 0, u32::MAX >> 1, 4] {
        subject.receive(&Raw::request(OpCode::APPEND, id).bytes());
        assert!(matches!(subject.seen().as_slice(), [Seen::Request { call, .. }] if *call == id));
    }
    let nine = CallId::from_raw(9).unwrap();
    subject
        .session
        .send_response(nine, OpCode::APPEND, true, b"done", &[])
        .unwrap();
    subject.receive(&Raw::request(OpCode::APPEND, 9).bytes());
    assert!(matches!(subject.seen().as_slice(), [Seen::Request { call: 9, .. }]));
    subject.receive(&Raw::request(OpCode::PING, 9).bytes());
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(Violation::CallIdInFlight(nine)))],
        "a PING counts too"
    );
}

#[test]
fn a_waiting_request_is_in_flight() {
    let mut subject = server();
    let five = CallId::from_raw(5).unwrap();
    assert!(subject.session.mark_waiting(five));
    subject.receive(&Raw::request(OpCode::FETCH, 5).bytes());
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(Violation::CallIdInFlight(five)))]
    );
}

#[test]
fn answers_that_nobody_waits_for() {
    let mut subject = Subject::client().with_calls(OpCode::FETCH, 2);
    let answer = |flags| Raw::response(OpCode::FETCH, 1).flags(flags).bytes();
    subject.receive(&answer(0x01));
    subject.receive(&answer(0x03));
    let ends: Vec<_> = subject
        .seen()
        .iter()
        .map(|seen| matches!(seen, Seen::Response { end: true, .. }))
        .collect();
    assert_eq!(ends, [false, true]);
    subject.receive(&answer(0x03));
    assert_eq!(
        (subject.seen(), subject.session.stats().discarded),
        (vec![], 1),
        "after its end: a discard"
    );

    subject.session.cancel(CallId::from_raw(2).unwrap());
    let late = |flags| {
        Raw::response(OpCode::FETCH, 2)
            .flags(flags)
            .payload(pattern(100))
            .bytes()
    };
    subject.receive(&late(0x01));
    subject.receive(&late(0x03));
    assert_eq!(
        (subject.seen(), subject.session.stats().discarded),
        (vec![], 1),
        "cancelled: free"
    );
    assert_eq!(subject.session.stats().late_answers, 2);
    subject.receive(&late(0x03));
    assert_eq!(subject.session.stats().discarded, 2, "after its end no more");
    subject.receive(&Raw::response(OpCode::FETCH, 0x8000_0001).bytes());
    assert_eq!(subject.session.stats().discarded, 3, "no CallId at all");
}

#[test]
fn a_system_error_ends_a_call_even_without_end() {
    let mut subject = Subject::client().with_calls(OpCode::APPEND, 1);
    subject.receive(&Raw::response(OpCode::APPEND, 1).flags(0x05).bytes());
    let [
        Seen::Response {
            user: 100,
            system_error: true,
            end: true,
            ..
        },
    ] = subject.seen()[..]
    else {
        panic!("a system error");
    };
    assert_eq!(subject.session.own_calls(), 0);
}

#[test]
fn an_answer_for_another_operation_fails_the_call() {
    let mut subject = Subject::client().with_calls(OpCode::APPEND, 1);
    subject.receive(&Raw::response(OpCode::FETCH, 1).flags(0x01).bytes());
    let failure = CallFailure::OpCodeMismatch { found: OpCode::FETCH };
    assert_eq!(
        subject.seen(),
        [Seen::Failed {
            user: 100,
            failure,
            bytes_sent: true
        }]
    );
    subject.receive(&Raw::response(OpCode::APPEND, 1).bytes());
    assert_eq!(
        (subject.seen(), subject.session.stats().discarded),
        (vec![], 1),
        "the rest of it is free"
    );
}
