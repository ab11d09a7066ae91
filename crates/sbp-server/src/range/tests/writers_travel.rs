//! The state of the writers that begins a range, in several parts.

use std::sync::Arc;

use sbp_log::writers_in;
use sbp_messages::ErrorCode;
use sbp_record::{EncodeOptions, WriterStamp, encode_raw};
use sbp_replication::{Rules, SealJob, SealStep, Vote};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, WriterId};

use super::copies_rig::{asked, follow_job, heard};
use super::rig::{PATIENCE, Rig, STREAM, held, job, of_writer, short};
use crate::range::{
    AppendDone, AppendJob, CopyRecord, FeedEntry, FencedEnd, Heard, HeldRange, ReplicaSet, StreamFacts,
};

/// The range that begins with the writers of the one before.
const NEXT: RangeKey = RangeKey {
    stream: STREAM,
    range: RangeIndex(1),
};
const PRIMARY: ServerId = ServerId(1);
const FOLLOWER: ServerId = ServerId(2);

fn next_range() -> HeldRange {
    HeldRange {
        set: ReplicaSet::new([PRIMARY, FOLLOWER, ServerId(3)], Some(2)),
        ..held(1, 2, None)
    }
}

/// A range server with this number.
fn server(id: ServerId) -> Rig {
    let rig = Rig::new();
    rig.server.log.set_server_id(id).unwrap();
    rig
}

/// The primary of a range that begins with two writers, each in a part of its own.
fn primary() -> Rig {
    let rig = server(PRIMARY);
    for writer in 1..=2 {
        assert!(rig.append(of_writer_number(writer, 0)).is_none());
    }
    rig.wait(2);
    let facts = StreamFacts::default();
    rig.server.install(STREAM, facts.clone(), &[held(0, 0, Some(2))]);
    rig.server.install(STREAM, facts, &[held(0, 0, Some(2)), next_range()]);
    rig
}

fn of_writer_number(writer: u64, sequence: i64) -> AppendJob {
    let mut job = of_writer(0, 0, sequence, 1);
    let head = job.entry.head.as_mut().unwrap();
    head.claim.as_mut().unwrap().writer.low = writer;
    job
}

fn follower() -> Rig {
    let rig = server(FOLLOWER);
    let ranges = [held(0, 0, Some(2)), next_range()];
    rig.server.install(STREAM, StreamFacts::default(), &ranges);
    rig
}

fn of_next(done: &AppendDone) -> Heard {
    Heard {
        key: NEXT,
        ..heard(done)
    }
}

/// Gives these entries to a follower; its answers.
fn give(follower: &Rig, entries: Vec<FeedEntry>) -> Vec<AppendDone> {
    let count = entries.len();
    let jobs = (0..).zip(entries).map(|(index, entry)| follow_job(index, entry));
    let mut answers = follower.follow(jobs.collect());
    if answers.len() < count {
        answers.extend(follower.wait(count - answers.len()));
    }
    answers
}

/// A batch of one record, of the writer with this number.
fn stamped(writer: u64, sequence: i64) -> AppendJob {
    let mut job = of_writer_number(writer, sequence);
    let options = EncodeOptions {
        writer: Some(WriterStamp {
            id: WriterId { high: 0, low: writer },
            epoch: 0,
            base_sequence: sequence,
        }),
        ..EncodeOptions::default()
    };
    let mut bytes = bytes::BytesMut::new();
    encode_raw(&options, &bytes::Bytes::from_static(b"a record"), &mut bytes).unwrap();
    job.entry.length = bytes.len();
    job.chunks = smallvec::smallvec![bytes.freeze()];
    job
}

#[test]
fn a_follower_that_goes_on_alone_knows_the_writers_of_the_range_before() {
    let (primary, follower) = (primary(), follower());
    assert!(primary.append(stamped(1, 1)).is_none());
    let entries = primary.server.feed(FOLLOWER, 1 << 20, false).entries;
    assert_eq!(entries.len(), 3, "two writers and a batch");
    give(&follower, entries);
    fence(&follower);
    let sealed = HeldRange {
        end: Some(Offset(3)),
        ..next_range()
    };
    let ranges = [held(0, 0, Some(2)), sealed, held(2, 3, None)];
    follower.server.install(STREAM, StreamFacts::default(), &ranges);
    let repeat = follower.append(stamped(1, 1)).unwrap().outcome.unwrap();
    assert_eq!((repeat.duplicate, repeat.base_offset), (true, Some(Offset(2))));
    assert!(follower.append(stamped(1, 2)).is_none());
    assert_eq!(short(&follower.wait(1)[0]), (ErrorCode::NONE, 3, 3));
}

/// The writers that the log of a server knows.
fn known(rig: &Rig) -> Vec<u64> {
    let parts = rig.server.log.writers_of(STREAM);
    let known = parts.iter().flat_map(|part| writers_in(STREAM, part).unwrap());
    known.map(|(key, _)| key.writer.low).collect()
}

#[test]
fn what_one_server_alone_had_is_copied_to_others_which_learn_nothing_of_the_writers_from_it() {
    let source = server(PRIMARY);
    let install = |rig: &Rig, ranges: &[HeldRange]| rig.server.install(STREAM, StreamFacts::default(), ranges);
    assert!(source.append(stamped(1, 0)).is_none());
    source.wait(1);
    install(&source, &[held(0, 0, Some(1))]);
    install(&source, &[held(0, 0, Some(1)), held(1, 1, None)]);
    for append in [stamped(1, 1), stamped(2, 0)] {
        assert!(source.append(append).is_none());
        source.wait(1);
    }
    install(&source, &[held(1, 1, Some(3))]);
    install(&source, &[held(1, 1, Some(3)), held(2, 3, None)]);
    let repeat = |sequence| source.append(stamped(1, sequence)).unwrap().outcome.unwrap();
    assert_eq!((repeat(1).duplicate, repeat(1).base_offset), (true, Some(Offset(1))));

    let target = server(FOLLOWER);
    let copied = HeldRange {
        set: ReplicaSet::new([PRIMARY, FOLLOWER], Some(1)),
        ..held(1, 1, Some(3))
    };
    install(&target, &[copied]);
    let end = Position::start(Offset(3));
    let done = asked(|done| source.server.write_back(NEXT, &[FOLLOWER], end, done));
    let feed = source.server.feed(FOLLOWER, 1 << 20, false);
    let key = feed.from_log.expect("nobody has kept it for others");
    let entries = source.server.feed_from_log(FOLLOWER, key, 1 << 20).unwrap().entries;
    assert_eq!(
        entries.iter().map(|entry| entry.at.offset.0).collect::<Vec<_>>(),
        [1, 2]
    );
    let answers = give(&target, entries);
    let heard = answers.iter().map(|done| Heard {
        sealed_end: Some(end),
        ..of_next(done)
    });
    source.server.heard(FOLLOWER, &heard.collect::<Vec<_>>());
    assert_eq!(done.recv_timeout(PATIENCE).unwrap(), Ok(()));
    assert_eq!((known(&source), known(&target)), (vec![1, 2], vec![]));
    // Who had it alone goes on with them, also where it is told of the copy.
    let shared = HeldRange {
        set: ReplicaSet::new([PRIMARY, FOLLOWER], Some(1)),
        ..held(1, 1, Some(3))
    };
    install(&source, &[shared]);
    assert_eq!(
        (repeat(0).base_offset, repeat(1).base_offset),
        (Some(Offset(0)), Some(Offset(1)))
    );
    assert!(source.append(stamped(1, 2)).is_none());
    assert_eq!(short(&source.wait(1)[0]), (ErrorCode::NONE, 3, 3));
}

fn fence(rig: &Rig) -> FencedEnd {
    let places = asked(|done| rig.server.fence(NEXT, Some(Epoch(1)), done));
    let taken = places.recv_timeout(PATIENCE).unwrap().unwrap();
    rig.server.fence_is_durable(NEXT, taken).unwrap()
}

#[test]
fn a_server_with_one_part_of_two_does_not_know_the_writers_and_is_not_the_next_primary() {
    let (primary, follower) = (primary(), follower());
    let mut entries = primary.server.feed(FOLLOWER, 1 << 20, false).entries;
    assert_eq!(entries.len(), 2, "one part for each writer");
    entries.truncate(1);
    give(&follower, entries);
    let part_of_it = fence(&follower);
    let two = Position {
        offset: Offset(2),
        marks: 2,
    };
    assert_eq!(part_of_it.vote.writers_end, Some(two), "it knows how much there is");
    assert_eq!(part_of_it.vote.end, Position { marks: 1, ..two });

    let range = next_range().set.replicated(NEXT, Epoch(1), Offset(2)).unwrap();
    let mut job = SealJob::new(Arc::clone(&range), Rules::default());
    job.vote(FOLLOWER, part_of_it.vote);
    let empty = Vote {
        end: range.beginning(),
        whole_to: range.beginning(),
        writers_end: None,
        ..part_of_it.vote
    };
    job.vote(ServerId(3), empty);
    job.decide();
    for server in &range.servers {
        job.written_back(*server);
    }
    let SealStep::Store(sealed) = job.step() else {
        panic!("{:?}", job.step());
    };
    assert!(sealed.knowing.is_empty(), "{sealed:?}");
}

#[test]
fn no_batch_is_taken_before_all_parts_of_the_writers_state_are_there() {
    let (primary, follower) = (primary(), follower());
    assert!(primary.append(job(0, 10)).is_none());
    let entries = primary.server.feed(FOLLOWER, 1 << 20, false).entries;
    let [first, second, batch] = <[FeedEntry; 3]>::try_from(entries).unwrap();
    give(&follower, vec![first]);
    // As a sender would that takes the state for whole.
    let too_early = FeedEntry {
        at: second.at,
        ..batch.clone()
    };
    let refused = give(&follower, vec![too_early]).remove(0).outcome.unwrap_err();
    assert_eq!(refused.refusal.code, ErrorCode::RANGE_NOT_FOUND);
    assert!(refused.refusal.message.contains("state of its writers"), "{refused:?}");
    let answers = give(&follower, vec![second, batch]);
    let heard: Vec<_> = answers.iter().map(of_next).collect();
    primary.server.heard(FOLLOWER, &heard);
    assert_eq!(short(&primary.wait(1)[0]).0, ErrorCode::NONE);
    let vote = fence(&follower).vote;
    assert!(vote.writers_end.is_some_and(|end| end.marks == 2 && end < vote.end));
}

#[test]
fn a_trim_does_not_have_the_log_forget_how_the_range_begins_before_that_is_kept_elsewhere() {
    let (primary, follower) = (primary(), follower());
    for number in 0..2 {
        assert!(primary.append(job(number, 10)).is_none());
    }
    give(&follower, primary.server.feed(FOLLOWER, 1 << 20, false).entries);
    let trimmed = |start, writers_parts| {
        let range = HeldRange {
            start: Offset(start),
            copy: CopyRecord {
                opened: Some(Offset(2)),
                writers_parts,
                ..CopyRecord::default()
            },
            ..next_range()
        };
        follower.server.install(STREAM, StreamFacts::default(), &[range]);
        follower.server.log.first_position(NEXT).unwrap()
    };
    assert_eq!(follower.server.writers_parts(NEXT), 2);
    assert_eq!(trimmed(3, 0), Position::start(Offset(2)));
    assert_eq!(trimmed(4, 2), Position::start(Offset(4)));
    assert_eq!(follower.server.writers_parts(NEXT), 2, "it is known from what is kept");
}
