//! What the ledger finds wrong, and what not.

use sbp_client::{Ack, Durability};
use sbp_e2e::ledger::{Ledger, RECORDS, Written};
use sbp_types::{Offset, StreamId, TimestampMs};

const STREAM: StreamId = StreamId(1);

fn ack(base: i64) -> Ack {
    Ack {
        stream: STREAM,
        base_offset: Some(Offset(base)).filter(|_| base >= 0),
        records: 2,
        next_offset: Some(Offset(base + 2)),
        append_time: TimestampMs(0),
        durability: Durability::Fsync,
        duplicate: false,
        next_sequence: None,
    }
}

/// What is wrong when these batches of writer 0 were read.
fn judged(batches: &[u64], acks: &[i64]) -> Vec<String> {
    let mut ledger = Ledger::default();
    for (offset, &batch) in (0..).step_by(2).zip(batches) {
        for place in 0..RECORDS {
            let record = Written {
                writer: 0,
                batch,
                place,
            };
            assert_eq!(Written::parse(record.value().as_bytes()), Some(record));
            ledger.add(STREAM, offset + i64::try_from(place).unwrap(), record);
        }
    }
    ledger.judge(&[(STREAM, acks.iter().copied().map(ack).collect())])
}

#[test]
fn only_once_and_in_order_is_right() {
    assert_eq!(judged(&[0, 1, 2], &[0, 2, 4]), [""; 0]);
    assert_eq!(
        judged(&[0, 1, 2], &[0, -1, 4]),
        [""; 0],
        "an old duplicate tells no offset"
    );
    for (batches, acks, says) in [
        (&[0, 1, 1][..], &[0, 2][..], "twice"),
        (&[0, 1, 0], &[0, 2], "twice"),
        (&[0, 2, 1], &[0, 4, 2], "before others"),
        (&[0, 1], &[0, 2, 4], "of 6"),
        (&[0, 1], &[0, 4], "elsewhere"),
        (&[], &[0], "of 2"),
    ] {
        let wrong = judged(batches, acks);
        assert!(wrong.iter().any(|wrong| wrong.contains(says)), "{batches:?}: {wrong:?}");
    }
}

#[test]
fn offsets_have_no_holes() {
    let mut ledger = Ledger::default();
    let record = |place| Written {
        writer: 0,
        batch: 0,
        place,
    };
    ledger.add(STREAM, 0, record(0));
    ledger.add(STREAM, 2, record(1));
    assert!(ledger.judge(&[(STREAM, vec![ack(-1)])])[0].contains("offset 2 where 1"));
    assert_eq!(ledger.end(STREAM), 3);
}

/// Histories that two writers cannot have, each by its records as `writer/batch/place`. Both have written two batches, which
/// were acknowledged one after the other: 0/0 at 0, 1/0 at 2, 0/1 at 4, 1/1 at 6.
#[test]
fn a_history_of_two_writers_is_judged_record_by_record() {
    let other = StreamId(2);
    let writers = [(STREAM, vec![ack(0), ack(4)]), (STREAM, vec![ack(2), ack(6)])];
    let judged = |records: &str, elsewhere: Option<&str>| {
        let mut ledger = Ledger::default();
        let parse = |record: &str| Written::parse(record.as_bytes()).unwrap();
        for (offset, record) in (0..).zip(records.split(' ')) {
            ledger.add(STREAM, offset, parse(record));
        }
        if let Some(record) = elsewhere {
            ledger.add(other, 0, parse(record));
        }
        ledger.judge(&writers)
    };
    let right = "0/0/0 0/0/1 1/0/0 1/0/1 0/1/0 0/1/1 1/1/0 1/1/1";
    assert_eq!(judged(right, None), [""; 0]);
    for (history, records, says) in [
        (
            "the end is torn off",
            "0/0/0 0/0/1 1/0/0 1/0/1 0/1/0 0/1/1 1/1/0",
            "3 records are there of 4",
        ),
        (
            "a batch is torn",
            "0/0/0 1/0/0 1/0/1 0/1/0 0/1/1 1/1/0 1/1/1",
            "before others",
        ),
        (
            "a batch is turned round",
            "0/0/1 0/0/0 1/0/0 1/0/1 0/1/0 0/1/1 1/1/0 1/1/1",
            "before others",
        ),
        ("a writer is lost", "0/0/0 0/0/1 0/1/0 0/1/1", "writer 1: 0 records"),
        (
            "two batches changed places",
            "1/0/0 1/0/1 0/0/0 0/0/1 0/1/0 0/1/1 1/1/0 1/1/1",
            "elsewhere",
        ),
        (
            "a batch came back at the end",
            "0/0/0 0/0/1 1/0/0 1/0/1 0/1/0 0/1/1 1/1/0 1/1/1 0/0/0 0/0/1",
            "twice",
        ),
        (
            "more than was acknowledged",
            "0/0/0 0/0/1 1/0/0 1/0/1 0/1/0 0/1/1 1/1/0 1/1/1 0/2/0 0/2/1",
            "6 records are there of 4",
        ),
        (
            "a writer that never was",
            "0/0/0 0/0/1 1/0/0 1/0/1 0/1/0 0/1/1 1/1/0 1/1/1 2/0/0",
            "nobody wrote it",
        ),
    ] {
        let wrong = judged(records, None);
        assert!(wrong.iter().any(|wrong| wrong.contains(says)), "{history}: {wrong:?}");
    }
    let wrong = judged(right, Some("1/1/1"));
    assert!(
        wrong[0].contains("nobody wrote it there"),
        "in a stream that it was not written to: {wrong:?}"
    );
}

#[test]
fn what_was_read_once_is_read_again_at_its_offset() {
    let record = |batch| Written {
        writer: 0,
        batch,
        place: 0,
    };
    let ledger = |records: &[(i64, u64)]| {
        let mut ledger = Ledger::default();
        for (offset, batch) in records {
            ledger.add(STREAM, *offset, record(*batch));
        }
        ledger
    };
    let before = ledger(&[(0, 0), (1, 1), (2, 2)]);
    let judged = |later: &[(i64, u64)], start| before.judge_later(&ledger(later), STREAM, start);
    assert_eq!(judged(&[(0, 0), (1, 1), (2, 2), (3, 3)], 0), None);
    assert_eq!(judged(&[(1, 1), (2, 2)], 1), None, "the first was trimmed");
    for (later, says) in [
        (&[(0, 0), (1, 1)][..], "gone"),
        (&[(0, 0), (2, 2)], "is at 2 later"),
        (&[(0, 0), (1, 2), (2, 1)], "0/2/0 is at 1 later"),
        (&[(0, 0), (1, 3), (2, 2)], "0/3/0 is at 1 later"),
        (&[], "gone"),
        (&[(0, 7), (1, 0), (2, 1)], "0/7/0 is at 0 later"),
    ] {
        let wrong = judged(later, 0).unwrap();
        assert!(wrong.contains(says), "{later:?}: {wrong}");
    }
}
