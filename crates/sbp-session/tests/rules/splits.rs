//! Bad input, cut in every way: the outcome must not depend on how bytes arrive.
//!
//! Each case is a script of bytes for one end, with the reaction that the protocol asks for. It is then played whole,
//! cut in two at every position (of long scripts: the first and last 4 KiB of positions and 1,000 seeded ones), byte by
//! byte, and between valid neighbours.

use sbp_frame::OpCode;
use sbp_session::{CallFailure, Limits, RejectReason, Role, SessionConfig, Violation};

use crate::script::{Outcome, Raw, Seen, Subject, Why, pattern};

/// What is asked for.
#[derive(Debug, Clone)]
enum Reaction {
    /// The connection goes on, and the frame is delivered.
    Accepted,
    /// As before, but the checksum behind an empty payload is counted as odd.
    AcceptedOdd,
    /// A PING: answered by the session.
    Answered,
    /// Dropped at the peer's cost, without a word.
    Discarded,
    /// Refused by a system error.
    Refused(RejectReason),
    /// The own call fails; whether the frame costs the peer something.
    CallFails(CallFailure, bool),
    /// GOAWAY, then closed.
    Closed(Violation),
    /// Closed without a word.
    ClosedSilently,
}

#[derive(Debug, Clone)]
struct Case {
    name: String,
    role: Role,
    bytes: Vec<u8>,
    reaction: Reaction,
    /// Whether it has to be the connection's first frame.
    first: bool,
    /// The largest frame that the session takes.
    frame_length: u32,
    /// The largest header that the session takes, whoever sends it.
    header_length: u32,
}

fn case(name: impl Into<String>, role: Role, bytes: Vec<u8>, reaction: Reaction) -> Case {
    let limits = Limits::default();
    let header_length = match role {
        Role::Server => limits.request_header,
        Role::Client => limits.response_header,
    };
    Case {
        name: name.into(),
        role,
        bytes,
        reaction,
        first: false,
        frame_length: limits.frame_length,
        header_length,
    }
}

/// The case as a connection's first frame.
fn first(case: Case) -> Case {
    Case {
        name: format!("first: {}", case.name),
        first: true,
        reaction: Reaction::ClosedSilently,
        ..case
    }
}

const CALL: u32 = 7;
const ROLES: [Role; 2] = [Role::Server, Role::Client];

/// A frame that `role` expects: a request for a server, the answer to call 7 for a client.
fn expected(role: Role) -> Raw {
    match role {
        Role::Server => Raw::request(OpCode::APPEND, CALL),
        Role::Client => Raw::response(OpCode::APPEND, CALL),
    }
}

fn length_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for role in ROLES {
        for length in [0, 1, 15, 16 * 1024 * 1024 + 1, 0x1603_0102, 0x4745_5420, u32::MAX] {
            let bytes = Raw {
                frame_length: Some(length),
                ..expected(role)
            }
            .bytes();
            let bad = case(
                format!("frame length {length}"),
                role,
                bytes,
                Reaction::Closed(Violation::FrameLength(length)),
            );
            cases.push(first(bad.clone()));
            cases.push(bad);
        }
        for (header, frame) in [(1, 16), (7, 22), (11, 26), ((1 << 24) - 1, 1016)] {
            let raw = Raw {
                header: pattern(frame as usize - 16),
                header_length: Some(header),
                ..expected(role)
            };
            let over = Violation::HeaderOverFrame { header, frame };
            cases.push(case(
                format!("header {header} in frame {frame}"),
                role,
                raw.bytes(),
                Reaction::Closed(over),
            ));
        }
        // Exactly the limit, and one more; the limit is lowered here so that every cut can be tried.
        let limit = 90_000_u32;
        for (length, reaction) in [
            (limit, Reaction::Accepted),
            (limit + 1, Reaction::Closed(Violation::FrameLength(limit + 1))),
        ] {
            let raw = expected(role)
                .header(pattern(16))
                .payload(pattern(length as usize - 32));
            cases.push(Case {
                frame_length: limit,
                ..case(format!("frame of {length}, limit {limit}"), role, raw.bytes(), reaction)
            });
        }
    }
    cases
}

fn magic_and_opcode_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for role in ROLES {
        for magic in [0, 22, 24, 255] {
            let bytes = Raw {
                magic,
                ..expected(role)
            }
            .payload(pattern(100))
            .bytes();
            let bad = case(format!("magic {magic}"), role, bytes, Reaction::Discarded);
            cases.push(first(bad.clone()));
            cases.push(bad);
        }
        for opcode in [0x0000, 0x0005, 0x1000, 0x2006, 0x4003, 0xffff] {
            let bytes = Raw {
                opcode,
                ..Raw::request(OpCode::APPEND, CALL)
            }
            .payload(pattern(50))
            .bytes();
            cases.push(case(
                format!("unknown opcode {opcode:#06x}"),
                role,
                bytes,
                Reaction::Discarded,
            ));
        }
        let stray = Raw::response(OpCode::APPEND, 4_000).payload(pattern(70)).bytes();
        cases.push(case(
            "an answer that nobody asked for",
            role,
            stray,
            Reaction::Discarded,
        ));
    }
    let other = Raw {
        opcode: 0x7777,
        ..expected(Role::Client)
    }
    .bytes();
    let mismatch = CallFailure::OpCodeMismatch { found: OpCode(0x7777) };
    cases.push(case(
        "unknown opcode in an answer",
        Role::Client,
        other,
        Reaction::CallFails(mismatch, true),
    ));
    cases
}

fn header_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let server = |name: &str, raw: &Raw, reaction| case(name, Role::Server, raw.bytes(), reaction);
    let client = |name: &str, raw: &Raw, reaction| case(name, Role::Client, raw.bytes(), reaction);
    let fails = |reason, cost| Reaction::CallFails(CallFailure::BadAnswer(reason), cost);
    let (asked, answer) = (expected(Role::Server), expected(Role::Client));

    let cap = 1024 * 1024;
    cases.push(server(
        "header at the cap",
        &asked.clone().header(pattern(cap)),
        Reaction::Accepted,
    ));
    for length in [cap + 1, 3 * cap] {
        let reason = RejectReason::HeaderTooLarge {
            length: length as u32,
            limit: cap as u32,
        };
        let large = asked.clone().header(pattern(length)).payload(pattern(10));
        cases.push(server("header over the cap", &large, Reaction::Refused(reason)));
    }
    let reason = RejectReason::HeaderTooLarge {
        length: 4 * cap as u32 + 1,
        limit: 4 * cap as u32,
    };
    cases.push(client(
        "header over the cap",
        &answer.clone().header(pattern(4 * cap + 1)),
        fails(reason, true),
    ));

    cases.push(server(
        "no header",
        &asked.clone().header([]),
        Reaction::Refused(RejectReason::HeaderMissing),
    ));
    cases.push(client(
        "no header",
        &answer.clone().header([]),
        fails(RejectReason::HeaderMissing, false),
    ));
    let ping = Raw::request(OpCode::PING, CALL).header([]);
    cases.push(server("PING without header", &ping, Reaction::Answered));
    cases.push(client("PING without header", &ping, Reaction::Answered));
    let large = RejectReason::HeaderTooLarge {
        length: 1025,
        limit: 1024,
    };
    let body = ping.clone().header(pattern(24)).payload(pattern(1000));
    cases.push(server("PING of 1 KiB", &body, Reaction::Answered));
    cases.push(server(
        "PING over 1 KiB",
        &body.payload(pattern(1001)),
        Reaction::Refused(large),
    ));

    for format in [0, 2, 3, 255] {
        let reason = RejectReason::HeaderFormat(format);
        cases.push(server(
            "header format",
            &asked.clone().format(format),
            Reaction::Refused(reason),
        ));
        cases.push(client(
            "header format",
            &answer.clone().format(format),
            fails(reason, false),
        ));
        cases.push(server(
            "PING of any format",
            &ping.clone().format(format),
            Reaction::Answered,
        ));
    }
    cases
}

fn payload_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for role in ROLES {
        // In one block; in blocks or in a place of its own; in several blocks. Every cut of the larger ones takes long, so
        // each reaction is looked at for one role.
        for (length, right, wrong) in [
            (1, true, true),
            (64, true, true),
            (5_000, true, true),
            (33_000, role == Role::Client, role == Role::Server),
            (66_000, role == Role::Server, role == Role::Client),
        ] {
            let payload = pattern(length);
            let found = sbp_frame::checksum(&payload);
            let raw = expected(role).payload(payload);
            if right {
                cases.push(case(
                    format!("payload of {length}"),
                    role,
                    raw.bytes(),
                    Reaction::Accepted,
                ));
            }
            if wrong {
                let bytes = Raw {
                    checksum: Some(!found),
                    ..raw
                }
                .bytes();
                let violation = Violation::Checksum { stated: !found, found };
                cases.push(case(
                    format!("wrong checksum of {length}"),
                    role,
                    bytes,
                    Reaction::Closed(violation),
                ));
            }
        }
        // Lengths that do not fit the parts: the checksum is then looked for in the wrong place.
        let raw = Raw {
            header_length: Some(9),
            ..expected(role).header(pattern(8)).payload(pattern(64))
        };
        let [stated, found] = [raw.payload.as_slice(), &raw.payload[1..]].map(sbp_frame::checksum);
        let violation = Violation::Checksum { stated, found };
        cases.push(case(
            "the header reaches into the payload",
            role,
            raw.bytes(),
            Reaction::Closed(violation),
        ));

        let odd = Raw {
            checksum: Some(0xdead_beef),
            ..expected(role)
        }
        .bytes();
        cases.push(case("a checksum of nothing", role, odd, Reaction::AcceptedOdd));
    }
    cases
}

fn all_cases() -> Vec<Case> {
    [
        length_cases(),
        magic_and_opcode_cases(),
        header_cases(),
        payload_cases(),
    ]
    .concat()
}

/// Plays `pieces` one after the other.
fn play<'a>(case: &Case, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let limits = |mut config: SessionConfig| {
        config.limits.frame_length = case.frame_length;
        config.limits.request_header = case.header_length;
        config.limits.response_header = case.header_length;
        config.violation_header = b"violation".as_slice().into();
        config
    };
    let mut subject = match case.role {
        Role::Server => Subject::new(limits(SessionConfig::server())),
        Role::Client => Subject::new(limits(SessionConfig::client())).with_calls(OpCode::APPEND, 10),
    };
    if !case.first {
        // Something valid first, so that the case is not the connection's first frame.
        let raw = Raw::request(OpCode::PING, 1).bytes();
        subject.receive(&raw);
        assert_eq!(subject.sent().len(), 1);
    }
    for piece in pieces {
        subject.receive(piece);
    }
    subject.outcome()
}

/// Where to cut a script of `length` bytes in two.
fn cuts(length: usize) -> Vec<usize> {
    const EDGE: usize = 4096;
    if length <= 64 * 1024 {
        return (1..length).collect();
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let middle = (0..1000).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        EDGE + usize::try_from(state >> 33).expect("31 bits") % (length - 2 * EDGE)
    });
    (1..EDGE).chain(length - EDGE..length).chain(middle).collect()
}

fn check_reaction(case: &Case, outcome: &Outcome) {
    let name = &case.name;
    let cost = |expected: u64| assert_eq!(outcome.discarded, expected, "{name}: discards");
    let open = || assert!(!outcome.closed, "{name}: must stay open");
    match &case.reaction {
        Reaction::Accepted | Reaction::AcceptedOdd => {
            let delivered = matches!(outcome.seen.as_slice(), [Seen::Request { .. } | Seen::Response { .. }]);
            assert!(delivered, "{name}: {:?}", outcome.seen);
            assert_eq!(
                outcome.odd_checksums,
                u64::from(matches!(case.reaction, Reaction::AcceptedOdd)),
                "{name}"
            );
            cost(0);
            open();
        }
        Reaction::Answered => {
            assert_eq!(outcome.seen, [], "{name}");
            assert_eq!(
                outcome.sent.len(),
                case.bytes.len(),
                "{name}: a PONG is as long as its PING"
            );
            cost(0);
            open();
        }
        Reaction::Discarded => {
            assert_eq!(
                (outcome.seen.as_slice(), outcome.sent.as_slice()),
                (&[][..], &[][..]),
                "{name}"
            );
            cost(1);
            open();
        }
        Reaction::Refused(reason) => {
            assert_eq!(
                outcome.seen,
                [Seen::Reject {
                    raw: CALL,
                    reason: *reason,
                    must_answer: true
                }],
                "{name}"
            );
            cost(0);
            open();
        }
        Reaction::CallFails(failure, costs) => {
            let failed = Seen::Failed {
                user: 106,
                failure: failure.clone(),
                bytes_sent: true,
            };
            assert_eq!(outcome.seen, [failed], "{name}");
            cost(u64::from(*costs));
            open();
        }
        Reaction::Closed(violation) => {
            assert_eq!(
                outcome.seen.last(),
                Some(&Seen::Closing(Why::Violation(*violation))),
                "{name}"
            );
            let failed = outcome
                .seen
                .iter()
                .filter(|seen| matches!(seen, Seen::Failed { .. }))
                .count();
            assert_eq!(
                failed,
                if case.role == Role::Client { 10 } else { 0 },
                "{name}: calls in flight fail"
            );
            assert!(
                outcome.sent.windows(9).any(|bytes| bytes == b"violation"),
                "{name}: GOAWAY says why"
            );
            assert!(outcome.closed, "{name}: closed once the GOAWAY is written");
        }
        Reaction::ClosedSilently => {
            assert_eq!(outcome.seen.last(), Some(&Seen::Closing(Why::NotSbp)), "{name}");
            assert_eq!(outcome.sent, [], "{name}: not a word");
            assert!(outcome.closed, "{name}");
        }
    }
}

fn check_every_cut(cases: &[Case]) {
    for case in cases {
        let whole = play(case, [case.bytes.as_slice()]);
        check_reaction(case, &whole);
        for cut in cuts(case.bytes.len()) {
            let (head, tail) = case.bytes.split_at(cut);
            assert_eq!(play(case, [head, tail]), whole, "{} cut at {cut}", case.name);
        }
    }
}

#[test]
fn lengths_have_one_outcome_however_they_are_cut() {
    check_every_cut(&length_cases());
}

#[test]
fn magic_and_opcode_have_one_outcome_however_they_are_cut() {
    check_every_cut(&magic_and_opcode_cases());
}

#[test]
fn headers_have_one_outcome_however_they_are_cut() {
    check_every_cut(&header_cases());
}

#[test]
fn payloads_have_one_outcome_however_they_are_cut() {
    let (small, large): (Vec<_>, Vec<_>) = payload_cases().into_iter().partition(|case| case.bytes.len() < 10_000);
    check_every_cut(&small);
    std::thread::scope(|scope| {
        for cases in large.chunks(large.len().div_ceil(2)) {
            scope.spawn(|| check_every_cut(cases));
        }
    });
}

#[test]
fn bad_input_has_one_outcome_byte_by_byte() {
    for case in all_cases() {
        let whole = play(&case, [case.bytes.as_slice()]);
        assert_eq!(play(&case, case.bytes.chunks(1)), whole, "{}", case.name);
        assert_eq!(play(&case, case.bytes.chunks(1460)), whole, "{} in packets", case.name);
    }
}

#[test]
fn bad_input_has_one_outcome_between_neighbours() {
    for case in all_cases() {
        let before = Raw::request(OpCode::FETCH, 5).payload(pattern(33)).bytes();
        let before = if case.first { Vec::new() } else { before };
        let after = Raw::request(OpCode::APPEND, 9).payload(pattern(77)).bytes();
        let glued = [before.as_slice(), &case.bytes, &after].concat();
        let apart = play(&case, [before.as_slice(), &case.bytes, &after]);
        assert_eq!(play(&case, [glued.as_slice()]), apart, "{} glued", case.name);
        assert_eq!(
            play(&case, glued.chunks(1000)),
            apart,
            "{} glued, in packets",
            case.name
        );
        let goes_on = !matches!(case.reaction, Reaction::Closed(_) | Reaction::ClosedSilently);
        let neighbours = apart
            .seen
            .iter()
            .filter(|seen| matches!(seen, Seen::Request { call: 5 | 9, .. }))
            .count();
        let expected = usize::from(!case.first) + usize::from(goes_on);
        assert_eq!(
            neighbours, expected,
            "{}: a neighbour suffers only from a close",
            case.name
        );
    }
}

#[test]
fn a_stream_cut_short_is_dropped() {
    for role in ROLES {
        let frame = expected(role).payload(pattern(300)).bytes();
        for cut in 0..=frame.len() {
            let mut subject = match role {
                Role::Server => Subject::server(),
                Role::Client => Subject::client().with_calls(OpCode::APPEND, 10),
            };
            subject.receive(&frame[..cut]);
            subject.session.handle_eof(subject.now);
            let outcome = subject.outcome();
            let complete = cut == frame.len();
            let mid_frame = cut > 0 && !complete;
            assert_eq!(
                outcome.seen.last(),
                Some(&Seen::Closing(Why::Peer { mid_frame })),
                "cut at {cut}"
            );
            let delivered = outcome
                .seen
                .iter()
                .filter(|seen| matches!(seen, Seen::Request { .. } | Seen::Response { .. }));
            assert_eq!(delivered.count(), usize::from(complete), "cut at {cut}");
            assert!(outcome.closed);
        }
    }
}

/// A few cuts of what is too large to be cut everywhere.
fn check_some_cuts(case: &Case) {
    let length = case.bytes.len();
    for cut in [1, 15, 16, 17, 64 * 1024, length / 3, length - 5, length - 4, length - 1] {
        let (head, tail) = case.bytes.split_at(cut);
        check_reaction(case, &play(case, [head, tail]));
    }
    check_reaction(case, &play(case, case.bytes.chunks(64 * 1024)));
}

#[test]
fn the_largest_frame_is_sixteen_mebibytes() {
    let most = 16 * 1024 * 1024;
    let raw = expected(Role::Server).header(pattern(16)).payload(pattern(most - 32));
    check_some_cuts(&case(
        "the largest frame",
        Role::Server,
        raw.bytes(),
        Reaction::Accepted,
    ));
}

#[test]
fn headers_are_capped_at_one_and_four_mebibytes() {
    for (role, limit) in [(Role::Server, 1 << 20), (Role::Client, 4 << 20)] {
        let header = pattern((16 << 20) - 16);
        let at_cap = expected(role).header(&header[..limit as usize]);
        check_some_cuts(&case("header at the cap", role, at_cap.bytes(), Reaction::Accepted));
        for length in [limit + 1, (16 << 20) - 16] {
            let reason = RejectReason::HeaderTooLarge { length, limit };
            let reaction = match role {
                Role::Server => Reaction::Refused(reason),
                Role::Client => Reaction::CallFails(CallFailure::BadAnswer(reason), true),
            };
            let over = expected(role).header(&header[..length as usize]);
            check_some_cuts(&case(format!("header of {length}"), role, over.bytes(), reaction));
        }
    }
}
