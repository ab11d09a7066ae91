//! What the servers of a range do not take on trust: what one says that it has, what one is sent again, one bad entry among
//! good ones, and that nobody has ended the range meanwhile.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sbp_messages::ErrorCode;
use sbp_record::{EncodeOptions, encode_raw};
use sbp_replication::{Answer, EndTold, NotTaken, Quorum, Replica, ReplicatedRange, Rules};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId};

use super::copies_rig::{Copies, asked, follow_job, id};
use super::rig::{FIRST, Rig, STREAM, held, job, of_writer, short};
use crate::range::copies::Kept;
use crate::range::{AppendDone, EndTicket, FeedEntry, Heard, RangeState, Refused, StreamFacts};

/// A range of another stream.
const OTHER: RangeKey = RangeKey {
    stream: StreamId(2),
    range: RangeIndex(0),
};

fn at(offset: i64) -> Position {
    Position::start(Offset(offset))
}

fn heard(answer: Answer) -> Heard {
    Heard {
        key: FIRST,
        sealed_end: None,
        round: None,
        question: None,
        answer,
    }
}

/// One batch with one record of so many bytes.
fn batch(bytes: usize, filled_with: u8) -> Bytes {
    let mut batch = BytesMut::new();
    encode_raw(
        &EncodeOptions::default(),
        &Bytes::from(vec![filled_with; bytes]),
        &mut batch,
    )
    .unwrap();
    batch.freeze()
}

/// Opens a copy of the other stream's range too.
fn open_other(rig: &Rig, me: ServerId, servers: i32) {
    let ids: Vec<_> = (1..=servers).map(ServerId).collect();
    let range = Arc::new(ReplicatedRange {
        key: OTHER,
        epoch: Epoch(0),
        start: Offset(0),
        servers: ids.iter().copied().collect(),
        quorum: Quorum::new(ids.len(), 2).unwrap(),
    });
    let state = RangeState {
        replica: Some(Box::new(Replica::open(me, range, Rules::default()))),
        ..held(0, 0, None).fresh()
    };
    rig.server.hub.open(OTHER.stream, StreamFacts::default(), state);
}

/// The codes of answers, by the number of what is answered.
fn codes(mut done: Vec<AppendDone>) -> Vec<(i32, ErrorCode)> {
    done.sort_by_key(|done| done.entry.request_index);
    done.iter()
        .map(|done| (done.entry.request_index, short(done).0))
        .collect()
}

#[test]
fn an_entry_that_the_log_refuses_keeps_only_those_behind_it_in_its_range_from_being_taken() {
    let mut copies = Copies::new(3, 2);
    for number in 0..3 {
        copies.append(job(number, 10));
    }
    assert_eq!(copies.send(1), 3);
    let sound: Vec<FeedEntry> = copies.sent[1].drain(..).collect();
    let mut frame = sound.clone();
    // No segment of the follower holds it.
    frame[1].chunks = smallvec::smallvec![batch(2 << 20, 7)];
    open_other(&copies.rigs[1], id(1), 3);
    frame.push(FeedEntry {
        key: OTHER,
        ..sound[0].clone()
    });
    let jobs = (0..).zip(frame).map(|(number, entry)| follow_job(number, entry));
    let mut done = copies.rigs[1].follow(jobs.collect());
    let known = done.len();
    done.extend(copies.rigs[1].wait(4 - known));
    let expected = [
        (0, ErrorCode::NONE),
        (1, ErrorCode::PAYLOAD_TOO_LARGE),
        (2, ErrorCode::INSUFFICIENT_STORAGE),
        (3, ErrorCode::NONE),
    ];
    assert_eq!(codes(done), expected);
    // The copy goes on where the bad entry should have stood.
    copies.sent[1].extend(sound.into_iter().skip(1));
    let known = copies.deliver(1);
    let mut done = copies.rigs[1].wait(2 - known.len());
    done.extend(known);
    assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
    assert_eq!(copies.vote(1), at(3));
}

#[test]
fn what_a_follower_says_beyond_what_it_was_sent_counts_for_nothing() {
    let mut copies = Copies::new(3, 2);
    copies.append(job(0, 100));
    let primary = Arc::clone(&copies.primary().server);
    // It was sent nothing yet.
    primary.heard(id(1), &[heard(Answer::Synced(at(1)))]);
    assert_eq!(copies.end_at(0), 0);
    copies.append(job(1, 100));
    copies.send(2);
    for claim in [Answer::Synced(at(3)), Answer::GoOn(at(3))] {
        primary.heard(id(2), &[heard(claim)]);
        assert_eq!(copies.end_at(0), 0, "{claim:?}");
    }
    assert!(copies.primary().answered().is_empty());
    // It is sent everything when its connection is made anew.
    primary.disconnected(id(2));
    copies.exchange(2);
    assert_eq!(copies.primary().wait(2).len(), 2);
    assert_eq!(copies.end_at(0), 2);
}

#[test]
fn an_answer_that_is_older_than_a_second_attempt_says_nothing_of_where_to_go_on() {
    let mut copies = Copies::new(2, 2);
    copies.append(job(0, 100));
    let primary = Arc::clone(&copies.primary().server);
    let first = primary.feed(id(1), 1 << 20, true).entries;
    let refused = Refused {
        key: FIRST,
        sealed_end: None,
        question: None,
        is_damaged: false,
    };
    primary.refused(id(1), &refused);
    primary.tell_again(id(1), [FIRST]);
    copies.exchange(1);
    assert_eq!(copies.primary().wait(1).len(), 1);
    let late = Heard {
        round: Some(first[0].round),
        ..heard(Answer::GoOn(at(0)))
    };
    primary.heard(id(1), &[late]);
    copies.append(job(1, 100));
    copies.exchange(1);
    assert_eq!(short(&copies.primary().wait(1)[0]).0, ErrorCode::NONE);
}

#[test]
fn a_server_that_refuses_what_is_copied_to_it_is_sent_nothing_more_until_it_is_tried_again() {
    const ENTRIES: i32 = 1_500;
    let mut copies = Copies::new(3, 2);
    for index in 0..ENTRIES {
        copies.append(job(index, 10));
        if index % 500 == 499 {
            copies.exchange(1);
        }
    }
    copies.primary().wait(usize::try_from(ENTRIES).unwrap());
    let end = at(i64::from(ENTRIES));
    assert_eq!((copies.vote(0), copies.vote(1)), (end, end));
    copies.end(0, end.offset.0);
    let primary = Arc::clone(&copies.primary().server);
    let order = || drop(asked(|done| primary.write_back(FIRST, &[id(2)], end, done)));
    order();
    for attempt in 0..3 {
        let feed = primary.feed(id(2), 1 << 20, false);
        assert_eq!(feed.from_log, Some(FIRST), "{attempt}");
        let sent = primary.feed_from_log(id(2), FIRST, 1 << 20).unwrap().entries;
        assert_eq!(sent.len(), 1_024, "there are more, which wait to be sent");
        let refused = Refused {
            key: FIRST,
            sealed_end: Some(end),
            question: None,
            is_damaged: false,
        };
        primary.refused(id(2), &refused);
        // Nor when that is ordered again, or was being read when the refusal came.
        order();
        let read = primary.feed_from_log(id(2), FIRST, 1 << 20).unwrap().entries;
        let feed = primary.feed(id(2), 1 << 20, false);
        assert_eq!(
            (read.len(), feed.entries.len(), feed.from_log),
            (0, 0, None),
            "{attempt}"
        );
        primary.tell_again(id(2), [FIRST]);
    }
}

#[test]
fn an_entry_that_differs_from_the_one_that_is_here_stops_the_range() {
    for is_synced in [true, false] {
        let mut copies = Copies::new(2, 2);
        copies.append(job(0, 100));
        copies.send(1);
        let mut other = copies.sent[1].clone();
        other[0].chunks = smallvec::smallvec![batch(100, 8)];
        if is_synced {
            let lost = copies.deliver(1).len();
            copies.rigs[1].wait(1 - lost);
            copies.sent[1] = other;
        } else {
            copies.rigs[1].stall();
            assert!(copies.deliver(1).is_empty());
            copies.sent[1] = other;
        }
        assert!(copies.deliver(1).is_empty());
        copies.rigs[1].resume();
        let answers = copies.rigs[1].wait(if is_synced { 1 } else { 2 });
        let codes: Vec<_> = answers.iter().map(|done| short(done).0).collect();
        assert!(codes.contains(&ErrorCode::RS_DATA_CORRUPTED), "{codes:?}");
        // This copy has no vote, and what it has counts for nothing.
        let fenced = asked(|done| copies.rigs[1].server.fence(FIRST, Some(Epoch(0)), done));
        let fenced = fenced.recv_timeout(super::rig::PATIENCE).unwrap();
        assert_eq!(fenced, Err(ErrorCode::RS_DATA_CORRUPTED));
        // The primary takes no more, and wants the range sealed.
        let primary = Arc::clone(&copies.primary().server);
        primary.heard(id(1), &[heard(Answer::Refused(NotTaken::Damaged))]);
        let refused = copies.primary().append(job(1, 100)).unwrap();
        assert_eq!(short(&refused).0, ErrorCode::RANGE_NOT_FOUND);
        assert_eq!(primary.want_seals().len(), 1);
        assert_eq!(copies.end_at(0), 0);
    }
}

#[test]
fn what_is_kept_for_followers_is_bounded_over_all_ranges() {
    const MOST: usize = 64 << 10;
    let copies = Copies::new(3, 2);
    copies.primary().server.hub.ranges.lock().kept = Kept::with_most_bytes(MOST);
    open_other(copies.primary(), id(0), 3);
    let kept = |copies: &Copies| copies.primary().server.hub.ranges.lock().kept.bytes();
    for number in 0..200 {
        copies.append(job(number, 1_000));
        let mut other = job(number, 1_000);
        other.entry.stream = OTHER.stream;
        copies.append(other);
        assert!(kept(&copies) <= MOST, "{} bytes", kept(&copies));
    }
    assert!(kept(&copies) > MOST / 2);
    // What is not kept comes from the log, once it is there.
    let primary = Arc::clone(&copies.primary().server);
    while primary
        .log
        .end_position(FIRST)
        .is_none_or(|end| end.offset < Offset(200))
    {
        std::thread::yield_now();
    }
    let mut next = 0;
    while next < 200 {
        let feed = primary.feed(id(1), 1 << 20, false);
        let from_log = feed
            .from_log
            .map(|key| primary.feed_from_log(id(1), key, 1 << 20).unwrap());
        let entries = feed
            .entries
            .into_iter()
            .chain(from_log.into_iter().flat_map(|feed| feed.entries));
        for entry in entries.filter(|entry| entry.key == FIRST) {
            assert_eq!(entry.at, at(next));
            next += 1;
        }
    }
    primary.heard(id(1), &[heard(Answer::Synced(at(200)))]);
    primary.heard(id(2), &[]);
    assert_eq!(copies.end_at(0), 200);
}

#[test]
fn repeats_of_what_a_failed_log_lost_are_answered_like_it() {
    let copies = Copies::new(2, 2);
    let primary = copies.primary();
    primary.stall();
    copies.append(of_writer(0, 0, 0, 1));
    // Both wait for the first.
    copies.append(of_writer(1, 0, 0, 1));
    copies.append(of_writer(2, 0, 9, 1));
    primary.fail_next_sync();
    primary.resume();
    let lost = ErrorCode::LOG_FAILED;
    assert_eq!(codes(primary.wait(3)), [(0, lost), (1, lost), (2, lost)]);
    // One that comes later waits for nothing either.
    let late = primary.append(of_writer(3, 0, 0, 1)).unwrap();
    assert_eq!(short(&late).0, lost);
    assert_eq!(primary.server.want_seals().len(), 1, "another server goes on");
}

#[test]
fn a_server_whose_log_has_failed_wants_all_its_ranges_to_go_on_elsewhere() {
    let copies = Copies::new(2, 2);
    let primary = copies.primary();
    open_other(primary, id(0), 2);
    primary.fail_next_sync();
    copies.append(job(0, 100));
    assert_eq!(short(&primary.wait(1)[0]).0, ErrorCode::LOG_FAILED);
    let wanted = primary.server.want_seals();
    assert_eq!(wanted.values().map(Vec::len).sum::<usize>(), 2, "{wanted:?}");
}

impl Copies {
    fn ask_end(&self) -> Option<EndTicket> {
        self.primary().server.hub.ranges.lock().ask_end(STREAM)
    }

    fn end_told(&self, ticket: EndTicket) -> EndTold {
        self.primary().server.hub.ranges.lock().end_told(ticket)
    }

    /// Sends the questions there are for a follower, and gives the primary its answers.
    fn exchange_questions(&mut self, follower: usize) {
        let primary = Arc::clone(&self.primary().server);
        self.send(follower);
        for entry in std::mem::take(&mut self.sent[follower]) {
            let (key, question) = (entry.key, entry.question);
            assert!(entry.kind.is_none() && question.is_some());
            let answer = self.rigs[follower].follow(vec![follow_job(0, entry)]).remove(0);
            match answer.outcome {
                Ok(stored) => {
                    let answer = Answer::Synced(at(stored.next_offset.0));
                    primary.heard(
                        id(follower),
                        &[Heard {
                            question,
                            ..heard(answer)
                        }],
                    );
                }
                Err(_) => {
                    let refused = Refused {
                        key,
                        sealed_end: None,
                        question,
                        is_damaged: false,
                    };
                    primary.refused(id(follower), &refused);
                }
            }
        }
    }
}

#[test]
fn the_primary_says_where_the_stream_ends_when_enough_others_have_said_that_they_are_not_fenced() {
    let mut copies = Copies::new(3, 2);
    copies.append(job(0, 100));
    copies.exchange(1);
    copies.exchange(2);
    copies.primary().wait(1);
    let first = copies.ask_end().unwrap();
    assert_eq!(copies.end_told(first), EndTold::NotYet);
    // What comes while a question is under way is another one.
    let second = copies.ask_end().unwrap();
    let third = copies.ask_end().unwrap();
    assert_eq!(second, third);
    assert_ne!(first, second);
    copies.exchange_questions(1);
    assert_eq!(copies.end_told(first), EndTold::At(at(1)));
    assert_eq!(copies.end_told(second), EndTold::NotYet);
    copies.exchange_questions(2);
    assert_eq!(copies.end_told(second), EndTold::At(at(1)));
}

#[test]
fn an_old_primary_does_not_say_where_the_stream_ends() {
    let mut copies = Copies::new(3, 2);
    copies.append(job(0, 100));
    copies.exchange(1);
    copies.exchange(2);
    copies.primary().wait(1);
    // The range is sealed without it: two votes suffice.
    for member in [1, 2] {
        copies.vote(member);
    }
    let ticket = copies.ask_end().unwrap();
    assert_eq!(copies.end_told(ticket), EndTold::NotYet);
    copies.exchange_questions(1);
    assert_eq!(copies.end_told(ticket), EndTold::Elsewhere);
    // Once it knows, nobody is asked.
    copies.vote(0);
    assert_eq!(copies.ask_end(), None);
}

#[test]
fn what_a_lost_connection_was_asked_is_asked_again() {
    let mut copies = Copies::new(2, 2);
    let ticket = copies.ask_end().unwrap();
    copies.send(1);
    copies.sent[1].clear();
    copies.primary().server.disconnected(id(1));
    copies.exchange_questions(1);
    assert_eq!(copies.end_told(ticket), EndTold::At(at(0)));
}

#[test]
fn one_that_needs_nobody_asks_nobody() {
    assert_eq!(Copies::new(2, 1).ask_end(), None);
}
