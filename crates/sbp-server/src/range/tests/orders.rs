//! Tables over sealing, trimming and deleting.

use super::*;

fn key(stream: StreamId, index: i32) -> RangeKey {
    RangeKey {
        stream,
        range: RangeIndex(index),
    }
}

fn seal(table: &mut RangeTable, key: RangeKey) -> SealStep {
    step(table.apply(Command::Seal { key }))
}

fn drain(table: &mut RangeTable, key: RangeKey) -> SealStep {
    step(table.apply(Command::Drain { key }))
}

fn step(effect: Effect) -> SealStep {
    match effect {
        Effect::Seal(step) => step,
        other => panic!("{other:?}"),
    }
}

fn publish(table: &mut RangeTable, key: RangeKey, end: i64) -> Effect {
    table.apply(Command::Publish { key, end: Offset(end) })
}

#[test]
fn a_seal_ends_where_the_log_is_through_and_always_at_the_same_place() {
    let mut table = table();
    let range = key(OPAQUE, 0);
    judge(&mut table, &entry(OPAQUE));
    assert_eq!(seal(&mut table, range), SealStep::Begun);
    assert_eq!(seal(&mut table, range), SealStep::UnderWay);
    assert_eq!(
        drain(&mut table, range),
        SealStep::UnderWay,
        "three records are not synced"
    );
    table.apply(Command::Confirm {
        key: range,
        end: Offset(13),
    });
    assert_eq!(drain(&mut table, range), SealStep::Done(Offset(13)));
    assert_eq!(seal(&mut table, range), SealStep::Done(Offset(13)));
    assert!(
        matches!(judged(&table, &fetch(OPAQUE, 13), WAITING), Readiness::Wait),
        "nobody knows yet"
    );
    assert_eq!(publish(&mut table, range, 13), Effect::Advanced(OPAQUE));
    assert_eq!(publish(&mut table, range, 13), Effect::None);
    assert_eq!(seal(&mut table, range), SealStep::Done(Offset(13)));
    assert_eq!(shape(&judged(&table, &fetch(OPAQUE, 13), WAITING)), "end of range");
}

#[test]
fn what_cannot_be_sealed_says_why() {
    let mut table = table();
    assert_eq!(seal(&mut table, key(StreamId(99), 0)), SealStep::Unknown);
    assert_eq!(seal(&mut table, key(OPAQUE, 1)), SealStep::Unknown);
    assert_eq!(seal(&mut table, key(DAMAGED, 0)), SealStep::EndDamaged);
    assert_eq!(drain(&mut table, key(OPAQUE, 0)), SealStep::Undone);
}

#[test]
fn appends_wait_while_a_range_is_sealed_where_the_next_one_will_be() {
    let explicit = with(OPAQUE, |entry| entry.range = Some(RangeIndex(0)));
    let sealed = Some(ErrorCode::RANGE_ALREADY_SEALED);
    for (scope, open) in [(Scope::Everything, None), (Scope::Shared, None), (Scope::Told, sealed)] {
        let mut table = table();
        table.scope = scope;
        seal(&mut table, key(OPAQUE, 0));
        let refused = |verdict| match verdict {
            AppendDecision::Park => None,
            verdict => Some(code(&verdict)),
        };
        assert_eq!(refused(judge(&mut table, &entry(OPAQUE))), open);
        assert_eq!(refused(judge(&mut table, &explicit)), sealed);
        assert_eq!(refused(judge(&mut table, &with(OPAQUE, empty))), Some(ErrorCode::NONE));
        table.apply(Command::Unseal { key: key(OPAQUE, 0) });
        assert_eq!(code(&judge(&mut table, &explicit)), ErrorCode::NONE);
        publish(&mut table, key(OPAQUE, 0), 13);
        assert_eq!(
            code(&judge(&mut table, &entry(OPAQUE))),
            ErrorCode::RANGE_ALREADY_SEALED
        );
    }
}

#[test]
fn a_seal_that_was_undone_and_begun_again_waits_for_what_came_between() {
    let mut table = table();
    let range = key(OPAQUE, 0);
    seal(&mut table, range);
    table.apply(Command::Unseal { key: range });
    judge(&mut table, &entry(OPAQUE));
    assert_eq!(seal(&mut table, range), SealStep::Begun);
    assert_eq!(drain(&mut table, range), SealStep::UnderWay, "that of the first seal");
    table.apply(Command::Confirm {
        key: range,
        end: Offset(13),
    });
    assert_eq!(drain(&mut table, range), SealStep::Done(Offset(13)));
}

#[test]
fn a_trim_moves_the_start_and_takes_ranges_but_never_the_last() {
    let trim = |table: &mut RangeTable, stream, start| {
        table.apply(Command::Trim {
            stream,
            start: Offset(start),
        })
    };
    let mut inside = table();
    assert_eq!(
        trim(&mut inside, SPLIT, 5),
        Effect::Trimmed {
            first: key(SPLIT, 0),
            gone: smallvec![]
        }
    );
    assert_eq!(shape(&judged(&inside, &fetch(SPLIT, 4), WAITING)), "outside");
    assert_eq!(shape(&judged(&inside, &fetch(SPLIT, 5), WAITING)), "read");
    assert_eq!(trim(&mut inside, SPLIT, 5), Effect::None);
    assert_eq!(trim(&mut inside, SPLIT, 3), Effect::None, "it never falls");
    assert_eq!(
        trim(&mut inside, SPLIT, 10),
        Effect::Trimmed {
            first: key(SPLIT, 1),
            gone: smallvec![key(SPLIT, 0)]
        }
    );
    assert_eq!(inside.next_offset(key(SPLIT, 0)), None);
    assert_eq!(
        trim(&mut inside, SPLIT, 15),
        Effect::Trimmed {
            first: key(SPLIT, 1),
            gone: smallvec![]
        }
    );
    assert_eq!(shape(&judged(&inside, &fetch(SPLIT, 15), WAITING)), "wait");
    assert_eq!(
        inside.all_held().pop().unwrap(),
        HeldRange {
            key: key(SPLIT, 1),
            epoch: Epoch(1),
            start: Offset(15),
            end: None,
            set: ReplicaSet::alone(),
            copy: CopyRecord::default(),
        }
    );
    let mut sealed = table();
    trim(&mut sealed, SEALED, 10);
    assert_eq!(shape(&judged(&sealed, &fetch(SEALED, 10), WAITING)), "end of range");
}

#[test]
fn a_deleted_stream_is_remembered() {
    for scope in [Scope::Everything, Scope::Shared, Scope::Told] {
        let mut table = table();
        table.scope = scope;
        let gone = table.apply(Command::Delete { stream: SPLIT });
        assert_eq!(gone, Effect::Deleted(smallvec![key(SPLIT, 0), key(SPLIT, 1)]));
        assert_eq!(table.apply(Command::Delete { stream: SPLIT }), Effect::None);
        assert_eq!(code(&judge(&mut table, &entry(SPLIT))), ErrorCode::NOT_FOUND);
        let unknown = code(&judge(&mut table, &entry(StreamId(99))));
        let expected = if scope == Scope::Everything {
            ErrorCode::NOT_FOUND
        } else {
            ErrorCode::RANGE_NOT_FOUND
        };
        assert_eq!(unknown, expected);
        assert_eq!(code(&judge(&mut table, &entry(StreamId(0)))), ErrorCode::NOT_FOUND);
    }
}
