//! A range server alone: it judges only what it holds.

use super::*;

/// Ranges 1 and 3 of a stream, 10..20 and 30..40, neither the first nor the last; the last one of another; and a whole
/// one.
fn hosted_ranges() -> RangeTable {
    let mut table = RangeTable::default();
    let mut open = |stream, range| {
        let facts = StreamFacts::default();
        table.apply(Command::Open { stream, facts, range });
    };
    open(MIDDLE, range(1, 10, 20, Phase::Sealed));
    open(MIDDLE, range(3, 30, 40, Phase::Sealed));
    open(LAST, range(1, 10, 20, Phase::Open));
    open(WHOLE, range(0, 0, 10, Phase::Open));
    table
}

const MIDDLE: StreamId = StreamId(1);
const LAST: StreamId = StreamId(2);
const WHOLE: StreamId = StreamId(3);

fn shown(table: &RangeTable, stream: StreamId, offset: i64) -> &'static str {
    match judged(table, &fetch(stream, offset), WAITING) {
        Readiness::Refused(refusal, None) if refusal.code == ErrorCode::RANGE_NOT_FOUND => "elsewhere",
        readiness => shape(&readiness),
    }
}

#[test]
fn what_falls_into_another_range_is_elsewhere_and_what_is_known_is_told() {
    let table = hosted_ranges();
    let cases = [
        (MIDDLE, 9, "elsewhere"),
        (MIDDLE, 10, "read"),
        (MIDDLE, 20, "end of range"),
        (MIDDLE, 25, "elsewhere"),
        (MIDDLE, 30, "read"),
        (MIDDLE, 40, "end of range"),
        (MIDDLE, 41, "elsewhere"),
        (LAST, 9, "elsewhere"),
        (LAST, 20, "wait"),
        (LAST, 21, "outside"),
        (WHOLE, -7, "outside"),
        (WHOLE, 10, "wait"),
        (WHOLE, 11, "outside"),
        (StreamId(99), 0, "elsewhere"),
    ];
    for (stream, offset, expected) in cases {
        assert_eq!(
            shown(&table, stream, offset),
            expected,
            "offset {offset} of stream {stream}"
        );
    }
}

#[test]
fn a_trim_makes_the_beginning_known() {
    let mut table = hosted_ranges();
    table.apply(Command::Trim {
        stream: LAST,
        start: Offset(15),
    });
    for (offset, expected) in [(9, "outside"), (14, "outside"), (15, "read")] {
        assert_eq!(shown(&table, LAST, offset), expected, "{offset}");
    }
}

#[test]
fn a_beginning_that_is_told_is_known_also_where_it_moves_nothing() {
    let mut table = hosted_ranges();
    let knows_start = |table: &RangeTable, stream| table.stream(stream).unwrap().start_known;
    assert!(!knows_start(&table, LAST) && knows_start(&table, WHOLE));
    let start = Offset(10);
    assert_eq!(table.apply(Command::Trim { stream: LAST, start }), Effect::None);
    assert!(knows_start(&table, LAST));
    let earliest = resolve_start(&table, LAST, Offset::EARLIEST, None);
    assert_eq!(earliest, Ok(Start::At(start)));
    // One that lies before what is here says that the beginning is elsewhere.
    let start = Offset(0);
    assert_eq!(table.apply(Command::Trim { stream: MIDDLE, start }), Effect::None);
    assert!(!knows_start(&table, MIDDLE));
}

#[test]
fn a_range_is_the_first_one_of_its_stream_only_where_that_was_told() {
    let key = |index| RangeKey {
        stream: WHOLE,
        range: RangeIndex(index),
    };
    let mut table = hosted_ranges();
    // Ranges 1 and 2 are on other servers, and range 2 is empty.
    let (stream, facts) = (WHOLE, StreamFacts::default());
    let range = range(3, 30, 40, Phase::Open);
    table.apply(Command::Open { stream, facts, range });
    table.apply(Command::Publish {
        key: key(0),
        end: Offset(10),
    });
    assert!(
        !table.has_none_before(key(3)),
        "also where the stream was from its beginning on"
    );
    // The stream is trimmed, and range 2 is its first one.
    table.begins_with(key(2));
    let start = Offset(30);
    table.apply(Command::Trim { stream, start });
    assert_eq!(table.stream(WHOLE).unwrap().keys(WHOLE).collect::<Vec<_>>(), [key(3)]);
    assert!(table.has_none_before(key(2)) && !table.has_none_before(key(3)));
    table.begins_with(key(3));
    table.begins_with(key(2));
    assert!(table.has_none_before(key(3)), "what is told late takes nothing back");
}

#[test]
fn a_deleted_stream_does_not_exist() {
    let mut table = hosted_ranges();
    table.apply(Command::Delete { stream: WHOLE });
    assert_eq!(shown(&table, WHOLE, 0), "unknown");
}

#[test]
fn names_of_places_are_resolved_only_where_they_fall_here() {
    let table = hosted_ranges();
    let time = TimestampMs(5);
    let start =
        |stream, offset, time| resolve_start(&table, stream, Offset(offset), time).map_err(|(refusal, _)| refusal.code);
    let elsewhere = Err(ErrorCode::RANGE_NOT_FOUND);
    assert_eq!(start(MIDDLE, -2, None), elsewhere);
    assert_eq!(start(MIDDLE, -1, None), elsewhere);
    assert_eq!(start(LAST, -2, None), elsewhere);
    assert_eq!(start(LAST, -1, None), Ok(Start::At(Offset(20))));
    assert_eq!(start(WHOLE, -2, None), Ok(Start::At(Offset(0))));
    assert_eq!(start(StreamId(99), -2, None), elsewhere);
    assert_eq!(start(LAST, -2, Some(time)), elsewhere);
    assert_eq!(start(LAST, 9, Some(time)), elsewhere);
    let search = |stream, offset| match start(stream, offset, Some(time)) {
        Ok(Start::Search(search)) => (
            search.ranges.len(),
            search.otherwise.map_err(|searched| searched.high_watermark),
        ),
        other => panic!("{other:?}"),
    };
    assert_eq!(search(LAST, 12), (1, Ok(Offset(20))));
    assert_eq!(search(MIDDLE, 12), (1, Err(Offset(20))), "later ranges may reach it");
}
