use sbp_types::{Epoch, RangeIndex, RangeKey, StreamId};

use super::*;
use crate::quorum::Quorum;

fn at(offset: i64) -> Position {
    Position::start(Offset(offset))
}

fn range(start: i64) -> Arc<ReplicatedRange> {
    Arc::new(ReplicatedRange {
        key: RangeKey {
            stream: StreamId(1),
            range: RangeIndex(i32::from(start > 0)),
        },
        epoch: Epoch(1),
        start: Offset(start),
        servers: (1..=3).map(ServerId).collect(),
        quorum: Quorum::new(3, 2).unwrap(),
    })
}

fn vote(end: Position) -> Vote {
    Vote {
        end,
        whole_to: end,
        begins_at: at(0),
        writers_end: None,
    }
}

fn job(range: Arc<ReplicatedRange>, votes: &[(i32, Vote)]) -> SealJob {
    let mut job = SealJob::new(range, Rules::default());
    for (server, vote) in votes {
        job.vote(ServerId(*server), *vote);
    }
    job.decide();
    job
}

fn servers(numbers: &[i32]) -> SmallVec<[ServerId; 3]> {
    numbers.iter().copied().map(ServerId).collect()
}

#[test]
fn a_damaged_copy_is_not_complete_and_sends_what_others_lack() {
    let damaged = Vote {
        whole_to: at(3),
        ..vote(at(9))
    };
    let mut job = job(range(0), &[(2, damaged), (3, vote(at(5)))]);
    let step = SealStep::WriteBack {
        source: ServerId(2),
        to: servers(&[1, 3]),
        end: at(9),
    };
    assert_eq!(job.step(), step);
    job.away(ServerId(1));
    job.written_back(ServerId(3));
    let heals = SealStep::WriteBack {
        source: ServerId(3),
        to: servers(&[2]),
        end: at(9),
    };
    assert_eq!(job.step(), heals, "the damaged copy is made good by the other one");
    job.written_back(ServerId(2));
    let SealStep::Store(sealed) = job.step() else {
        panic!("{:?}", job.step())
    };
    assert_eq!(sealed.complete, servers(&[3, 2]));
}

#[test]
fn a_damaged_copy_without_another_is_no_end() {
    let damaged = Vote {
        whole_to: at(3),
        ..vote(at(9))
    };
    let mut job = job(range(0), &[(2, damaged), (3, vote(at(5)))]);
    job.away(ServerId(1));
    job.away(ServerId(3));
    assert_eq!(job.step(), SealStep::Again);
}

/// The state of the writers that begins the range at 7, in three parts.
fn with_parts(count: u32) -> Vote {
    let end = Position { marks: count, ..at(7) };
    Vote {
        begins_at: at(7),
        writers_end: (count > 0).then_some(Position { marks: 3, ..at(7) }),
        ..vote(end)
    }
}

#[test]
fn nobody_knows_the_writers_by_some_of_their_parts() {
    for (parts, knows) in [(0, false), (1, false), (2, false), (3, true)] {
        let job = job(range(7), &[(1, with_parts(parts)), (2, with_parts(parts))]);
        let SealStep::Store(sealed) = job.step() else {
            panic!("{:?}", job.step())
        };
        assert_eq!(sealed.knows_writers(), knows, "{parts} parts");
    }
}

#[test]
fn who_gets_what_is_left_of_a_trimmed_range_does_not_know_the_writers() {
    let whole = Vote {
        end: at(20),
        whole_to: at(20),
        ..with_parts(3)
    };
    for (trimmed, knowing) in [(7, vec![1, 2, 3]), (9, vec![1])] {
        let mut job = SealJob::new(range(7), Rules::default());
        job.trimmed(Offset(trimmed));
        job.vote(ServerId(1), whole);
        job.vote(ServerId(2), with_parts(1));
        job.decide();
        job.written_back(ServerId(2));
        job.written_back(ServerId(3));
        let SealStep::Store(sealed) = job.step() else {
            panic!("{:?}", job.step())
        };
        assert_eq!(sealed.knowing, servers(&knowing), "trimmed up to {trimmed}");
    }
}

#[test]
fn by_force_the_best_copy_that_is_left_decides_but_only_where_the_votes_are_too_few() {
    let forced = |end| Some(Forced { end, lost: vec![] });
    let mut none = job(range(0), &[]);
    assert_eq!(none.end_by_force(), None, "nothing is left");
    assert_eq!(none.step(), SealStep::Vote);
    let mut enough = SealJob::new(range(0), Rules::default());
    enough.vote(ServerId(1), vote(at(9)));
    enough.vote(ServerId(2), vote(at(5)));
    assert_eq!(enough.end_by_force(), None);
    let mut one = job(range(0), &[(2, vote(at(5)))]);
    assert_eq!(one.step(), SealStep::Vote, "too few");
    assert_eq!(one.end_by_force(), forced(at(5)));
    assert_eq!(one.end_by_force(), None, "it is decided");
    one.away(ServerId(1));
    one.away(ServerId(3));
    let SealStep::Store(stored) = one.step() else {
        panic!("{:?}", one.step())
    };
    assert_eq!((stored.end, &stored.complete), (at(5), &servers(&[2])));
    assert!(stored.knows_writers());
}

/// A copy up to here that has lost these records.
fn lacking(job: &mut SealJob, server: i32, end: i64, lost: &[(i64, i64)]) {
    let spans = lost.iter().map(|(from, to)| (at(*from), at(*to)));
    job.cannot_read(ServerId(server), spans);
    let whole_to = lost.first().map_or(at(end), |(from, _)| at(*from));
    job.vote(
        ServerId(server),
        Vote {
            whole_to,
            ..vote(at(end))
        },
    );
}

#[test]
fn what_everybody_who_voted_has_lost_keeps_the_range_open_until_somebody_has_it_or_it_ends_by_force() {
    let mut job = SealJob::new(range(0), Rules::default());
    lacking(&mut job, 1, 9, &[(2, 4), (6, 7)]);
    lacking(&mut job, 2, 8, &[(3, 5)]);
    // The second one has never had the last one, and the first one has.
    assert_eq!(job.would_lose(), [(at(3), at(4))]);
    assert!(job.has_enough_votes() && !job.can_decide());
    job.decide();
    assert_eq!(job.step(), SealStep::Vote, "it waits");
    let mut whole = job.clone();
    lacking(&mut whole, 3, 8, &[]);
    assert!(whole.can_decide(), "{:?}", whole.would_lose());
    let mut no_better = job.clone();
    lacking(&mut no_better, 3, 3, &[]);
    assert_eq!(no_better.would_lose(), [(at(3), at(4))], "it never had that");
    let forced = job.end_by_force().unwrap();
    assert_eq!((forced.end, forced.lost), (at(9), vec![(at(3), at(4))]));
    let SealStep::Store(sealed) = job.step() else {
        panic!("{:?}", job.step())
    };
    assert_eq!((sealed.end, &sealed.complete), (at(9), &servers(&[1])));
    assert!(sealed.knows_writers());
    assert_eq!(job.end_by_force(), None, "it is decided");
}

#[test]
fn what_each_has_lost_alone_they_have_from_each_other() {
    let mut job = SealJob::new(range(0), Rules::default());
    lacking(&mut job, 1, 9, &[(2, 3)]);
    lacking(&mut job, 2, 9, &[(3, 4)]);
    assert_eq!(job.end_by_force(), None);
    job.decide();
    assert!(matches!(job.step(), SealStep::WriteBack { .. }));
}

#[test]
fn what_is_trimmed_is_not_lost() {
    let mut job = SealJob::new(range(0), Rules::default());
    job.trimmed(Offset(4));
    lacking(&mut job, 1, 9, &[(2, 4)]);
    lacking(&mut job, 2, 9, &[(2, 4)]);
    assert!(job.can_decide());
}

#[test]
fn a_single_copy_with_damage_ends_by_force_where_it_ends_and_not_where_its_damage_begins() {
    let mut job = SealJob::new(range(0), Rules::default());
    lacking(&mut job, 3, 9, &[(3, 4)]);
    let forced = job.end_by_force().unwrap();
    assert_eq!((forced.end, forced.lost), (at(9), vec![(at(3), at(4))]));
    assert!(matches!(job.step(), SealStep::Store(sealed) if sealed.complete == servers(&[3])));
}

#[test]
fn no_end_is_stored_while_who_has_everything_is_away_and_who_is_there_lacks_some_of_it() {
    let damaged = Vote {
        whole_to: at(3),
        ..vote(at(9))
    };
    let mut job = job(range(0), &[(1, damaged), (2, vote(at(5)))]);
    job.written_back(ServerId(3));
    job.away(ServerId(2));
    let SealStep::WriteBack { source, to, .. } = job.step() else {
        panic!("{:?}", job.step())
    };
    assert_eq!((source, to), (ServerId(3), servers(&[1])));
    job.away(ServerId(3));
    assert_eq!(job.step(), SealStep::Again, "server 1 alone can get it from nobody");
}
