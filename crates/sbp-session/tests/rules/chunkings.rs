//! Every case in 1,000 seeded random chunkings, every other time glued between valid neighbours.

use sbp_frame::OpCode;
use sbp_session::Role;

use crate::{
    bad_input::{Case, all_cases, check_reaction, large_header_cases, largest_cases, play},
    script::{Raw, pattern},
    splits::is_costly,
};

/// Of each case; of the largest, which move 16 MiB each time, a tenth.
const CHUNKINGS: u64 = 1_000;

/// Numbers that are the same on every run: the high half of a linear congruential generator.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995)
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit.max(1)
    }
}

/// Cuts `bytes` into pieces whose sizes follow one of several habits of networks.
fn chunks<'a>(bytes: &'a [u8], dice: &mut Dice) -> Vec<&'a [u8]> {
    let length = bytes.len();
    // Long scripts in bytes would take minutes; they have small pieces at their ends only.
    let small = if length > 100_000 { length / 50 } else { 20 };
    let most = match dice.below(4) {
        0 => small,
        1 => 1_460.max(small),
        2 => length / 2 + 1,
        _ => length,
    };
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let near_an_end = rest.len() < 40 || length - rest.len() < 40;
        let size = 1 + dice.below(if near_an_end { 25 } else { most });
        let (piece, later) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = later;
    }
    pieces
}

fn check_chunkings(case: &Case) {
    let before = match case.first {
        true => Vec::new(),
        false => Raw::request(OpCode::FETCH, 5).payload(pattern(33)).bytes(),
    };
    let after = Raw::request(OpCode::APPEND, 11).payload(pattern(77)).bytes();
    let glued = [before.as_slice(), &case.bytes, &after].concat();
    let alone = play(case, [case.bytes.as_slice()]);
    check_reaction(case, &alone);
    let between = play(case, [before.as_slice(), &case.bytes, &after]);
    let chunkings = if is_costly(glued.len()) {
        CHUNKINGS / 10
    } else {
        CHUNKINGS
    };
    for seed in 0..chunkings {
        let mut dice = Dice::new(seed);
        let (bytes, expected) = match seed % 2 {
            0 => (&case.bytes, &alone),
            _ => (&glued, &between),
        };
        let pieces = chunks(bytes, &mut dice);
        assert_eq!(play(case, pieces), *expected, "{} with seed {seed}", case.name);
    }
}

fn check_role(cases: &[Case], role: Role) {
    let of_role: Vec<_> = cases.iter().filter(|case| case.role == role).collect();
    assert!(!of_role.is_empty());
    of_role.into_iter().for_each(check_chunkings);
}

#[test]
fn what_a_server_gets_has_one_outcome_in_any_chunks() {
    check_role(&all_cases(), Role::Server);
}

#[test]
fn what_a_client_gets_has_one_outcome_in_any_chunks() {
    check_role(&all_cases(), Role::Client);
}

#[test]
fn headers_at_their_caps_have_one_outcome_in_any_chunks() {
    large_header_cases().iter().for_each(check_chunkings);
}

#[test]
fn the_largest_frames_have_one_outcome_in_any_chunks() {
    largest_cases().iter().for_each(check_chunkings);
}
