use sbp_types::{Epoch, RangeIndex, RangeKey, StreamId};

use super::*;
use crate::exchange::{Answer, Offered, Standing, Verdict};
use crate::question::{EndQuestion, EndTold};
use crate::quorum::Quorum;

fn at(offset: i64) -> Position {
    Position::start(Offset(offset))
}

fn marks(offset: i64, marks: u32) -> Position {
    Position { marks, ..at(offset) }
}

fn server(number: i32) -> ServerId {
    ServerId(number)
}

/// Three servers, of which two acknowledge. Every range but that at 0 begins with the state of the writers.
fn range(start: i64) -> Arc<ReplicatedRange> {
    Arc::new(ReplicatedRange {
        key: RangeKey {
            stream: StreamId(1),
            range: RangeIndex(i32::from(start > 0)),
        },
        epoch: Epoch(4),
        start: Offset(start),
        servers: (1..=3).map(ServerId).collect(),
        quorum: Quorum::new(3, 2).unwrap(),
    })
}

fn copy_of(me: i32, start: i64) -> Replica {
    Replica::open(server(me), range(start), Rules::default())
}

fn records(from: i32, place: Position, count: i64, sealed_end: Option<Position>) -> Offered {
    Offered {
        from: server(from),
        epoch: Epoch(4),
        at: place,
        entry: Entry::Records(count),
        confirmed: Position::default(),
        sealed_end,
    }
}

fn writers(place: Position, part: u32, parts: u32, sealed_end: Option<Position>) -> Offered {
    Offered {
        entry: Entry::Writers { part, parts },
        ..records(1, place, 1, sealed_end)
    }
}

/// Gives an entry to the log and syncs it.
fn store(copy: &mut Replica, to: Position) {
    copy.queued(to);
    copy.synced(to);
}

fn follower_with(end: i64) -> Replica {
    let mut copy = copy_of(2, 0);
    store(&mut copy, at(end));
    copy
}

#[test]
fn a_range_has_begun_when_all_parts_of_the_writers_state_are_there() {
    let mut primary = copy_of(1, 7);
    assert_eq!(primary.takes_appends(), Err(NotTaken::WritersMissing));
    primary.begin_with_writers(2);
    store(&mut primary, marks(7, 1));
    assert_eq!(
        primary.takes_appends(),
        Err(NotTaken::WritersMissing),
        "one part of two"
    );
    assert!(!primary.knows_writers());
    store(&mut primary, marks(7, 2));
    assert_eq!(primary.takes_appends(), Ok(()));
    assert!(primary.knows_writers());

    let mut follower = copy_of(2, 7);
    let refused = Verdict::Refused(NotTaken::WritersMissing);
    assert_eq!(follower.offered(&records(1, at(7), 1, None)), refused);
    assert_eq!(follower.offered(&writers(at(7), 0, 2, None)), Verdict::Take);
    store(&mut follower, marks(7, 1));
    assert_eq!(
        follower.offered(&records(1, marks(7, 1), 1, None)),
        refused,
        "one part of two"
    );
    let misplaced = Verdict::Refused(NotTaken::OutOfPlace);
    assert_eq!(follower.offered(&writers(marks(7, 1), 0, 2, None)), misplaced);
    assert_eq!(
        follower.offered(&writers(marks(7, 1), 1, 3, None)),
        misplaced,
        "other parts"
    );
    assert_eq!(follower.offered(&writers(marks(7, 1), 1, 2, None)), Verdict::Take);
    store(&mut follower, marks(7, 2));
    assert_eq!(follower.offered(&records(1, marks(7, 2), 1, None)), Verdict::Take);
}

#[test]
fn the_writers_state_behind_the_end_of_a_range_is_not_part_of_it() {
    let mut copy = copy_of(1, 7);
    copy.begin_with_writers(1);
    store(&mut copy, marks(7, 1));
    assert_eq!(copy.writers_end(), Some(marks(7, 1)));
    // Nobody else had it when the range was sealed.
    copy.end_told(at(7));
    assert_eq!(copy.writers_end(), None);
    // A log that has not dropped it yet is found by a start: that makes no other copy of it.
    let found = Recovered {
        writers_end: Some(marks(7, 1)),
        end: Some(at(7)),
        ..Recovered::up_to(marks(7, 1), &range(7))
    };
    let copy = Replica::recover(server(1), range(7), found, Rules::default());
    assert_eq!((copy.writers_end(), copy.synced_end()), (None, at(7)));
}

#[test]
fn another_epoch_is_another_range() {
    let mut copy = copy_of(2, 0);
    for epoch in [Epoch(3), Epoch(5)] {
        let offered = Offered {
            epoch,
            ..records(1, at(0), 1, None)
        };
        assert_eq!(copy.offered(&offered), Verdict::Refused(NotTaken::OtherEpoch));
        assert_eq!(copy.fence(epoch), Err(NotTaken::OtherEpoch));
    }
    assert!(!copy.is_fenced());
    assert_eq!(copy.fence(Epoch(4)), Ok(()));
    assert!(copy.is_fenced());
}

#[test]
fn many_answers_to_go_on_make_the_sender_begin_again_once() {
    let mut primary = copy_of(1, 0);
    let rounds: Vec<_> = (1..=4)
        .map(|end| {
            primary.queued(at(end));
            primary.sent(server(2), None, at(end))
        })
        .collect();
    let go_on = |primary: &mut Replica, round| primary.heard(server(2), None, Some(round), Answer::GoOn(at(1)));
    assert_eq!(go_on(&mut primary, rounds[1]), Standing::Sound);
    assert_eq!(primary.next_in(server(2), None), Some(at(1)));
    let again = primary.sent(server(2), None, at(4));
    primary.heard(server(2), None, None, Answer::Synced(at(4)));
    for late in &rounds[2..] {
        assert_eq!(go_on(&mut primary, *late), Standing::Sound, "it is no loss");
        assert_eq!(primary.next_in(server(2), None), None, "nothing is sent again");
    }
    assert_eq!(go_on(&mut primary, again), Standing::FollowerLost);
    assert_eq!(primary.takes_appends(), Err(NotTaken::NeedsSeal));
}

#[test]
fn what_was_answered_before_an_order_counts_for_no_later_one() {
    let mut source = follower_with(9);
    source.fence(Epoch(4)).unwrap();
    source.write_back([server(3)], at(9));
    let before = source.sent(server(3), Some(at(9)), at(5));
    source.heard(server(3), Some(at(9)), Some(before), Answer::Synced(at(5)));
    // Its disk loses that, and the range is sealed again: below, or at the same end.
    source.write_back([server(3)], at(4));
    assert!(!source.is_written_back(server(3), at(4)), "it said so to another order");
    source.write_back([server(3)], at(9));
    assert_eq!(source.next_in(server(3), Some(at(9))), Some(at(0)));
    // An answer that is read late.
    source.heard(server(3), Some(at(9)), Some(before), Answer::Synced(at(9)));
    assert!(!source.is_written_back(server(3), at(9)));
    let since = source.sent(server(3), Some(at(9)), at(9));
    source.heard(server(3), Some(at(9)), Some(before), Answer::GoOn(at(7)));
    source.heard(server(3), Some(at(9)), Some(since), Answer::Synced(at(9)));
    assert!(source.is_written_back(server(3), at(9)));

    // The server is let go of, and given the range again: what it said of the copy that it has removed counts no more.
    source.end_told(at(9));
    source.forget(server(3), at(9));
    source.write_back([server(3)], at(9));
    source.heard(server(3), Some(at(9)), Some(since), Answer::Synced(at(9)));
    assert!(!source.is_written_back(server(3), at(9)) && !source.copying_done(server(3)));

    // A copy of a sealed range goes on where it is.
    source.write_back([server(2)], at(9));
    source.sent(server(2), Some(at(9)), at(5));
    source.write_back([server(2)], at(9));
    assert_eq!(source.next_in(server(2), Some(at(9))), Some(at(5)));
}

#[test]
fn who_refuses_is_sent_nothing_until_it_is_connected_again() {
    let mut primary = copy_of(1, 0);
    primary.queued(at(1));
    let refused = primary.heard(server(2), None, None, Answer::Refused(NotTaken::Fenced));
    assert_eq!(refused, Standing::Refused(NotTaken::Fenced));
    assert_eq!(
        (primary.next_for(server(2)), primary.next_for(server(3))),
        (None, Some((at(0), None)))
    );
    assert!(primary.is_halted(server(2), None));
    primary.disconnected(server(2));
    assert_eq!(primary.next_for(server(2)), Some((at(0), None)));
    let damaged = primary.heard(server(3), None, None, Answer::Refused(NotTaken::Damaged));
    assert_eq!(damaged, Standing::FollowerLost);
}

#[test]
fn orders_go_on_beside_each_other_and_beside_what_the_primary_sends() {
    let mut primary = copy_of(1, 0);
    for end in 1..=6 {
        store(&mut primary, at(end));
    }
    primary.write_back([server(2)], at(4));
    primary.write_back([server(2), server(3)], at(6));
    assert_eq!(primary.orders_for(server(2)).collect::<Vec<_>>(), [at(4), at(6)]);
    assert_eq!(primary.next_for(server(2)), Some((at(0), Some(at(4)))));
    assert_eq!(
        primary.next_in(server(2), None),
        Some(at(0)),
        "what the primary sends is where it was"
    );
    primary.sent(server(2), None, at(6));
    primary.sent(server(2), Some(at(4)), at(4));
    primary.heard(server(2), Some(at(4)), None, Answer::Synced(at(4)));
    assert_eq!(primary.confirmed(), at(0), "what is written back confirms nothing");
    assert!(primary.is_written_back(server(2), at(4)) && !primary.is_written_back(server(2), at(6)));
    assert!(!primary.copying_done(server(2)), "the other order is not done");
    assert_eq!(primary.next_for(server(2)), Some((at(0), Some(at(6)))));
    assert_eq!(primary.needed_from(), Some(at(0)));
    primary.heard(server(2), None, None, Answer::Synced(at(3)));
    assert_eq!(primary.confirmed(), at(3));
    primary.heard(server(2), Some(at(6)), None, Answer::Synced(at(6)));
    assert!(primary.copying_done(server(2)));
    // Ordered again, as by another seal, it is asked again: what it had then it may have lost.
    primary.write_back([server(2)], at(6));
    assert!(!primary.is_written_back(server(2), at(6)) && !primary.copying_done(server(2)));
    primary.heard(server(2), Some(at(6)), None, Answer::Synced(at(6)));
    assert!(primary.copying_done(server(2)));
    primary.end_told(at(6));
    assert_eq!(
        primary.orders_for(server(2)).collect::<Vec<_>>(),
        [at(6)],
        "other ends are no ends"
    );
    primary.forget(server(2), at(6));
    assert!(!primary.copying_done(server(2)));
    assert_eq!(primary.needed_from(), Some(at(0)), "the third server has nothing yet");
}

#[test]
fn a_copy_of_a_trimmed_range_begins_where_the_range_does_now_and_ends_with_the_writers() {
    let mut source = follower_with(9);
    source.end_told(at(9));
    source.trimmed(Offset(5), at(5));
    source.copy([server(3)], 2);
    assert_eq!(source.next_for(server(3)), Some((at(5), Some(at(9)))));

    let mut target = copy_of(3, 0);
    store(&mut target, at(2));
    target.end_told(at(9));
    let first = records(2, at(5), 4, Some(at(9)));
    assert_eq!(
        target.offered(&first),
        Verdict::GoOn(at(2)),
        "it does not know of the trim"
    );
    let round = source.sent(server(3), Some(at(9)), at(9));
    assert_eq!(
        source.heard(server(3), Some(at(9)), Some(round), Answer::GoOn(at(2))),
        Standing::Refused(NotTaken::TrimUnknown)
    );
    assert_eq!(source.next_for(server(3)), None);

    target.trimmed(Offset(5), at(0));
    source.disconnected(server(3));
    assert_eq!(target.offered(&first), Verdict::Begin);
    store(&mut target, at(9));
    assert!(target.is_complete() && !target.knows_writers());
    assert_eq!(target.answer_written_back(), Answer::Synced(at(9)));
    source.heard(server(3), Some(at(9)), None, target.answer_written_back());
    assert!(source.is_written_back(server(3), at(9)) && !source.copying_done(server(3)));

    assert_eq!(source.next_for(server(3)), Some((at(9), Some(at(9)))));
    let closing = |part| writers(marks(9, part), part, 2, Some(at(9)));
    assert_eq!(target.offered(&closing(1)), Verdict::GoOn(at(9)));
    assert_eq!(target.offered(&closing(0)), Verdict::Close);
    target.closing_synced(server(1), 1);
    assert_eq!(target.offered(&closing(1)), Verdict::Close);
    assert!(!target.knows_writers(), "one part of two is synced");
    target.closing_synced(server(1), 2);
    assert!(target.knows_writers() && target.is_closed());
    assert_eq!(target.next(), at(9), "it is no part of the range");
    source.heard(server(3), Some(at(9)), None, target.answer_written_back());
    assert!(source.copying_done(server(3)));

    let found = Recovered {
        begins_at: target.begins_at(),
        end: target.end(),
        closed: Some(2),
        ..Recovered::up_to(at(9), &range(0))
    };
    let again = Replica::recover(server(3), range(0), found, Rules::default());
    assert!(again.is_complete() && again.knows_writers());
    let unclosed = Recovered { closed: None, ..found };
    let again = Replica::recover(server(3), range(0), unclosed, Rules::default());
    assert!(again.is_complete() && !again.knows_writers());
}

#[test]
fn what_one_server_alone_had_is_taken_without_the_writers_once_it_is_sealed_and_says_nothing_of_them() {
    // The source has been told of the others meanwhile, and so has the target.
    let mut target = copy_of(2, 7);
    let first = records(1, at(7), 2, Some(at(9)));
    let missing = Verdict::Refused(NotTaken::WritersMissing);
    assert_eq!(target.offered(&first), missing, "it may have no end yet");
    target.end_told(at(9));
    assert_eq!(
        target.offered(&records(1, at(7), 2, None)),
        Verdict::Refused(NotTaken::Sealed)
    );
    assert_eq!(target.offered(&first), Verdict::Take);
    store(&mut target, at(9));
    assert!(target.is_complete() && !target.knows_writers());
    assert_eq!(target.answer_written_back(), Answer::Synced(at(9)));
    assert_eq!(target.writers_known_from(), None);

    // Where the state of the writers has begun to come, all of it has to.
    let mut target = copy_of(2, 7);
    target.end_told(at(9));
    assert_eq!(target.offered(&writers(at(7), 0, 2, Some(at(9)))), Verdict::Take);
    store(&mut target, marks(7, 1));
    assert_eq!(target.offered(&records(1, marks(7, 1), 2, Some(at(9)))), missing);

    // As it was while one server alone had it.
    let alone = Arc::new(ReplicatedRange {
        servers: std::iter::once(server(1)).collect(),
        quorum: Quorum::new(1, 1).unwrap(),
        ..ReplicatedRange::clone(&range(7))
    });
    let mut source = Replica::open(server(1), Arc::clone(&alone), Rules::default());
    assert_eq!(source.takes_appends(), Ok(()), "it knows the writers");
    store(&mut source, at(9));
    assert!(source.knows_writers());
    let mut target = Replica::open(server(2), alone, Rules::default());
    target.end_told(at(9));
    assert_eq!(target.offered(&first), Verdict::Take);
    store(&mut target, at(9));
    assert!(target.is_complete() && !target.knows_writers());
}

#[test]
fn nothing_is_left_out_that_is_not_trimmed() {
    let mut copy = copy_of(3, 7);
    copy.end_told(at(20));
    let later = |place| records(2, place, 1, Some(at(20)));
    assert_eq!(
        copy.offered(&later(marks(7, 2))),
        Verdict::GoOn(at(7)),
        "what begins the range"
    );
    copy.trimmed(Offset(10), at(0));
    assert_eq!(
        copy.offered(&later(at(11))),
        Verdict::GoOn(at(7)),
        "one record that is not trimmed"
    );
    assert_eq!(copy.offered(&later(at(10))), Verdict::Begin);
    let mut all = copy_of(3, 7);
    all.end_told(at(20));
    all.trimmed(Offset(20), at(0));
    assert!(all.is_complete() && !all.knows_writers());
}

#[test]
fn a_damaged_copy_is_incomplete_until_it_is_mended() {
    let mut copy = follower_with(6);
    copy.damaged(at(2), at(3));
    assert_eq!(
        copy.offered(&records(1, at(6), 1, None)),
        Verdict::Take,
        "it goes on as follower"
    );
    copy.fence(Epoch(4)).unwrap();
    copy.fence_is_durable(at(6));
    let vote = copy.vote().unwrap();
    assert_eq!((vote.end, vote.whole_to), (at(6), at(2)));
    copy.end_told(at(6));
    assert!(!copy.is_complete());
    assert_eq!(copy.answer_written_back(), Answer::Synced(at(2)));
    assert_eq!(copy.offered(&records(1, at(1), 1, Some(at(6)))), Verdict::Held);
    // It has said that it has this.
    assert_eq!(copy.offered(&records(1, at(3), 1, Some(at(6)))), Verdict::GoOn(at(2)));
    assert_eq!(copy.offered(&records(1, at(2), 1, Some(at(6)))), Verdict::Mend);
    assert_eq!(copy.offered(&records(1, at(3), 1, Some(at(6)))), Verdict::Held);
    copy.dropped();
    assert_eq!(copy.offered(&records(1, at(3), 1, Some(at(6)))), Verdict::GoOn(at(2)));
    copy.mended(at(2), at(3));
    assert!(copy.is_complete());
    assert_eq!(copy.answer_written_back(), Answer::Synced(at(6)));
}

#[test]
fn who_does_not_know_its_end_has_no_vote_and_is_made_good_once_the_range_has_one() {
    let mut copy = Replica::recover(
        server(2),
        range(0),
        Recovered::up_to(at(6), &range(0)),
        Rules::default(),
    );
    copy.end_damaged(at(3));
    copy.fence(Epoch(4)).unwrap();
    copy.fence_is_durable(at(3));
    assert!(copy.end_is_damaged() && copy.vote().is_none());
    let refused = copy_of(2, 0);
    assert!(refused.vote().is_none());
    assert_eq!(
        copy.offered(&records(3, at(3), 2, Some(at(5)))),
        Verdict::Take,
        "what is written back is taken"
    );
    store(&mut copy, at(5));
    assert!(copy.vote().is_none(), "it may have acknowledged more than this");
    copy.end_told(at(5));
    assert!(!copy.end_is_damaged() && copy.is_complete());

    let alone = ReplicatedRange {
        servers: std::iter::once(server(1)).collect(),
        quorum: Quorum::new(1, 1).unwrap(),
        ..ReplicatedRange::clone(&range(0))
    };
    let found = Recovered::up_to(at(6), &alone);
    let mut copy = Replica::recover(server(1), Arc::new(alone), found, Rules::default());
    assert_eq!(copy.takes_appends(), Ok(()));
    copy.end_damaged(at(3));
    assert_eq!(copy.takes_appends(), Err(NotTaken::Damaged));
}

#[test]
fn so_many_entries_wait_to_be_confirmed_at_most() {
    let mut primary = copy_of(1, 0).with_most_unconfirmed(2);
    assert_eq!(copy_of(1, 0).room(), crate::MOST_UNCONFIRMED);
    for end in 1..=2 {
        assert_eq!(primary.takes_appends(), Ok(()));
        store(&mut primary, at(end));
    }
    assert_eq!(
        (primary.room(), primary.takes_appends()),
        (0, Err(NotTaken::TooManyUnconfirmed))
    );
    primary.sent(server(3), None, at(1));
    primary.heard(server(3), None, None, Answer::Synced(at(1)));
    assert_eq!((primary.room(), primary.takes_appends()), (1, Ok(())));
}

#[test]
fn an_answer_waits_for_what_it_rests_on() {
    let mut primary = copy_of(1, 0);
    store(&mut primary, at(3));
    assert_eq!(primary.answers_at(at(2)), Some(at(2)));
    primary.sent(server(2), None, at(3));
    primary.heard(server(2), None, None, Answer::Synced(at(2)));
    assert_eq!(primary.answers_at(at(2)), None);
    assert_eq!(primary.answers_at(at(3)), Some(at(3)));
    assert_eq!(
        copy_of(1, 7).answers_at(at(7)),
        None,
        "what stands before the range is confirmed"
    );
}

#[test]
fn the_end_is_told_once_enough_servers_are_not_fenced() {
    let rules = Rules::default();
    let mut primary = copy_of(1, 0);
    store(&mut primary, at(3));
    primary.sent(server(2), None, at(3));
    primary.heard(server(2), None, None, Answer::Synced(at(2)));
    let answer = |question: &EndQuestion, copy: &Replica| question.answer(copy, server(1), rules);
    let mut question = EndQuestion::default();
    assert_eq!(question.asks(&primary).collect::<Vec<_>>(), [server(2), server(3)]);
    question.said(server(1), false);
    question.said(server(9), false);
    assert_eq!(
        answer(&question, &primary),
        EndTold::NotYet,
        "it counts once, and who is not of the set not at all"
    );
    question.said(server(3), false);
    assert_eq!(answer(&question, &primary), EndTold::At(at(2)));
    assert_eq!(question.asks(&primary).collect::<Vec<_>>(), [server(2)]);
    question.said(server(2), true);
    assert_eq!(
        answer(&question, &primary),
        EndTold::Elsewhere,
        "the range is being sealed"
    );

    let mut question = EndQuestion::default();
    question.said(server(2), false);
    assert_eq!(
        question.answer(&copy_of(2, 0), server(2), rules),
        EndTold::Elsewhere,
        "it is a follower"
    );
    let former = Replica::recover(server(1), range(0), Recovered::up_to(at(3), &range(0)), rules);
    assert_eq!(answer(&question, &former), EndTold::Elsewhere, "it was restarted");
    primary.fence(Epoch(4)).unwrap();
    assert_eq!(answer(&question, &primary), EndTold::Elsewhere, "it is fenced itself");
}

#[test]
fn what_a_follower_was_never_sent_it_cannot_have() {
    for claim in [Answer::Synced(at(6)), Answer::GoOn(at(6))] {
        let mut primary = copy_of(1, 0);
        store(&mut primary, at(9));
        primary.sent(server(2), None, at(5));
        assert_eq!(primary.heard(server(2), None, None, claim), Standing::ClaimsTooMuch);
        assert_eq!(
            primary.heard(server(2), None, None, claim),
            Standing::Sound,
            "said once"
        );
        assert_eq!(primary.confirmed(), at(0));
        assert_eq!(primary.next_for(server(2)), None, "it is sent nothing more");
        primary.disconnected(server(2));
        assert_eq!(primary.next_for(server(2)), Some((at(0), None)));
        // What it was sent over an earlier connection it may have.
        assert_eq!(
            primary.heard(server(2), None, None, Answer::Synced(at(5))),
            Standing::Sound
        );
        assert_eq!(primary.confirmed(), at(5));
    }
}

#[test]
fn where_to_go_on_is_not_learned_from_what_was_sent_before_a_refusal() {
    let mut primary = copy_of(1, 0);
    store(&mut primary, at(9));
    let round = primary.sent(server(2), None, at(5));
    primary.begin_again(server(2), None);
    assert_eq!(primary.next_for(server(2)), Some((at(0), None)));
    primary.sent(server(2), None, at(5));
    primary.heard(server(2), None, None, Answer::Synced(at(5)));
    let late = primary.heard(server(2), None, Some(round), Answer::GoOn(at(0)));
    assert_eq!(late, Standing::Sound);
    assert_eq!(primary.takes_appends(), Ok(()));
}

#[test]
fn what_the_log_did_not_take_is_asked_for_again() {
    let mut copy = follower_with(3);
    copy.queued(at(5));
    copy.queued(at(7));
    copy.fence(Epoch(4)).unwrap();
    copy.not_queued(at(5));
    assert_eq!(copy.next(), at(5));
    copy.synced(at(5));
    assert_eq!(copy.fenced_at(), Some(at(5)));
}

#[test]
fn a_copy_that_is_contradicted_counts_for_nothing_from_there_on() {
    let mut copy = follower_with(9);
    assert_eq!(copy.answer(), Answer::Synced(at(9)));
    copy.contradicted(at(4));
    assert_eq!(copy.answer(), Answer::Synced(at(4)));
    copy.fence(Epoch(4)).unwrap();
    copy.fence_is_durable(at(9));
    assert_eq!(copy.vote(), None);
    let next = records(1, at(9), 1, None);
    assert!(matches!(copy.offered(&next), Verdict::Refused(_)));
    assert_eq!(copy.disputed(), Some(at(4)));
    copy.end_told(at(9));
    assert!(!copy.is_complete());
    copy.mended(at(4), at(7));
    assert_eq!((copy.is_complete(), copy.disputed()), (false, Some(at(4))));
    copy.mended(at(7), at(9));
    assert_eq!((copy.is_complete(), copy.disputed()), (true, None));
}

#[test]
fn that_a_copy_was_contradicted_is_known_after_a_restart() {
    let range = follower_with(9).range().clone();
    let found = Recovered {
        disputed: Some(at(4)),
        ..Recovered::up_to(at(9), &range)
    };
    let mut copy = Replica::recover(ServerId(2), range, found, Rules::default());
    assert!(copy.end_is_damaged());
    assert_eq!(copy.answer(), Answer::Synced(at(4)));
    copy.fence(Epoch(4)).unwrap();
    copy.fence_is_durable(at(9));
    assert_eq!(copy.vote(), None);
}

#[test]
fn a_server_that_is_ordered_again_to_be_sent_a_sealed_range_says_anew_what_it_has_of_it() {
    let range = follower_with(9).range().clone();
    let found = Recovered {
        end: Some(at(9)),
        ..Recovered::up_to(at(9), &range)
    };
    let mut source = Replica::recover(ServerId(2), range, found, Rules::default());
    let (to, end) = (ServerId(3), Some(at(9)));
    assert_eq!(source.write_back([to], at(9)).as_slice(), [to]);
    let first = source.sent(to, end, at(5));
    source.heard(to, end, Some(first), Answer::Synced(at(3)));
    // Under way; meanwhile the server has removed what it had, and was given the range again.
    assert_eq!(source.write_back([to], at(9)).as_slice(), []);
    assert_eq!(
        (source.heard_of(to, end), source.next_in(to, end)),
        (Some(at(0)), Some(at(5)))
    );
    source.heard(to, end, Some(first), Answer::Synced(at(9)));
    assert!(
        !source.is_written_back(to, at(9)),
        "that was said of the copy of before"
    );
    let second = source.sent(to, end, at(9));
    source.heard(to, end, Some(second), Answer::GoOn(at(0)));
    assert_eq!(source.next_in(to, end), Some(at(0)));
    source.sent(to, end, at(9));
    // Everything was sent, and may be answered by nothing that counts: it begins anew.
    source.write_back([to], at(9));
    assert_eq!(source.next_in(to, end), Some(at(0)));
    let third = source.sent(to, end, at(9));
    source.heard(to, end, Some(third), Answer::Synced(at(9)));
    assert!(source.is_written_back(to, at(9)));
}
