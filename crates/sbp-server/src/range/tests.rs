//! Tables over the pure range server.

use sbp_messages::ErrorCode;
use sbp_record::MAX_BATCH_LENGTH;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs};
use smallvec::{SmallVec, smallvec};

use super::fetch::{Read, Search, SearchedRange};
use super::*;
use crate::refusal::Refusal;

mod alone;
mod copies;
mod copies_rig;
mod damaged;
mod held_back;
mod invariants;
mod listener;
mod mistrust;
mod orders;
mod paced;
mod rig;
mod writers;
mod writers_travel;

pub(crate) use listener::Listener;

const OPAQUE: StreamId = StreamId(1);
const TYPED: StreamId = StreamId(2);
const SEALED: StreamId = StreamId(3);
const DAMAGED: StreamId = StreamId(4);
const SPLIT: StreamId = StreamId(5);

fn range(index: i32, start: i64, end: i64, phase: Phase) -> RangeState {
    RangeState {
        index: RangeIndex(index),
        epoch: Epoch(index.into()),
        start: Offset(start),
        next: Offset(end),
        confirmed: Offset(end),
        phase,
        set: ReplicaSet::alone(),
        generation: 0,
        keeps_writers: true,
        is_cut_off: false,
        replica: None,
    }
}

/// An open stream 0..10, a typed one, a sealed one, one with a damaged end, and one with two ranges 0..10..15.
fn table() -> RangeTable {
    let mut table = RangeTable::default();
    table.scope = Scope::Everything;
    let mut open = |stream, fingerprints: SmallVec<[u64; 1]>, range| {
        let facts = StreamFacts {
            fingerprints,
            ..StreamFacts::default()
        };
        assert_eq!(table.apply(Command::Open { stream, facts, range }), Effect::None);
    };
    open(OPAQUE, smallvec![], range(0, 0, 10, Phase::Open));
    open(TYPED, smallvec![77], range(0, 0, 0, Phase::Open));
    open(SEALED, smallvec![], range(0, 0, 10, Phase::Sealed));
    open(DAMAGED, smallvec![], range(0, 0, 10, Phase::EndDamaged));
    open(SPLIT, smallvec![], range(1, 10, 15, Phase::Open));
    open(SPLIT, smallvec![], range(0, 0, 10, Phase::Sealed));
    table
}

fn entry(stream: StreamId) -> AppendEntry {
    AppendEntry {
        stream,
        range: None,
        epoch: None,
        expected_offset: None,
        length: 64,
        head: Ok(HeadFacts {
            record_count: 3,
            is_fence: false,
            columns: None,
            claim: None,
        }),
    }
}

fn with(stream: StreamId, change: impl FnOnce(&mut AppendEntry)) -> AppendEntry {
    let mut entry = entry(stream);
    change(&mut entry);
    entry
}

fn empty(entry: &mut AppendEntry) {
    entry.head = Ok(HeadFacts {
        record_count: 0,
        is_fence: false,
        columns: None,
        claim: None,
    });
}

fn corrupt(entry: &mut AppendEntry) {
    entry.head = Err(Refusal::new(ErrorCode::BATCH_CORRUPT, "bad"));
}

fn judge(table: &mut RangeTable, entry: &AppendEntry) -> AppendDecision {
    match table.apply(Command::Append(entry)) {
        Effect::Judged(verdict) => verdict,
        other => panic!("{other:?}"),
    }
}

fn code(verdict: &AppendDecision) -> ErrorCode {
    match verdict {
        AppendDecision::Refuse(refused) => refused.refusal.code,
        _ => ErrorCode::NONE,
    }
}

#[test]
fn each_fault_has_its_code() {
    let columns = |count, fingerprint| {
        Ok(HeadFacts {
            record_count: count,
            is_fence: false,
            columns: Some(fingerprint),
            claim: None,
        })
    };
    let cases = [
        (entry(OPAQUE), ErrorCode::NONE),
        (entry(StreamId(99)), ErrorCode::NOT_FOUND),
        (entry(StreamId(-1)), ErrorCode::NOT_FOUND),
        (with(OPAQUE, |e| e.length = MAX_BATCH_LENGTH), ErrorCode::NONE),
        (
            with(OPAQUE, |e| e.length = MAX_BATCH_LENGTH + 1),
            ErrorCode::PAYLOAD_TOO_LARGE,
        ),
        (with(OPAQUE, corrupt), ErrorCode::BATCH_CORRUPT),
        (
            with(OPAQUE, |e| e.range = Some(RangeIndex(-2))),
            ErrorCode::INVALID_REQUEST,
        ),
        (with(OPAQUE, |e| e.epoch = Some(Epoch(-2))), ErrorCode::INVALID_REQUEST),
        (with(OPAQUE, |e| e.head = columns(1, 77)), ErrorCode::SCHEMA_MISMATCH),
        (entry(TYPED), ErrorCode::SCHEMA_MISMATCH),
        (with(TYPED, |e| e.head = columns(1, 78)), ErrorCode::SCHEMA_MISMATCH),
        (with(TYPED, |e| e.head = columns(1, 77)), ErrorCode::NONE),
        (with(TYPED, empty), ErrorCode::NONE),
        (with(TYPED, |e| e.head = columns(0, 78)), ErrorCode::NONE),
        (with(OPAQUE, |e| e.head = columns(0, 78)), ErrorCode::NONE),
        (
            with(OPAQUE, |e| e.range = Some(RangeIndex(1))),
            ErrorCode::RANGE_NOT_FOUND,
        ),
        (with(OPAQUE, |e| e.range = Some(RangeIndex(0))), ErrorCode::NONE),
        (entry(SEALED), ErrorCode::RANGE_ALREADY_SEALED),
        (with(SEALED, empty), ErrorCode::NONE),
        (
            with(SPLIT, |e| e.range = Some(RangeIndex(0))),
            ErrorCode::RANGE_ALREADY_SEALED,
        ),
        (entry(SPLIT), ErrorCode::NONE),
        (entry(DAMAGED), ErrorCode::RS_DATA_CORRUPTED),
        (
            with(OPAQUE, |e| e.epoch = Some(Epoch(1))),
            ErrorCode::EXPIRED_RANGE_EPOCH,
        ),
        (with(OPAQUE, |e| e.epoch = Some(Epoch(0))), ErrorCode::NONE),
        (with(OPAQUE, |e| e.expected_offset = Some(Offset(10))), ErrorCode::NONE),
        (
            with(OPAQUE, |e| e.expected_offset = Some(Offset(9))),
            ErrorCode::PRECONDITION_FAILED,
        ),
        (
            with(OPAQUE, |e| {
                e.head = Ok(HeadFacts {
                    record_count: i64::MAX,
                    is_fence: false,
                    columns: None,
                    claim: None,
                })
            }),
            ErrorCode::INVALID_REQUEST,
        ),
    ];
    for (entry, expected) in cases {
        assert_eq!(code(&judge(&mut table(), &entry)), expected, "{entry:?}");
    }
}

#[test]
fn the_first_fault_in_the_order_of_checks_decides() {
    // Each line has the fault of its step and of all steps behind it.
    let all_behind = |entry: &mut AppendEntry, step: usize| {
        entry.expected_offset = Some(Offset(3));
        entry.epoch = Some(Epoch(9));
        if step <= 5 {
            entry.range = Some(RangeIndex(4));
        }
        if step <= 4 {
            entry.head = Ok(HeadFacts {
                record_count: 1,
                is_fence: false,
                columns: Some(1),
                claim: None,
            });
        }
        if step <= 3 {
            corrupt(entry);
        }
        if step <= 2 {
            entry.length = MAX_BATCH_LENGTH + 1;
        }
    };
    let cases = [
        (1, StreamId(99), 2, ErrorCode::NOT_FOUND),
        (2, SEALED, 2, ErrorCode::PAYLOAD_TOO_LARGE),
        (3, SEALED, 3, ErrorCode::BATCH_CORRUPT),
        (4, SEALED, 4, ErrorCode::SCHEMA_MISMATCH),
        (5, SEALED, 5, ErrorCode::RANGE_NOT_FOUND),
        (6, SEALED, 6, ErrorCode::RANGE_ALREADY_SEALED),
        (7, OPAQUE, 7, ErrorCode::EXPIRED_RANGE_EPOCH),
    ];
    for (step, stream, from, expected) in cases {
        let entry = with(stream, |entry| all_behind(entry, from));
        assert_eq!(code(&judge(&mut table(), &entry)), expected, "step {step}");
    }
}

#[test]
fn offsets_follow_each_other_and_a_refused_append_takes_none() {
    let mut table = table();
    let stored = |verdict| match verdict {
        AppendDecision::Store {
            base_offset,
            next_offset,
            ..
        } => (base_offset.0, next_offset.0),
        other => panic!("{other:?}"),
    };
    assert_eq!(stored(judge(&mut table, &entry(OPAQUE))), (10, 13));
    let late = judge(&mut table, &with(OPAQUE, |e| e.expected_offset = Some(Offset(10))));
    assert!(matches!(late, AppendDecision::Refuse(refused) if refused.next_offset == Some(Offset(13))));
    let asked = judge(&mut table, &with(OPAQUE, empty));
    assert!(
        matches!(asked, AppendDecision::Done(stored) if stored.next_offset == Offset(13) && stored.next_sequence.is_none())
    );
    assert_eq!(stored(judge(&mut table, &entry(OPAQUE))), (13, 16));
}

#[test]
fn readers_see_only_what_is_confirmed() {
    let mut table = table();
    let key = RangeKey {
        stream: OPAQUE,
        range: RangeIndex(0),
    };
    judge(&mut table, &entry(OPAQUE));
    assert_eq!(table.next_offset(key), Some(Offset(10)));
    assert_eq!(
        table.apply(Command::Confirm { key, end: Offset(13) }),
        Effect::Advanced(OPAQUE)
    );
    assert_eq!(table.next_offset(key), Some(Offset(13)));
    assert_eq!(
        table.apply(Command::Confirm { key, end: Offset(12) }),
        Effect::None,
        "it never falls"
    );
    assert_eq!(table.next_offset(key), Some(Offset(13)));
}

#[test]
fn offsets_of_appends_that_were_never_written_are_given_again_once() {
    let mut table = table();
    let key = RangeKey {
        stream: OPAQUE,
        range: RangeIndex(0),
    };
    let bases: Vec<_> = (0..3).map(|_| judge(&mut table, &entry(OPAQUE))).collect();
    let generation = match &bases[0] {
        AppendDecision::Store { generation, .. } => *generation,
        other => panic!("{other:?}"),
    };
    table.apply(Command::Abandon {
        key,
        base: Offset(10),
        generation,
    });
    assert!(matches!(
        judge(&mut table, &entry(OPAQUE)),
        AppendDecision::Store {
            base_offset: Offset(10),
            ..
        }
    ));
    // What was handed over behind the first one fails later, under its old promise: it must not move anything.
    table.apply(Command::Abandon {
        key,
        base: Offset(13),
        generation,
    });
    table.apply(Command::Abandon {
        key,
        base: Offset(16),
        generation,
    });
    assert!(matches!(
        judge(&mut table, &entry(OPAQUE)),
        AppendDecision::Store {
            base_offset: Offset(13),
            ..
        }
    ));
}

#[test]
fn opening_a_range_again_changes_nothing() {
    let mut table = table();
    judge(&mut table, &entry(OPAQUE));
    let again = Command::Open {
        stream: OPAQUE,
        facts: StreamFacts::default(),
        range: range(0, 0, 0, Phase::Open),
    };
    table.apply(again);
    assert!(matches!(
        judge(&mut table, &entry(OPAQUE)),
        AppendDecision::Store {
            base_offset: Offset(13),
            ..
        }
    ));
}

const WAITING: Limits = Limits {
    min_bytes: 1,
    last_call: false,
    budget: 1 << 20,
};

fn fetch(stream: StreamId, offset: i64) -> FetchEntry {
    FetchEntry {
        stream,
        offset: Offset(offset),
        end: None,
        batch_max_bytes: 0,
    }
}

/// Ten bytes a record, up to the confirmed end.
fn judged(table: &RangeTable, entry: &FetchEntry, limits: Limits) -> Readiness {
    judge_fetch(table, entry, limits, |key, from| {
        table.next_offset(key).unwrap().distance_from(from) * 10
    })
}

fn shape(readiness: &Readiness) -> &'static str {
    match readiness {
        Readiness::Empty(positions) if positions.end_of_range => "end of range",
        Readiness::Empty(_) => "empty",
        Readiness::Refused(refusal, _) if refusal.code == ErrorCode::NOT_FOUND => "unknown",
        Readiness::Refused(refusal, _) if refusal.code == ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS => "outside",
        Readiness::Refused(..) => "refused",
        Readiness::Read(_) => "read",
        Readiness::Wait => "wait",
    }
}

#[test]
fn a_fetch_is_answered_when_it_can_be() {
    let at_once = Limits {
        min_bytes: 0,
        ..WAITING
    };
    let much = Limits {
        min_bytes: 101,
        ..WAITING
    };
    let last = Limits {
        last_call: true,
        ..much
    };
    let spent = Limits { budget: 0, ..WAITING };
    let until = |stream, offset, end| FetchEntry {
        end: Some(Offset(end)),
        ..fetch(stream, offset)
    };
    let positions = FetchEntry {
        batch_max_bytes: -1,
        ..fetch(OPAQUE, 3)
    };
    let cases = [
        (fetch(StreamId(99), 0), WAITING, "unknown"),
        (fetch(OPAQUE, 0), WAITING, "read"),
        (fetch(OPAQUE, 0), much, "wait"),
        (fetch(OPAQUE, 0), last, "read"),
        (fetch(OPAQUE, 0), spent, "empty"),
        (fetch(OPAQUE, 10), WAITING, "wait"),
        (fetch(OPAQUE, 10), at_once, "empty"),
        (fetch(OPAQUE, 10), last, "empty"),
        (fetch(OPAQUE, 11), WAITING, "outside"),
        (fetch(OPAQUE, -3), WAITING, "outside"),
        (fetch(OPAQUE, i64::MAX), WAITING, "outside"),
        (until(OPAQUE, 5, 5), WAITING, "empty"),
        (until(OPAQUE, 5, 4), much, "empty"),
        (until(OPAQUE, 11, 5), WAITING, "outside"),
        (until(OPAQUE, 5, 8), much, "read"),
        (until(OPAQUE, 5, 10), much, "read"),
        (until(OPAQUE, 5, 11), much, "wait"),
        (until(OPAQUE, 10, 11), WAITING, "wait"),
        (positions.clone(), at_once, "empty"),
        (positions, much, "wait"),
        (fetch(SEALED, 10), WAITING, "end of range"),
        (fetch(SEALED, 9), much, "read"),
        (fetch(SPLIT, 9), much, "read"),
        (fetch(SPLIT, 10), WAITING, "read"),
        (fetch(SPLIT, 15), WAITING, "wait"),
        (fetch(DAMAGED, 0), WAITING, "read"),
    ];
    for (entry, limits, expected) in cases {
        assert_eq!(
            shape(&judged(&table(), &entry, limits)),
            expected,
            "{entry:?} {limits:?}"
        );
    }
}

#[test]
fn a_read_is_bounded_by_entry_and_budget() {
    let table = table();
    for (asked, budget, expected) in [
        (0, usize::MAX, 1 << 20),
        (5, 100, 5),
        (0, 100, 100),
        (i32::MAX, usize::MAX, MAX_BATCH_LENGTH),
    ] {
        let entry = FetchEntry {
            batch_max_bytes: asked,
            ..fetch(SPLIT, 3)
        };
        match judged(&table, &entry, Limits { budget, ..WAITING }) {
            Readiness::Read(Read {
                key,
                from,
                max_bytes,
                positions,
                ..
            }) => {
                assert_eq!((key.range, from, max_bytes), (RangeIndex(0), Offset(3), expected));
                assert_eq!(
                    (positions.start_offset, positions.high_watermark),
                    (Offset(0), Offset(15))
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn outside_of_the_bounds_the_nearer_one_is_told() {
    let table = table();
    for (offset, nearer) in [(11, 10), (i64::MAX, 10), (-3, 0)] {
        match judged(&table, &fetch(OPAQUE, offset), WAITING) {
            Readiness::Refused(_, Some(bounds)) => {
                assert_eq!((bounds.base_offset, bounds.next_offset), (None, Offset(nearer)));
                assert_eq!((bounds.start_offset, bounds.high_watermark), (Offset(0), Offset(10)));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn names_of_places_are_resolved_once() {
    let table = table();
    let start = |stream, offset, time| resolve_start(&table, stream, Offset(offset), time);
    assert_eq!(start(OPAQUE, -2, None), Ok(Start::At(Offset(0))));
    assert_eq!(start(OPAQUE, -1, None), Ok(Start::At(Offset(10))));
    assert_eq!(start(SPLIT, -1, None), Ok(Start::At(Offset(15))));
    assert_eq!(start(OPAQUE, 99, None), Ok(Start::At(Offset(99))), "judged later");
    assert_eq!(start(StreamId(99), -1, None).unwrap_err().0.code, ErrorCode::NOT_FOUND);
    let time = TimestampMs(5);
    let key = RangeKey {
        stream: OPAQUE,
        range: RangeIndex(0),
    };
    let search = Start::Search(Search {
        ranges: smallvec![SearchedRange {
            key,
            from: Offset(2),
            until: None
        }],
        from: Offset(2),
        time,
        otherwise: Ok(Offset(10)),
    });
    assert_eq!(start(OPAQUE, 2, Some(time)), Ok(search));
    assert_eq!(
        start(OPAQUE, 99, Some(time)).unwrap_err().0.code,
        ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS
    );
}
