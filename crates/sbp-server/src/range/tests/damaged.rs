//! Copies of which the disk has lost records: what is written back and copied to them puts these back.

use std::sync::Arc;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_log::DamagedInterval;
use sbp_messages::ErrorCode;
use sbp_replication::{Answer, Vote};
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId, StreamId};

use super::copies_rig::{Copies, asked, id};
use super::rig::{FIRST, PATIENCE, held, job_with, short};
use crate::range::{CopyRecord, Heard, HeldRange, IncompleteRange, Refused, ReplicaSet, Upstream};

const THREE: [ServerId; 3] = [ServerId(1), ServerId(2), ServerId(3)];

fn at(offset: i64) -> Position {
    Position::start(Offset(offset))
}

fn record(number: i32) -> Vec<u8> {
    format!("record {number} of some").into_bytes()
}

/// The range on three servers, with so many records, which all of them have.
fn filled(count: i32) -> Copies {
    let mut copies = Copies::new(3, 3);
    for number in 0..count {
        copies.append(job_with(number, record(number)));
        copies.exchange(1);
        copies.exchange(2);
    }
    copies.primary().wait(usize::try_from(count).unwrap());
    // The primary's own sync may have been the last one: what is confirmed since is told to the others too, and is not among
    // what is sent later.
    copies.exchange(1);
    copies.exchange(2);
    copies
}

impl Copies {
    /// A server starts again, and its disk has lost some records.
    fn lose(&mut self, member: usize, end: Option<i64>, lost: &[i32]) {
        self.restart(member, end, None, lost);
    }

    /// A server starts again that has kept from where on another one had something else.
    fn restart(&mut self, member: usize, end: Option<i64>, disputed: Option<Position>, lost: &[i32]) {
        let range = HeldRange {
            set: ReplicaSet::new(THREE, Some(3)),
            copy: CopyRecord {
                disputed,
                ..CopyRecord::default()
            },
            ..held(0, 0, end)
        };
        let lost: Vec<_> = lost.iter().copied().map(record).collect();
        self.rigs[member].restart(id(member), &range, &lost);
    }

    /// Fences a server; its vote.
    fn whole_vote(&self, member: usize) -> Vote {
        let server = &self.rigs[member].server;
        let places = asked(|done| server.fence(FIRST, Some(Epoch(0)), done));
        let taken = places.recv_timeout(PATIENCE).unwrap().unwrap();
        server.fence_is_durable(FIRST, taken).unwrap().vote
    }

    /// Has the primary send the range to a server, until that has all of it.
    fn write_back(&mut self, member: usize, end: Position) {
        let primary = Arc::clone(&self.primary().server);
        let done = asked(|done| primary.write_back(FIRST, &[id(member)], end, done));
        for _frame in 0..10 {
            self.send(member);
            self.deliver_copied(member, end);
            if let Ok(written) = done.try_recv() {
                return written.unwrap();
            }
        }
        panic!("it never has all of it");
    }

    fn incomplete(&self, member: usize) -> Vec<IncompleteRange> {
        self.rigs[member].server.incomplete_ranges(10)
    }

    /// The offsets that a server can read.
    fn readable(&self, member: usize, count: i64) -> Vec<i64> {
        let log = &self.rigs[member].server.log;
        let can_be_read = |offset: &i64| log.read(FIRST, Offset(*offset), 1, true).is_ok();
        (0..count).filter(can_be_read).collect()
    }
}

/// The server had not voted when the end was decided by the votes of the others, so what it may lack is written back to it. Before, the
/// first of the lost records that came made it count for nothing for ever: the seal waited for it until that was given up.
#[test]
fn records_that_a_disk_has_lost_are_put_back_by_what_a_seal_writes_back() {
    let mut copies = filled(12);
    let end = at(12);
    copies.lose(2, None, &[3, 11]);
    assert_eq!(copies.readable(2, 12), [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]);
    for member in [0, 1] {
        assert_eq!(copies.whole_vote(member).whole_to, end);
    }
    copies.write_back(2, end);
    assert_eq!(copies.readable(2, 12).len(), 12);
    assert_eq!(copies.rigs[2].server.log.damage(FIRST), []);
    let vote = copies.whole_vote(2);
    assert_eq!((vote.end, vote.whole_to), (end, end));
}

#[test]
fn a_server_whose_disk_has_lost_records_votes_for_its_end_and_says_that_it_lacks_some() {
    let mut copies = filled(6);
    copies.lose(2, None, &[0, 4]);
    let vote = copies.whole_vote(2);
    assert_eq!((vote.end, vote.whole_to), (at(6), at(0)));
    // Only of a sealed range it says so unasked.
    assert_eq!(copies.incomplete(2), []);
    copies.end(2, 6);
    let lacking = IncompleteRange {
        key: FIRST,
        epoch: Epoch(0),
    };
    assert_eq!(copies.incomplete(2), [lacking]);
    assert_eq!(
        (copies.incomplete(1), copies.rigs[2].server.incomplete_ranges(0)),
        (vec![], vec![])
    );
    copies.vote(0);
    copies.end(0, 6);
    copies.write_back(2, at(6));
    assert_eq!(copies.incomplete(2), []);
    assert_eq!(copies.readable(2, 6).len(), 6);
}

#[test]
fn what_another_server_is_read_for_makes_a_copy_whole_too() {
    let mut copies = filled(6);
    copies.lose(2, Some(6), &[2, 3]);
    assert_eq!(copies.incomplete(2).len(), 1);
    let whole = copies.rigs[1].server.log.read(FIRST, Offset(2), 1 << 20, true).unwrap();
    let damaged = DamagedInterval {
        key: FIRST,
        from: Offset(2),
        to: Offset(4),
    };
    let server = Arc::clone(&copies.rigs[2].server);
    let mend = |batch: &sbp_log::StoredBatch| {
        let bytes = batch.bytes.clone().into_contiguous();
        server.mend(damaged, batch.base_offset, &bytes).unwrap()
    };
    // Other bytes than those that were lost are not taken.
    let wrong = whole[1].bytes.clone().into_contiguous();
    assert!(!server.mend(damaged, Offset(2), &wrong).unwrap());
    assert!(mend(&whole[1]));
    assert_eq!(
        (copies.readable(2, 6), copies.incomplete(2).len()),
        (vec![0, 1, 3, 4, 5], 1)
    );
    assert!(mend(&whole[0]));
    assert_eq!((copies.readable(2, 6).len(), copies.incomplete(2).len()), (6, 0));
}

/// After an end by force that nobody could read all of, the server that is taken for whole may have lost what another one has, or has
/// again. Before, it sent that one nothing more from what it had lost on, so that the other one was never asked what it has, and went on
/// counting as one that lacks some.
#[test]
fn a_server_that_has_what_its_sender_has_lost_is_asked_for_it_again() {
    for lost in [&[2][..], &[0], &[5], &[0, 3, 5]] {
        let mut copies = filled(6);
        let end = at(6);
        for member in [0, 2] {
            copies.lose(member, Some(6), lost);
        }
        let primary = Arc::clone(&copies.primary().server);
        let order = || asked(|done| primary.write_back(FIRST, &[id(2)], end, done));
        let first = order();
        for _time in 0..3 {
            copies.send_with(2, false);
            copies.deliver_copied(2, end);
        }
        assert!(first.try_recv().is_err(), "{lost:?}");
        assert_eq!(copies.send_with(2, false), 0, "{lost:?}: not before it is time");
        assert_eq!(copies.incomplete(2).len(), 1);
        // Its disk gives back what it had.
        for number in lost {
            let (from, to) = (i64::from(*number), i64::from(*number) + 1);
            let whole = &copies.rigs[1].server.log.read(FIRST, Offset(from), 1, true).unwrap()[0];
            let (key, from, to) = (FIRST, Offset(from), Offset(to));
            let bytes = whole.bytes.clone().into_contiguous();
            let server = &copies.rigs[2].server;
            assert!(server.mend(DamagedInterval { key, from, to }, from, &bytes).unwrap());
        }
        assert_eq!(copies.incomplete(2), []);
        // Also if the placement driver orders it anew.
        let second = order();
        primary.tell_again(id(2), [FIRST]);
        assert_eq!(copies.send_with(2, false), 1, "{lost:?}");
        copies.deliver_copied(2, end);
        assert_eq!(second.try_recv().unwrap(), Ok(()), "{lost:?}");
    }
}

#[test]
fn nobody_waits_for_ever_for_a_server_that_cannot_put_back_what_its_disk_has_lost() {
    let mut copies = filled(3);
    let end = at(3);
    copies.whole_vote(0);
    let primary = Arc::clone(&copies.primary().server);
    let order = || asked(|done| primary.write_back(FIRST, &[id(2)], end, done));
    let refused = Refused {
        key: FIRST,
        sealed_end: Some(end),
        question: None,
        is_damaged: true,
    };
    let seconds = Duration::from_secs;
    let first = order();
    // What comes before the damage it has, and says so each time.
    let has_some = Heard {
        key: FIRST,
        sealed_end: Some(end),
        round: None,
        question: None,
        answer: Answer::Synced(at(1)),
    };
    primary.refused_at(id(2), &refused, seconds(1));
    primary.heard(id(2), &[has_some]);
    primary.refused_at(id(2), &refused, seconds(5));
    primary.heard(id(2), &[has_some]);
    // The placement driver asks again, as it does while that goes on.
    let second = order();
    assert_eq!(
        first.recv_timeout(PATIENCE).unwrap(),
        Err(ErrorCode::RS_INTERNAL_SERVER_ERROR)
    );
    primary.refused_at(id(2), &refused, seconds(14));
    primary.heard(id(2), &[has_some]);
    assert!(second.try_recv().is_err());
    primary.refused_at(id(2), &refused, seconds(15));
    assert_eq!(second.try_recv().unwrap(), Err(ErrorCode::RS_DATA_CORRUPTED));
    // What it takes shows that it can.
    let third = order();
    copies.send(2);
    copies.deliver_copied(2, end);
    assert_eq!(third.try_recv().unwrap(), Ok(()));
    let fourth = order();
    primary.refused_at(id(2), &refused, seconds(16));
    assert!(fourth.try_recv().is_err());
}

/// What was made durable.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<(RangeKey, Position)>>);

impl Upstream for Kept {
    fn ask(&self, _: StreamId) {}

    fn keep_dispute(&self, key: RangeKey, at: Position) {
        self.0.lock().push((key, at));
    }
}

#[test]
fn a_copy_that_was_contradicted_has_no_vote_after_a_restart_either() {
    let mut copies = filled(4);
    let end = at(4);
    copies.whole_vote(0);
    let kept = Arc::new(Kept::default());
    copies.rigs[2].server.set_upstream(Arc::clone(&kept) as _);
    let primary = Arc::clone(&copies.primary().server);
    drop(asked(|done| primary.write_back(FIRST, &[id(2)], end, done)));
    copies.send(2);
    // As long as the one that is there, and another one.
    copies.sent[2][1].chunks = copies.sent[2][3].chunks.clone();
    let expected = copies.sent[2].len();
    let mut answers = copies.deliver(2);
    answers.extend(copies.rigs[2].wait(expected - answers.len()));
    let refused = answers
        .iter()
        .filter(|done| short(done).0 == ErrorCode::RS_DATA_CORRUPTED);
    assert_eq!(refused.count(), 1);
    assert_eq!(*kept.0.lock(), [(FIRST, at(1))], "before it was answered");
    let vote = |copies: &Copies| {
        let server = &copies.rigs[2].server;
        let places = asked(|done| server.fence(FIRST, Some(Epoch(0)), done));
        places.recv_timeout(PATIENCE).unwrap()
    };
    assert_eq!(vote(&copies), Err(ErrorCode::RS_DATA_CORRUPTED));
    copies.restart(2, None, Some(at(1)), &[]);
    assert_eq!(vote(&copies), Err(ErrorCode::RS_DATA_CORRUPTED));
    // Told of the end it says that it lacks some, until everything was compared with what others have.
    copies.end(2, 4);
    assert_eq!(copies.incomplete(2).len(), 1);
    copies.end(0, 4);
    copies.write_back(2, end);
    assert_eq!(copies.incomplete(2), []);
}
