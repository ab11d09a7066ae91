use std::time::Duration;

use bytes::Bytes;
use sbp_messages::FetchInfo;
use sbp_types::{Offset, StreamId, TimestampMs};

use super::{Brought, Wanted, by_server, request};
use crate::error::ClientError;
use crate::pinned::FrameMemory;
use crate::read::answer::tests::batch;
use crate::read::answer::{FetchedPlace, Part};

fn wanted(stream: i64, from: i64, end: Option<i64>) -> Wanted {
    Wanted {
        stream: StreamId(stream),
        from: Offset(from),
        end: end.map(Offset),
        time: None,
        batch_max_bytes: 100,
    }
}

/// Streams below 10 are at "a"; of the others what lies before offset 100 is at "b", and the rest at "c".
fn route(wanted: &Wanted) -> &'static str {
    match (wanted.stream.0, wanted.from.0) {
        (..10, _) => "a",
        (_, ..100) => "b",
        _ => "c",
    }
}

/// The requests for streams and their offsets, as servers and places.
fn planned(all: &[(i64, i64)], most: usize) -> Vec<(&'static str, Vec<usize>)> {
    let all = all.iter().map(|&(stream, from)| wanted(stream, from, None));
    let requests = by_server(all.enumerate(), route, |one, other| one == other, most);
    requests
        .into_iter()
        .map(|request| (request.server, request.places))
        .collect()
}

#[test]
fn each_server_is_asked_once_for_all_that_it_has() {
    let earliest = Offset::EARLIEST.0;
    for (all, expected) in [
        (vec![], vec![]),
        (vec![(1, 0)], vec![("a", vec![0])]),
        (vec![(1, 0), (2, 500), (1, 7)], vec![("a", vec![0, 1, 2])]),
        // In the order in which the first of it is wanted, and what one server is asked for in its own order.
        (
            vec![(11, 100), (1, 0), (12, 99), (2, 3), (13, 200)],
            vec![("c", vec![0, 4]), ("a", vec![1, 3]), ("b", vec![2])],
        ),
        // A stream lies with two servers: where it is read next decides.
        (vec![(11, 99), (11, 100)], vec![("b", vec![0]), ("c", vec![1])]),
        (vec![(11, earliest), (11, Offset::LATEST.0)], vec![("b", vec![0, 1])]),
    ] {
        assert_eq!(planned(&all, 1_024), expected, "{all:?}");
    }
}

#[test]
fn a_request_has_no_more_entries_than_a_server_takes() {
    let all: Vec<_> = (0..7).map(|place| (if place == 3 { 10 } else { 1 }, 0)).collect();
    for (most, expected) in [
        (6, vec![("a", vec![0, 1, 2, 4, 5, 6]), ("b", vec![3])]),
        (4, vec![("a", vec![0, 1, 2, 4]), ("a", vec![5, 6]), ("b", vec![3])]),
        (3, vec![("a", vec![0, 1, 2]), ("a", vec![4, 5, 6]), ("b", vec![3])]),
    ] {
        assert_eq!(planned(&all, most), expected, "at most {most}");
    }
}

#[test]
fn entries_are_numbered_and_carry_what_is_wanted() {
    let by_time = Wanted {
        time: Some(TimestampMs(5)),
        ..wanted(2, Offset::EARLIEST.0, None)
    };
    let request = request([wanted(1, 7, Some(9)), by_time], Duration::from_millis(20), 1, 4_000);
    assert_eq!(
        (request.max_wait_ms, request.min_bytes, request.max_bytes),
        (20, 1, 4_000)
    );
    let first = FetchInfo {
        stream_id: StreamId(1),
        request_index: 0,
        fetch_offset: Offset(7),
        batch_max_bytes: 100,
        end_offset: Some(Offset(9)),
        start_timestamp_ms: None,
    };
    let second = FetchInfo {
        stream_id: StreamId(2),
        request_index: 1,
        fetch_offset: Offset::EARLIEST,
        end_offset: None,
        start_timestamp_ms: Some(TimestampMs(5)),
        ..first
    };
    assert_eq!(request.fetch_requests.as_slice(), [first, second]);
}

/// An answer with batches of ten records each, from these offsets on, out of a stream that begins at `start`.
fn answer(start: i64, bases: &[i64]) -> Part {
    let bytes = Bytes::from(bases.iter().flat_map(|&base| batch(base, 10)).collect::<Vec<u8>>());
    Part {
        index: 0,
        outcome: Ok(FetchedPlace {
            start_offset: Offset(start),
            base_offset: Offset(bases.first().copied().unwrap_or(start)),
            next_offset: Offset(bases.last().map_or(start, |base| base + 10)),
            high_watermark: Offset(100),
            end_of_range: false,
        }),
        frame: FrameMemory::new(&bytes),
        bytes,
    }
}

/// What is brought by an answer that is no refusal.
fn taken(wanted: &mut Wanted, part: &Part) -> Result<Brought, ClientError> {
    wanted.take(part, part.outcome.as_ref().unwrap())
}

/// What an answer brings, and what it leaves.
#[derive(Debug, PartialEq)]
struct Step {
    gap: Option<(i64, i64)>,
    records: Vec<(i64, i64)>,
    left_from: i64,
    is_done: bool,
}

#[test]
fn what_an_answer_leaves_is_what_follows_it() {
    let earliest = Offset::EARLIEST.0;
    for (from, end, start, bases, expected) in [
        // Nothing yet.
        (20, None, 0, vec![], (None, vec![], 20, false)),
        (0, None, 0, vec![0, 10], (None, vec![(0, 10), (10, 20)], 20, false)),
        // Batches come whole, and are wanted in part.
        (5, Some(12), 0, vec![0, 10], (None, vec![(5, 10), (10, 12)], 12, true)),
        (0, Some(20), 0, vec![0], (None, vec![(0, 10)], 10, false)),
        // The first answer says where a stream begins.
        (earliest, None, 30, vec![30], (None, vec![(30, 40)], 40, false)),
        (earliest, None, 35, vec![30], (None, vec![(35, 40)], 40, false)),
        // Trimmed in front of what was wanted next, between batches and inside one.
        (0, None, 30, vec![30], (Some((0, 30)), vec![(30, 40)], 40, false)),
        (0, Some(50), 35, vec![30], (Some((0, 35)), vec![(35, 40)], 40, false)),
        (0, Some(20), 30, vec![], (Some((0, 30)), vec![], 30, true)),
    ] {
        let mut wanted = wanted(1, from, end);
        let brought = taken(&mut wanted, &answer(start, &bases)).unwrap();
        let step = Step {
            gap: brought.gap.map(|gap| (gap.from.0, gap.to.0)),
            records: brought.batches.iter().map(|batch| (batch.from.0, batch.to.0)).collect(),
            left_from: wanted.from.0,
            is_done: wanted.is_done(),
        };
        let (gap, records, left_from, is_done) = expected;
        let expected = Step {
            gap,
            records,
            left_from,
            is_done,
        };
        assert_eq!(
            step, expected,
            "from {from} to {end:?}, an answer of {bases:?} from {start} on"
        );
    }
}

#[test]
fn an_answer_with_a_hole_leaves_everything_wanted() {
    let before = wanted(1, 0, None);
    let mut wanted = before;
    let error = taken(&mut wanted, &answer(0, &[10])).unwrap_err();
    assert!(error.to_string().contains("records are missing"), "{error}");
    assert_eq!(wanted, before);
}

#[test]
fn a_time_is_asked_for_until_the_first_answer() {
    let mut wanted = Wanted {
        time: Some(TimestampMs(i64::MAX)),
        ..wanted(1, Offset::EARLIEST.0, None)
    };
    let brought = taken(&mut wanted, &answer(0, &[])).unwrap();
    assert!(brought.gap.is_none() && brought.batches.is_empty());
    assert_eq!((wanted.from, wanted.time), (Offset(0), None));
}
