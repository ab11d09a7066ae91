//! Tables over idempotent writers.

use sbp_types::WriterId;

use super::*;
use crate::range::append::Fence;
use crate::range::outcome::Stored;
use crate::range::writers::{Until, WriterQuestion};

const ME: WriterId = WriterId { high: 1, low: 1 };
const OTHER: WriterId = WriterId { high: 1, low: 2 };
const KEY: RangeKey = RangeKey {
    stream: OPAQUE,
    range: RangeIndex(0),
};

fn claimed(writer: WriterId, epoch: i64, sequence: i64, record_count: i64) -> AppendEntry {
    with(OPAQUE, |entry| {
        entry.head = Ok(HeadFacts {
            record_count,
            is_fence: false,
            columns: None,
            claim: Some(WriterSequence {
                writer,
                epoch,
                sequence,
            }),
        });
    })
}

fn mine(epoch: i64, sequence: i64, count: i64) -> AppendEntry {
    claimed(ME, epoch, sequence, count)
}

fn confirm(table: &mut RangeTable, end: i64) {
    table.apply(Command::Confirm {
        key: KEY,
        end: Offset(end),
    });
}

/// What an entry comes to, in short: the code, base offset, next offset and next sequence of its answer.
fn answer(verdict: &AppendDecision) -> (ErrorCode, i64, i64, i64) {
    match verdict {
        AppendDecision::Store {
            base_offset,
            next_offset,
            next_sequence,
            ..
        } => (
            ErrorCode::NONE,
            base_offset.0,
            next_offset.0,
            next_sequence.unwrap_or(-1),
        ),
        AppendDecision::Done(stored) | AppendDecision::After { stored, .. } => {
            let Stored {
                base_offset,
                next_offset,
                next_sequence,
                ..
            } = stored;
            let base_offset = base_offset.map_or(-1, |offset| offset.0);
            (ErrorCode::NONE, base_offset, next_offset.0, next_sequence.unwrap_or(-1))
        }
        AppendDecision::Refuse(refused) => {
            let next = refused.next_offset.unwrap_or(Offset(-1));
            (refused.refusal.code, -1, next.0, refused.next_sequence.unwrap_or(-1))
        }
        other => panic!("{other:?}"),
    }
}

/// A writer in epoch 1 that has stored the sequences 0..3, 3..7 and 7..10 at the offsets 10..20.
fn written() -> RangeTable {
    let mut table = table();
    for (sequence, count) in [(0, 3), (3, 4), (7, 3)] {
        let verdict = judge(&mut table, &mine(1, sequence, count));
        assert!(matches!(verdict, AppendDecision::Store { .. }), "{verdict:?}");
    }
    confirm(&mut table, 20);
    table
}

#[test]
fn batches_are_judged_by_what_their_writer_has_stored() {
    use ErrorCode as E;
    let cases = [
        ("the next one", mine(1, 10, 2), (E::NONE, 20, 22, 12)),
        ("the last one again", mine(1, 7, 3), (E::NONE, 17, 20, 10)),
        ("the first one again", mine(1, 0, 3), (E::NONE, 10, 13, 10)),
        ("a hole", mine(1, 11, 2), (E::SEQUENCE_GAP, -1, -1, 10)),
        (
            "more than the last one",
            mine(1, 7, 4),
            (E::SEQUENCE_OVERLAP, -1, -1, 10),
        ),
        (
            "less than the last one",
            mine(1, 7, 2),
            (E::SEQUENCE_OVERLAP, -1, -1, 10),
        ),
        ("two at once", mine(1, 3, 7), (E::SEQUENCE_OVERLAP, -1, -1, 10)),
        ("an older epoch", mine(0, 10, 2), (E::WRITER_FENCED, -1, -1, -1)),
        ("an older epoch again", mine(0, 7, 3), (E::WRITER_FENCED, -1, -1, -1)),
        ("a newer epoch from 0", mine(2, 0, 3), (E::NONE, 20, 23, 3)),
        (
            "a newer epoch from where the older one stands",
            mine(2, 10, 3),
            (E::NONE, 20, 23, 13),
        ),
        (
            "a newer epoch from elsewhere",
            mine(2, 7, 3),
            (E::SEQUENCE_GAP, -1, -1, 10),
        ),
        (
            "a newer epoch from beyond",
            mine(2, 11, 3),
            (E::SEQUENCE_GAP, -1, -1, 10),
        ),
        (
            "an unknown writer, anywhere",
            claimed(OTHER, 7, 500, 1),
            (E::NONE, 20, 21, 501),
        ),
        ("no writer", entry(OPAQUE), (E::NONE, 20, 23, -1)),
        ("asking", mine(1, 0, 0), (E::NONE, -1, 20, 10)),
        ("asking in a newer epoch", mine(2, 0, 0), (E::NONE, -1, 20, 10)),
        (
            "asking in an older epoch",
            mine(0, 0, 0),
            (E::WRITER_FENCED, -1, -1, -1),
        ),
        ("an unknown writer asks", claimed(OTHER, 0, 0, 0), (E::NONE, -1, 20, -1)),
        ("nobody asks", with(OPAQUE, empty), (E::NONE, -1, 20, -1)),
    ];
    for (what, entry, expected) in cases {
        let verdict = judge(&mut written(), &entry);
        assert_eq!(answer(&verdict), expected, "{what}");
        let repeats = matches!(verdict, AppendDecision::Done(Stored { duplicate: true, .. }));
        assert_eq!(repeats, what.ends_with("one again"), "{what}");
    }
}

#[test]
fn a_question_and_a_refusal_change_nothing() {
    let mut table = written();
    for entry in [mine(5, 0, 0), mine(5, 1, 1), mine(1, 11, 1), mine(1, 8, 1)] {
        judge(&mut table, &entry);
    }
    let conditional = AppendEntry {
        expected_offset: Some(Offset(7)),
        ..mine(5, 0, 1)
    };
    let refused = judge(&mut table, &conditional);
    assert_eq!(answer(&refused), (ErrorCode::PRECONDITION_FAILED, -1, 20, 10));
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 10, 1))),
        (ErrorCode::NONE, 20, 21, 11)
    );
}

#[test]
fn the_last_64_batches_are_known_by_offset() {
    let mut table = table();
    for sequence in 0..100 {
        judge(&mut table, &mine(0, sequence * 2, 2));
    }
    confirm(&mut table, 210);
    let again = |table: &mut RangeTable, sequence| answer(&judge(table, &mine(0, sequence, 2)));
    assert_eq!(again(&mut table, 198), (ErrorCode::NONE, 208, 210, 200));
    assert_eq!(again(&mut table, 72), (ErrorCode::NONE, 82, 84, 200), "the 64th");
    assert_eq!(
        again(&mut table, 70),
        (ErrorCode::NONE, -1, 210, 200),
        "the 65th is known to be there"
    );
    assert_eq!(
        again(&mut table, 71),
        (ErrorCode::SEQUENCE_OVERLAP, -1, -1, 200),
        "it reaches into the window"
    );
}

#[test]
fn a_repeat_waits_for_what_it_repeats() {
    let mut table = table();
    judge(&mut table, &mine(0, 0, 3));
    judge(&mut table, &mine(0, 3, 3));
    let until = |verdict: AppendDecision| match verdict {
        AppendDecision::After { until, stored } if stored.duplicate => until.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(until(judge(&mut table, &mine(0, 0, 3))), 13);
    assert_eq!(until(judge(&mut table, &mine(0, 3, 3))), 16);
    confirm(&mut table, 13);
    let first = judge(&mut table, &mine(0, 0, 3));
    assert!(
        matches!(first, AppendDecision::Done(stored) if stored.base_offset == Some(Offset(10))),
        "{first:?}"
    );
    assert_eq!(until(judge(&mut table, &mine(0, 3, 3))), 16);
}

#[test]
fn a_question_waits_for_what_is_under_way() {
    let mut table = written();
    judge(&mut table, &mine(1, 10, 5));
    let asked = |table: &mut RangeTable, epoch| {
        let claim = WriterSequence {
            writer: ME,
            epoch,
            sequence: 0,
        };
        let question = WriterQuestion { claim, is_fence: false };
        table.answer_question(OPAQUE, &question).unwrap()
    };
    let until = Until::Synced(Offset(25));
    assert_eq!(judge(&mut table, &mine(1, 0, 0)), AppendDecision::Ask { until });
    assert_eq!(asked(&mut table, 1).unwrap().next_sequence, Some(10));
    confirm(&mut table, 25);
    assert_eq!(asked(&mut table, 1).unwrap().next_sequence, Some(15));
    assert_eq!(asked(&mut table, 2).unwrap().next_sequence, Some(15));
    let refused = asked(&mut table, 0).unwrap_err().refusal;
    assert_eq!(refused.code, ErrorCode::WRITER_FENCED);
    assert_eq!(refused.detail[..], 1_i64.to_be_bytes(), "the epoch to beat");
}

#[test]
fn what_the_log_does_not_store_leaves_nothing_behind() {
    let mut table = written();
    // A newer epoch, two batches under way: both are refused by the log.
    judge(&mut table, &mine(2, 0, 4));
    judge(&mut table, &mine(2, 4, 4));
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 10, 1))).0,
        ErrorCode::WRITER_FENCED,
        "fenced for as long as it may be stored"
    );
    let lost = table.apply(Command::Abandon {
        key: KEY,
        base: Offset(20),
        generation: 0,
    });
    assert_eq!(
        lost,
        Effect::TakenBack {
            key: KEY,
            from: Offset(20)
        }
    );
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 7, 3))),
        (ErrorCode::NONE, 17, 20, 10)
    );
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 10, 1))),
        (ErrorCode::NONE, 20, 21, 11)
    );
    // A writer that stored nothing is unknown again.
    judge(&mut table, &claimed(OTHER, 3, 50, 1));
    table.apply(Command::TakeBack {
        key: KEY,
        base: Offset(21),
    });
    assert_eq!(
        answer(&judge(&mut table, &claimed(OTHER, 0, 9, 1))),
        (ErrorCode::NONE, 21, 22, 10)
    );
}

#[test]
fn a_fence_is_found_first_then_a_repeat_then_the_range() {
    let mut table = written();
    table.apply(Command::Seal { key: KEY });
    table.apply(Command::Publish {
        key: KEY,
        end: Offset(20),
    });
    let wrong_place = |entry: AppendEntry| AppendEntry {
        range: Some(RangeIndex(4)),
        epoch: Some(Epoch(9)),
        expected_offset: Some(Offset(3)),
        ..entry
    };
    let judged = |table: &mut RangeTable, entry| answer(&judge(table, &entry)).0;
    assert_eq!(judged(&mut table, wrong_place(mine(0, 0, 1))), ErrorCode::WRITER_FENCED);
    assert_eq!(judged(&mut table, wrong_place(mine(1, 0, 3))), ErrorCode::NONE);
    assert_eq!(judged(&mut table, wrong_place(mine(1, 9, 0))), ErrorCode::NONE);
    assert_eq!(
        judged(&mut table, wrong_place(mine(1, 99, 1))),
        ErrorCode::RANGE_NOT_FOUND
    );
    assert_eq!(judged(&mut table, mine(1, 99, 1)), ErrorCode::RANGE_ALREADY_SEALED);
}

#[test]
fn a_writer_goes_on_in_the_next_range() {
    let mut table = written();
    table.apply(Command::Seal { key: KEY });
    table.apply(Command::Publish {
        key: KEY,
        end: Offset(20),
    });
    table.apply(Command::Open {
        stream: OPAQUE,
        facts: StreamFacts::default(),
        range: range(1, 20, 20, Phase::Open),
    });
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 7, 3))),
        (ErrorCode::NONE, 17, 20, 10)
    );
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 10, 1))),
        (ErrorCode::NONE, 20, 21, 11)
    );
}

#[test]
fn what_lies_behind_the_end_of_a_sealed_range_is_no_repeat() {
    let stored = |sequence, base_offset| sbp_log::EntryHead {
        key: KEY,
        base_offset: Offset(base_offset),
        count: 1,
        writer: ME,
        writer_epoch: 1,
        base_sequence: sequence,
        ..Default::default()
    };
    let mut state = sbp_log::WriterState::default();
    for (sequence, offset) in [(0, 18), (1, 19), (2, 20), (3, 21)] {
        state.record(&stored(sequence, offset));
    }
    for (sealed, expected) in [
        (true, (ErrorCode::NONE, 20, 21, 3)),
        (false, (ErrorCode::NONE, 20, 21, 4)),
    ] {
        let mut table = table();
        confirm(&mut table, if sealed { 20 } else { 22 });
        if sealed {
            publish(&mut table, 20);
        }
        table.apply(Command::Recall {
            stream: OPAQUE,
            writer: ME,
            state: state.clone(),
        });
        let again = judge(&mut table, &mine(1, 1, 1));
        assert!(matches!(again, AppendDecision::Done(stored) if stored.base_offset == Some(Offset(19))));
        let verdict = judge(&mut table, &mine(1, 2, 1));
        assert_eq!(matches!(verdict, AppendDecision::Store { .. }), sealed, "{verdict:?}");
        assert_eq!(answer(&verdict), expected);
    }
}

fn fence(epoch: i64) -> AppendEntry {
    let mut entry = mine(epoch, 0, 0);
    entry.head.as_mut().unwrap().is_fence = true;
    entry
}

fn fenced(table: &mut RangeTable, epoch: i64) {
    table.apply(Command::Fenced {
        stream: OPAQUE,
        writer: ME,
        epoch,
    });
}

#[test]
fn a_fence_takes_no_offset_and_its_epoch_goes_on_where_the_older_one_stood() {
    let mut table = written();
    let AppendDecision::Fence(found) = judge(&mut table, &fence(4)) else {
        panic!("no fence")
    };
    let Fence {
        key,
        base_offset,
        claim,
        next_sequence,
        ..
    } = found;
    assert_eq!((key, base_offset.0, claim.epoch, next_sequence), (KEY, 20, 4, 10));
    // It is not synced, and nobody passes it all the same.
    assert_eq!(answer(&judge(&mut table, &mine(1, 10, 1))).0, ErrorCode::WRITER_FENCED);
    // A repeat, and a question, wait for it.
    let until = Until::Fenced { writer: ME, epoch: 4 };
    assert_eq!(judge(&mut table, &fence(4)), AppendDecision::Ask { until });
    assert_eq!(judge(&mut table, &mine(4, 0, 0)), AppendDecision::Ask { until });
    fenced(&mut table, 4);
    let repeat = judge(&mut table, &fence(4));
    assert!(
        matches!(repeat, AppendDecision::Done(Stored { duplicate: true, .. })),
        "{repeat:?}"
    );
    assert_eq!(answer(&repeat), (ErrorCode::NONE, -1, 20, 10));
    for lower in [fence(3), fence(1), mine(3, 10, 1), mine(1, 7, 3), mine(1, 0, 0)] {
        let AppendDecision::Refuse(refused) = judge(&mut table, &lower) else {
            panic!("{lower:?} passes")
        };
        assert_eq!(refused.refusal.code, ErrorCode::WRITER_FENCED);
        assert_eq!(refused.refusal.detail[..], 4_i64.to_be_bytes());
    }
    // What the older epoch has stored is known; 0 is no beginning any more.
    assert_eq!(
        answer(&judge(&mut table, &mine(4, 7, 3))),
        (ErrorCode::NONE, 17, 20, 10)
    );
    assert_eq!(
        answer(&judge(&mut table, &mine(4, 0, 2))).0,
        ErrorCode::SEQUENCE_OVERLAP
    );
    assert_eq!(answer(&judge(&mut table, &mine(4, 11, 1))).0, ErrorCode::SEQUENCE_GAP);
    assert_eq!(
        answer(&judge(&mut table, &mine(4, 10, 2))),
        (ErrorCode::NONE, 20, 22, 12)
    );
}

#[test]
fn an_unknown_writer_that_is_opened_begins_at_0() {
    let mut table = table();
    assert!(matches!(judge(&mut table, &fence(1)), AppendDecision::Fence(fence) if fence.next_sequence == 0));
    fenced(&mut table, 1);
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 5, 1))),
        (ErrorCode::SEQUENCE_GAP, -1, -1, 0)
    );
    assert_eq!(answer(&judge(&mut table, &mine(1, 0, 0))), (ErrorCode::NONE, -1, 10, 0));
    assert_eq!(answer(&judge(&mut table, &mine(1, 0, 2))), (ErrorCode::NONE, 10, 12, 2));
}

#[test]
fn a_fence_that_the_log_does_not_store_leaves_nothing_behind() {
    let mut table = written();
    judge(&mut table, &mine(1, 10, 2));
    assert!(matches!(judge(&mut table, &fence(2)), AppendDecision::Fence(fence) if fence.next_sequence == 12));
    judge(&mut table, &mine(2, 12, 2));
    // The log had no room for any of them, and says so in their order.
    table.apply(Command::Abandon {
        key: KEY,
        base: Offset(20),
        generation: 0,
    });
    table.apply(Command::Unfence {
        stream: OPAQUE,
        writer: ME,
        epoch: 2,
    });
    let question = WriterQuestion {
        claim: WriterSequence {
            writer: ME,
            epoch: 2,
            sequence: 0,
        },
        is_fence: true,
    };
    assert_eq!(
        table.answer_question(OPAQUE, &question),
        None,
        "its repeat ends as it did"
    );
    assert_eq!(
        answer(&judge(&mut table, &mine(1, 10, 1))),
        (ErrorCode::NONE, 20, 21, 11)
    );
    // Where nothing else was known, the writer is unknown again.
    let mut table = super::table();
    judge(&mut table, &fence(2));
    table.apply(Command::Unfence {
        stream: OPAQUE,
        writer: ME,
        epoch: 2,
    });
    assert_eq!(
        answer(&judge(&mut table, &mine(0, 9, 1))),
        (ErrorCode::NONE, 10, 11, 10)
    );
}

#[test]
fn a_fence_that_was_queued_before_a_batch_stays_when_the_batch_is_refused() {
    let mut table = written();
    judge(&mut table, &fence(2));
    judge(&mut table, &mine(2, 10, 1));
    // Both are at offset 20; the log did not queue the batch.
    table.apply(Command::TakeBack {
        key: KEY,
        base: Offset(20),
    });
    assert_eq!(answer(&judge(&mut table, &mine(1, 10, 1))).0, ErrorCode::WRITER_FENCED);
    fenced(&mut table, 2);
    assert_eq!(
        answer(&judge(&mut table, &mine(2, 10, 1))),
        (ErrorCode::NONE, 20, 21, 11)
    );
}

#[test]
fn a_fence_goes_where_batches_go() {
    let mut table = written();
    let refused = |verdict: AppendDecision| match verdict {
        AppendDecision::Refuse(refused) => refused.refusal.code,
        other => panic!("{other:?}"),
    };
    let elsewhere = AppendEntry {
        range: Some(RangeIndex(3)),
        ..fence(2)
    };
    assert_eq!(refused(judge(&mut table, &elsewhere)), ErrorCode::RANGE_NOT_FOUND);
    table.scope = Scope::Everything;
    table.apply(Command::Seal { key: KEY });
    assert_eq!(
        judge(&mut table, &fence(2)),
        AppendDecision::Park,
        "the next range will take it"
    );
    assert_eq!(
        answer(&judge(&mut table, &mine(2, 0, 0))),
        (ErrorCode::NONE, -1, 20, 10)
    );
    table.apply(Command::Publish {
        key: KEY,
        end: Offset(20),
    });
    assert_eq!(refused(judge(&mut table, &fence(2))), ErrorCode::RANGE_ALREADY_SEALED);
    // Of a batch with records, and of no writer, the flag means nothing.
    let mut flagged = mine(2, 10, 1);
    flagged.head.as_mut().unwrap().is_fence = true;
    let mut nobodys = with(OPAQUE, empty);
    nobodys.head.as_mut().unwrap().is_fence = true;
    let mut table = written();
    assert_eq!(answer(&judge(&mut table, &nobodys)), (ErrorCode::NONE, -1, 20, -1));
    assert_eq!(answer(&judge(&mut table, &flagged)), (ErrorCode::NONE, 20, 21, 11));
}

/// An instance of a writer in the test below: its epoch, and how far it is.
#[derive(Clone, Copy, Default)]
struct Instance {
    epoch: i64,
    next: i64,
}

/// Something that the log was given in the test below.
enum Queued {
    Batch { sequence: i64, end: i64 },
    Fence { instance: usize, epoch: i64, next: i64 },
}

/// Several instances of one writer, opened again and again over a log that syncs, and now and then refuses, what it was
/// given: what is stored is each sequence once and in order, whoever wrote it.
#[test]
fn instances_that_take_over_from_each_other_store_each_record_once() {
    let mut opened = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = table();
        let (mut synced, mut generation) = (0_i64, 0);
        let mut queued: std::collections::VecDeque<Queued> = std::collections::VecDeque::new();
        let mut instances: [Option<Instance>; 3] = [None; 3];
        let mut highest = 0;
        for _step in 0..300 {
            let place = random.usize(..instances.len());
            match random.u8(..12) {
                0..4 => match queued.pop_front() {
                    Some(Queued::Batch { sequence, end }) => {
                        assert_eq!(sequence, synced, "seed {seed}: lost or doubled");
                        synced = end;
                        confirm(&mut table, 10 + synced);
                    }
                    Some(Queued::Fence { instance, epoch, next }) => {
                        assert_eq!(next, synced, "seed {seed}: the writer goes on where it is not");
                        fenced(&mut table, epoch);
                        instances[instance] = Some(Instance { epoch, next });
                        opened += 1;
                    }
                    None => {}
                },
                4 => {
                    for lost in queued.drain(..) {
                        match lost {
                            Queued::Batch { sequence, .. } => {
                                let base = Offset(10 + sequence);
                                table.apply(Command::Abandon {
                                    key: KEY,
                                    base,
                                    generation,
                                });
                            }
                            Queued::Fence { epoch, .. } => {
                                let (stream, writer) = (OPAQUE, ME);
                                table.apply(Command::Unfence { stream, writer, epoch });
                            }
                        }
                    }
                    generation = table.range(KEY).unwrap().generation;
                    // What was under way ended in errors, so a writer stops: it is opened again.
                    instances = [None; 3];
                }
                5 => {
                    let epoch = highest + random.i64(0..3);
                    highest = highest.max(epoch);
                    if let AppendDecision::Fence(found) = judge(&mut table, &fence(epoch)) {
                        let next = found.next_sequence;
                        let instance = place;
                        queued.push_back(Queued::Fence { instance, epoch, next });
                    }
                }
                _ => {
                    let Some(Instance { epoch, next }) = instances[place] else {
                        continue;
                    };
                    let count = random.i64(1..4);
                    match judge(&mut table, &mine(epoch, next, count)) {
                        AppendDecision::Store { base_offset, .. } => {
                            assert_eq!(base_offset.0, 10 + next, "seed {seed}");
                            let end = next + count;
                            queued.push_back(Queued::Batch { sequence: next, end });
                            instances[place] = Some(Instance { epoch, next: end });
                        }
                        AppendDecision::Refuse(refused) => {
                            assert_eq!(refused.refusal.code, ErrorCode::WRITER_FENCED, "seed {seed}");
                            instances[place] = None;
                        }
                        other => panic!("seed {seed}: another instance's records passed for this one's: {other:?}"),
                    }
                }
            }
        }
    }
    assert!(opened > 1_000, "only {opened} openings");
}

/// Seals the stream's range and opens the next one.
fn publish(table: &mut RangeTable, end: i64) {
    table.apply(Command::Seal { key: KEY });
    table.apply(Command::Publish {
        key: KEY,
        end: Offset(end),
    });
    table.apply(Command::Open {
        stream: OPAQUE,
        facts: StreamFacts::default(),
        range: range(1, end, end, Phase::Open),
    });
}

/// The rules once more, by a list of everything ever stored, against random traffic with losses.
#[test]
fn random_traffic_stores_each_record_once_and_in_order() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = table();
        // The sequences in the log, where its batches end, and how many sequences are synced.
        let (mut log, mut ends, mut synced) = (Vec::<i64>::new(), vec![0_usize], 0_usize);
        let mut generation = 0;
        for _step in 0..300 {
            match random.u8(..10) {
                0 => {
                    synced = synced.max(ends[random.usize(..ends.len())]);
                    confirm(&mut table, 10 + i64::try_from(synced).unwrap());
                }
                1 if log.len() > synced => {
                    log.truncate(synced);
                    ends.retain(|end| *end <= synced);
                    let base = Offset(10 + i64::try_from(synced).unwrap());
                    table.apply(Command::Abandon {
                        key: KEY,
                        base,
                        generation,
                    });
                    generation += 1;
                }
                _ => {
                    let next = i64::try_from(log.len()).unwrap();
                    // An unknown writer could start anywhere.
                    let sequence = if log.is_empty() {
                        0
                    } else {
                        (next + random.i64(-4..3)).max(0)
                    };
                    let count = random.i64(1..4);
                    let verdict = judge(&mut table, &mine(0, sequence, count));
                    match verdict {
                        AppendDecision::Store { base_offset, .. } => {
                            assert_eq!((base_offset.0, sequence), (10 + next, next), "seed {seed}");
                            log.extend(sequence..sequence + count);
                            ends.push(log.len());
                        }
                        AppendDecision::Done(stored) | AppendDecision::After { stored, .. } => {
                            assert!(stored.duplicate && sequence + count <= next, "seed {seed}");
                        }
                        AppendDecision::Refuse(refused) if refused.refusal.code == ErrorCode::SEQUENCE_GAP => {
                            assert!(sequence > next && refused.next_sequence == Some(next), "seed {seed}");
                        }
                        AppendDecision::Refuse(refused) => {
                            assert_eq!(refused.refusal.code, ErrorCode::SEQUENCE_OVERLAP, "seed {seed}");
                            assert!(sequence < next, "seed {seed}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        assert!(
            log.iter()
                .enumerate()
                .all(|(place, sequence)| i64::try_from(place).unwrap() == *sequence)
        );
    }
}
