//! Every case cut in two at every position (of long scripts: the first and last 4 KiB of positions and 1,000 seeded ones),
//! byte by byte, and glued to its neighbours: the outcome must not depend on how bytes arrive.

use sbp_frame::OpCode;
use sbp_session::{RejectReason, Role};

use crate::{
    bad_input::{
        Case, ROLES, Reaction, all_cases, check_reaction, expected, flag_and_number_cases, header_cases,
        large_header_cases, largest_cases, length_cases, magic_and_opcode_cases, payload_cases, play, sequence_cases,
    },
    script::{Raw, Seen, Subject, Why, pattern},
};

/// Whether a script is played a tenth as often: each play moves 16 MiB. With `SBP_THOROUGH` set none is, as in
/// `make test-long`.
pub(crate) fn is_costly(length: usize) -> bool {
    length > 8 << 20 && std::env::var_os("SBP_THOROUGH").is_none()
}

/// Where to cut a script of `length` bytes in two.
fn cuts(length: usize) -> Vec<usize> {
    let (edge, middles) = if is_costly(length) { (512, 100) } else { (4_096, 1_000) };
    if length <= 64 * 1024 {
        return (1..length).collect();
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let middle = (0..middles).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        edge + usize::try_from(state >> 33).expect("31 bits") % (length - 2 * edge)
    });
    (1..edge).chain(length - edge..length).chain(middle).collect()
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
fn flags_and_numbers_have_one_outcome_however_they_are_cut() {
    check_every_cut(&flag_and_number_cases());
    check_every_cut(&sequence_cases());
}

#[test]
fn payloads_have_one_outcome_however_they_are_cut() {
    check_on_two_threads(&payload_cases());
}

#[test]
fn headers_at_their_caps_have_one_outcome_however_they_are_cut() {
    check_on_two_threads(&large_header_cases());
}

#[test]
fn the_largest_frames_have_one_outcome_however_they_are_cut() {
    check_on_two_threads(&largest_cases());
}

/// As [`check_every_cut`], with the longest scripts shared out.
fn check_on_two_threads(cases: &[Case]) {
    let mut sorted = cases.to_vec();
    sorted.sort_by_key(|case| case.bytes.len());
    let (even, odd): (Vec<_>, Vec<_>) = sorted.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    std::thread::scope(|scope| {
        for half in [even, odd] {
            scope.spawn(move || {
                half.iter()
                    .for_each(|(_, case)| check_every_cut(std::slice::from_ref(case)))
            });
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
        let after = Raw::request(OpCode::APPEND, 11).payload(pattern(77)).bytes();
        let glued = [before.as_slice(), &case.bytes, &after].concat();
        let apart = play(&case, [before.as_slice(), &case.bytes, &after]);
        assert_eq!(play(&case, [glued.as_slice()]), apart, "{} glued", case.name);
        assert_eq!(
            play(&case, glued.chunks(1000)),
            apart,
            "{} glued, in packets",
            case.name
        );
        let is_over = matches!(
            case.reaction,
            Reaction::Closed(_) | Reaction::ClosedSilently | Reaction::ClosedAsTls
        );
        let goes_on = !(is_over || case.goes_away && case.role == Role::Server);
        let is_neighbour = |seen: &&Seen| match seen {
            Seen::Request { call: 5 | 11, .. } => case.role == Role::Server,
            // A client serves no requests, but it can tell them apart.
            Seen::Reject {
                raw: 5 | 11, reason, ..
            } => case.role == Role::Client && *reason == RejectReason::NotServed,
            _ => false,
        };
        let neighbours = apart.seen.iter().filter(is_neighbour).count();
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
fn the_largest_frames() {
    largest_cases().iter().for_each(check_some_cuts);
}
