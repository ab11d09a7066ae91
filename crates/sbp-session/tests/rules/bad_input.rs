//! Bad input, and good input at the limits: scripts of bytes for one end, with the reaction that the protocol asks for.
//!
//! How they are cut on their way is the matter of [`crate::splits`] and [`crate::chunkings`].

use bytes::Bytes;
use sbp_frame::OpCode;
use sbp_session::{CallFailure, Limits, RejectReason, Role, SessionConfig, Violation};

use crate::script::{Outcome, Raw, Seen, Subject, Why, pattern, told};

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Reaction {
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
    /// GOAWAY, then closed: the first bytes are those of TLS, and whoever sent them learns from it that this is not.
    ClosedAsTls,
    /// The connection goes on: so many frames were delivered, so many discarded.
    Seen(usize, u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) bytes: Vec<u8>,
    pub(crate) reaction: Reaction,
    /// Whether it has to be the connection's first frame.
    pub(crate) first: bool,
    /// Whether requests behind it are refused, because it is a GOAWAY.
    pub(crate) goes_away: bool,
    /// The largest frame that the session takes.
    pub(crate) frame_length: u32,
    /// The largest header that the session takes, whoever sends it.
    pub(crate) header_length: u32,
}

pub(crate) fn case(name: impl Into<String>, role: Role, bytes: Vec<u8>, reaction: Reaction) -> Case {
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
        goes_away: false,
        frame_length: limits.frame_length,
        header_length,
    }
}

/// The case as a connection's first frame.
pub(crate) fn first(case: Case) -> Case {
    // A handshake message or an alert, of any version.
    let is_tls = matches!(case.bytes[..], [0x15 | 0x16, 3, ..]);
    Case {
        name: format!("first: {}", case.name),
        first: true,
        reaction: if is_tls {
            Reaction::ClosedAsTls
        } else {
            Reaction::ClosedSilently
        },
        ..case
    }
}

pub(crate) const CALL: u32 = 7;
pub(crate) const ROLES: [Role; 2] = [Role::Server, Role::Client];

/// A frame that `role` expects: a request for a server, the answer to call 7 for a client.
pub(crate) fn expected(role: Role) -> Raw {
    match role {
        Role::Server => Raw::request(OpCode::APPEND, CALL),
        Role::Client => Raw::response(OpCode::APPEND, CALL),
    }
}

pub(crate) fn length_cases() -> Vec<Case> {
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

pub(crate) fn magic_and_opcode_cases() -> Vec<Case> {
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

pub(crate) fn header_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let server = |name: &str, raw: &Raw, reaction| case(name, Role::Server, raw.bytes(), reaction);
    let client = |name: &str, raw: &Raw, reaction| case(name, Role::Client, raw.bytes(), reaction);
    let fails = |reason, cost| Reaction::CallFails(CallFailure::BadAnswer(reason), cost);
    let (asked, answer) = (expected(Role::Server), expected(Role::Client));

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

pub(crate) fn payload_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for role in ROLES {
        // In one block; in blocks or in a place of its own; in several blocks.
        for length in [1, 64, 5_000, 33_000, 66_000] {
            let payload = pattern(length);
            let found = sbp_frame::checksum(&payload);
            let raw = expected(role).payload(payload);
            cases.push(case(
                format!("payload of {length}"),
                role,
                raw.bytes(),
                Reaction::Accepted,
            ));
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
        // Whatever a payload unpacks to: here it is bytes, and as many as came.
        let bomb = expected(role).payload(bomb(1_000)).bytes();
        cases.push(case("a payload that unpacks to more", role, bomb, Reaction::Accepted));
    }
    cases
}

/// An LZ4 block of a little over `length` bytes that unpacks to 255 times as many zeros.
fn bomb(length: usize) -> Vec<u8> {
    // One literal, then a match of that one byte behind it, as long as the bytes of 255 say.
    let mut block = vec![0x1f, 0, 1, 0];
    block.resize(length, 255);
    block.extend([0, 0x50, 0, 0, 0, 0, 0]);
    block
}

/// Headers at their real caps and beyond, up to a frame that is nothing but header.
pub(crate) fn large_header_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (role, limit) in [(Role::Server, 1_u32 << 20), (Role::Client, 4 << 20)] {
        let header = |length: u32| expected(role).header(pattern(length as usize)).bytes();
        cases.push(case(
            format!("header of {limit}"),
            role,
            header(limit),
            Reaction::Accepted,
        ));
        let length = limit + 1;
        let reason = RejectReason::HeaderTooLarge { length, limit };
        let reaction = match role {
            Role::Server => Reaction::Refused(reason),
            Role::Client => Reaction::CallFails(CallFailure::BadAnswer(reason), true),
        };
        cases.push(case(format!("header of {length}"), role, header(length), reaction));
    }
    cases
}

/// What is as large as a frame can be.
pub(crate) fn largest_cases() -> Vec<Case> {
    let most = 16 * 1024 * 1024;
    let mut cases = Vec::new();
    for (role, limit) in [(Role::Server, 1_u32 << 20), (Role::Client, 4 << 20)] {
        let raw = expected(role).header(pattern(16)).payload(pattern(most - 32));
        cases.push(case("the largest frame", role, raw.bytes(), Reaction::Accepted));
        let stated = !sbp_frame::checksum(&raw.payload);
        let violation = Violation::Checksum { stated, found: !stated };
        let wrong = Raw {
            checksum: Some(stated),
            ..raw
        };
        cases.push(case(
            "the largest frame, wrong checksum",
            role,
            wrong.bytes(),
            Reaction::Closed(violation),
        ));
        let length = u32::try_from(most).expect("small") - 16;
        let reason = RejectReason::HeaderTooLarge { length, limit };
        let reaction = match role {
            Role::Server => Reaction::Refused(reason),
            Role::Client => Reaction::CallFails(CallFailure::BadAnswer(reason), true),
        };
        let raw = expected(role).header(pattern(most - 16));
        cases.push(case("nothing but header", role, raw.bytes(), reaction));
    }
    cases
}

/// Flags and numbers: what is ignored, and what is not.
pub(crate) fn flag_and_number_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for role in ROLES {
        let right = expected(role).payload(pattern(40));
        for flags in [0x08, 0xf8] {
            let raw = right.clone().flags(right.flags | flags);
            cases.push(case(
                format!("reserved flags {flags:#x}"),
                role,
                raw.bytes(),
                Reaction::Accepted,
            ));
        }
        for flags in [0x02, 0x04, 0x06] {
            // A request that says that it ends an answer: a server takes it for a request, a client for nothing.
            let raw = Raw::request(OpCode::APPEND, 9).flags(flags).payload(pattern(40));
            let reaction = match role {
                Role::Server => Reaction::Accepted,
                Role::Client => Reaction::Discarded,
            };
            cases.push(case(
                format!("no RESPONSE in flags {flags:#x}"),
                role,
                raw.bytes(),
                reaction,
            ));
        }
        let stray = Raw::response(OpCode::APPEND, 0x8000_0000 | CALL).payload(pattern(40));
        cases.push(case(
            "an answer with the top bit set",
            role,
            stray.bytes(),
            Reaction::Discarded,
        ));
        for opcode in [OpCode::CREATE_RANGE, OpCode::DESCRIBE_RANGES] {
            // Two revisions disagree about the first of these numbers; the table counts.
            let raw = Raw::request(opcode, CALL);
            cases.push(case(opcode.to_string(), Role::Server, raw.bytes(), Reaction::Accepted));
        }
    }
    for number in [0, 1, u32::MAX >> 1] {
        let raw = Raw::request(OpCode::APPEND, number).payload(pattern(40));
        cases.push(case(
            format!("request {number}"),
            Role::Server,
            raw.bytes(),
            Reaction::Accepted,
        ));
    }
    let system_error = expected(Role::Client).flags(0x05);
    cases.push(case(
        "a system error without END",
        Role::Client,
        system_error.bytes(),
        Reaction::Accepted,
    ));
    cases
}

/// Several frames that are wrong only together.
pub(crate) fn sequence_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let script = |raws: &[Raw]| raws.iter().flat_map(Raw::bytes).collect::<Vec<_>>();
    let (asked, answer) = (
        expected(Role::Server).payload(pattern(90)),
        expected(Role::Client).payload(pattern(90)),
    );
    let in_flight = Violation::CallIdInFlight(sbp_frame::CallId::from_raw(CALL).expect("31 bits"));
    cases.push(case(
        "a number in flight",
        Role::Server,
        script(&[asked.clone(), asked.clone()]),
        Reaction::Closed(in_flight),
    ));
    cases.push(case(
        "numbers that fall",
        Role::Server,
        script(&[
            Raw::request(OpCode::APPEND, 99),
            asked.clone(),
            Raw::request(OpCode::FETCH, 3),
        ]),
        Reaction::Seen(3, 0),
    ));
    cases.push(case(
        "END twice",
        Role::Client,
        script(&[answer.clone(), answer.clone()]),
        Reaction::Seen(1, 1),
    ));
    cases.push(case(
        "an answer behind a system error",
        Role::Client,
        script(&[answer.clone().flags(0x07), answer.clone().flags(0x01), answer.clone()]),
        Reaction::Seen(1, 2),
    ));
    cases.push(case(
        "an answer in three frames",
        Role::Client,
        script(&[answer.clone().flags(0x01), answer.clone().flags(0x01), answer.clone()]),
        Reaction::Seen(3, 0),
    ));
    for role in ROLES {
        let go_away = Raw::request(OpCode::GOAWAY, 10).flags(0x05);
        let frames = vec![go_away; 4];
        // In flight is something on either side, so that the first one does not end the connection.
        let mut raws = match role {
            Role::Server => vec![asked.clone()],
            Role::Client => vec![answer.clone().flags(0x01)],
        };
        raws.extend(frames);
        cases.push(Case {
            goes_away: true,
            ..case("GOAWAY again and again", role, script(&raws), Reaction::Seen(2, 2))
        });
    }
    cases
}

pub(crate) fn all_cases() -> Vec<Case> {
    [
        length_cases(),
        magic_and_opcode_cases(),
        header_cases(),
        payload_cases(),
        flag_and_number_cases(),
        sequence_cases(),
    ]
    .concat()
}

/// Plays `pieces` one after the other.
pub(crate) fn play<'a>(case: &Case, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
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

pub(crate) fn check_reaction(case: &Case, outcome: &Outcome) {
    let name = &case.name;
    let cost = |expected: u64| assert_eq!(outcome.discarded, expected, "{name}: discards");
    let open = || assert!(!outcome.closed, "{name}: must stay open");
    match &case.reaction {
        Reaction::Accepted | Reaction::AcceptedOdd => {
            let [Seen::Request { header, payload, .. } | Seen::Response { header, payload, .. }] =
                outcome.seen.as_slice()
            else {
                panic!("{name}: {:?}", outcome.seen)
            };
            let header_length = usize::from(case.bytes[13]) << 16 | usize::from(case.bytes[14]) << 8;
            let (head, body) =
                case.bytes[16..case.bytes.len() - 4].split_at(header_length | usize::from(case.bytes[15]));
            assert_eq!(*header, told(&Bytes::copy_from_slice(head).into()), "{name}");
            assert_eq!(*payload, told(&Bytes::copy_from_slice(body).into()), "{name}");
            assert_eq!(
                outcome.odd_checksums,
                u64::from(matches!(case.reaction, Reaction::AcceptedOdd)),
                "{name}"
            );
            cost(0);
            open();
        }
        Reaction::Seen(seen, costs) => {
            assert_eq!(outcome.seen.len(), *seen, "{name}: {:?}", outcome.seen);
            cost(*costs);
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
        Reaction::ClosedAsTls => {
            assert_eq!(outcome.seen.last(), Some(&Seen::Closing(Why::SpeaksTls)), "{name}");
            assert!(
                outcome.sent.windows(9).any(|bytes| bytes == b"violation"),
                "{name}: a GOAWAY that is not TLS"
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
