//! A range with several copies: what its primary and its followers do with entries and answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use sbp_log::{Durability, Helpers, LogConfig};
use sbp_messages::ErrorCode;
use sbp_types::{Epoch, Offset, Position};

use super::copies_rig::{Copies, asked, id};
use super::rig::{FIRST, PATIENCE, STREAM, held, job, of_writer, short};
use crate::range::{
    CopyRecord, FetchEntry, HeadFacts, HeldRange, Limits, Readiness, Start, StreamFacts, judge_fetch, resolve_start,
};

#[test]
fn an_append_is_answered_when_enough_servers_have_synced_it() {
    for (servers, acks) in [(2, 1), (2, 2), (3, 2), (3, 3)] {
        let mut copies = Copies::new(servers, acks);
        copies.append(job(0, 100));
        for follower in 1..acks {
            assert_eq!(copies.end_at(0), 0, "{servers}/{acks}");
            assert!(copies.primary().answered().is_empty(), "{servers}/{acks}");
            copies.exchange(follower);
        }
        let done = copies.primary().wait(1);
        assert_eq!(short(&done[0]), (ErrorCode::NONE, 0, -1));
        assert_eq!(copies.end_at(0), 1);
        // Everybody learns what is confirmed, with or without another entry.
        for follower in 1..usize::try_from(servers).unwrap() {
            copies.exchange(follower);
            assert_eq!(copies.end_at(follower), 1, "{servers}/{acks}");
        }
    }
}

#[test]
fn a_follower_answers_what_it_has_synced_and_nothing_before() {
    let mut copies = Copies::new(2, 2);
    copies.rigs[1].stall();
    copies.append(job(0, 100));
    copies.append(job(1, 100));
    copies.send(1);
    assert!(copies.deliver(1).is_empty());
    assert!(copies.rigs[1].answered().is_empty());
    copies.rigs[1].resume();
    let answers = copies.rigs[1].wait(2);
    assert!(copies.primary().answered().is_empty());
    // Both were in one group of the log, so that the first answer says it of both.
    copies.answer(1, &answers[..1]);
    let done = copies.primary().wait(2);
    assert_eq!(
        [short(&done[0]), short(&done[1])],
        [(ErrorCode::NONE, 0, -1), (ErrorCode::NONE, 1, -1)]
    );
}

#[test]
fn a_follower_that_syncs_nothing_writes_a_few_entries_before_it_returns() {
    let mut copies = Copies::with(2, 2, |config| LogConfig {
        durability: Durability::None,
        helpers: Helpers::Threads,
        ..config
    });
    let until = Instant::now() + PATIENCE;
    // Not the first, for which there is no segment yet, and none while the writer's thread is at work.
    for sequence in 0.. {
        copies.append(job(sequence, 100));
        copies.send(1);
        let answers = copies.deliver(1);
        if !answers.is_empty() {
            copies.answer(1, &answers);
            break;
        }
        assert!(Instant::now() < until, "the writer's thread never slept");
        let answers = copies.rigs[1].wait(1);
        copies.answer(1, &answers);
    }
}

#[test]
fn what_was_on_its_way_when_a_connection_was_lost_is_sent_again_and_stored_once() {
    let mut copies = Copies::new(2, 2);
    copies.append(job(0, 100));
    copies.append(job(1, 100));
    copies.send(1);
    // It arrives, but the answer does not.
    let lost = copies.deliver(1).len();
    copies.rigs[1].wait(2 - lost);
    copies.primary().server.disconnected(id(1));
    copies.append(job(2, 100));
    copies.exchange(1);
    assert_eq!(copies.primary().wait(3).len(), 3);
    copies.exchange(1);
    assert_eq!((copies.end_at(0), copies.end_at(1)), (3, 3));
    let stored = copies.rigs[1].server.log.read(FIRST, Offset(0), 1 << 20, true).unwrap();
    assert_eq!(
        stored.iter().map(|batch| batch.base_offset.0).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn a_follower_that_lacks_something_says_where_to_go_on() {
    let mut copies = Copies::new(2, 2);
    copies.append(job(0, 100));
    copies.send(1);
    copies.sent[1].clear();
    copies.append(job(1, 100));
    copies.send(1);
    let answers = copies.deliver(1);
    let refused = answers[0].outcome.as_ref().unwrap_err();
    assert_eq!(
        (refused.refusal.code, refused.next_offset),
        (ErrorCode::PRECONDITION_FAILED, Some(Offset(0)))
    );
    copies.answer(1, &answers);
    copies.exchange(1);
    assert_eq!(copies.primary().wait(2).len(), 2);
}

#[test]
fn a_follower_takes_no_appends_and_names_the_primary() {
    let copies = Copies::new(2, 2);
    let done = copies.rigs[1].append(job(0, 100)).unwrap();
    let refusal = done.outcome.unwrap_err().refusal;
    assert_eq!(refusal.code, ErrorCode::RANGE_NOT_FOUND);
    assert!(
        refusal.message.contains("server 1 takes its appends"),
        "{}",
        refusal.message
    );
}

#[test]
fn fences_and_repeats_wait_for_the_followers_too() {
    let fence = |request_index, epoch| {
        let mut fence = of_writer(request_index, epoch, 0, 0);
        let head = fence.entry.head.as_mut().unwrap();
        *head = HeadFacts {
            is_fence: true,
            ..*head
        };
        fence
    };
    let mut copies = Copies::new(2, 2);
    copies.append(of_writer(0, 0, 0, 1));
    copies.append(of_writer(1, 0, 0, 1));
    copies.append(fence(2, 1));
    copies.append(fence(3, 1));
    assert!(copies.primary().answered().is_empty());
    copies.exchange(1);
    let mut done = copies.primary().wait(4);
    done.sort_by_key(|done| done.entry.request_index);
    let answers: Vec<_> = done.iter().map(short).collect();
    assert_eq!(
        answers,
        [
            (ErrorCode::NONE, 0, 1),
            (ErrorCode::NONE, 0, 1),
            (ErrorCode::NONE, -1, 1),
            (ErrorCode::NONE, -1, 1)
        ]
    );
    let refused = copies.primary().append(of_writer(4, 0, 1, 1)).unwrap();
    assert_eq!(short(&refused).0, ErrorCode::WRITER_FENCED);
}

#[test]
fn readers_of_a_follower_see_what_is_confirmed_and_no_more() {
    let mut copies = Copies::new(3, 3);
    copies.append(job(0, 100));
    copies.exchange(1);
    let fetch = FetchEntry {
        stream: STREAM,
        offset: Offset(0),
        end: None,
        batch_max_bytes: 0,
    };
    let limits = Limits {
        min_bytes: 1,
        last_call: false,
        budget: 1 << 20,
    };
    let judge = |copies: &Copies| {
        let server = &copies.rigs[1].server;
        let ranges = server.hub.ranges.lock();
        judge_fetch(&ranges.table, &fetch, limits, |_, from| {
            if from < copies_end(&ranges) { 100 } else { 0 }
        })
    };
    assert_eq!(judge(&copies), Readiness::Wait);
    copies.exchange(2);
    copies.primary().wait(1);
    copies.exchange(1);
    assert!(matches!(judge(&copies), Readiness::Read(_)));
}

#[test]
fn the_primary_alone_says_where_the_stream_ends_and_only_while_it_takes_appends() {
    let mut copies = Copies::new(3, 2);
    copies.append(job(0, 100));
    copies.exchange(1);
    copies.primary().wait(1);
    let waiting = Limits {
        min_bytes: 1,
        last_call: false,
        budget: 1 << 20,
    };
    let at_once = Limits {
        min_bytes: 0,
        ..waiting
    };
    let judge = |copies: &Copies, member: usize, limits| {
        let ranges = copies.rigs[member].server.hub.ranges.lock();
        let behind = FetchEntry {
            stream: STREAM,
            offset: Offset(9),
            end: None,
            batch_max_bytes: 0,
        };
        let end = resolve_start(&ranges.table, STREAM, Offset::LATEST, None);
        let end = end.map_err(|(refusal, _)| refusal.code);
        match judge_fetch(&ranges.table, &behind, limits, |_, _| 0) {
            Readiness::Refused(refusal, _) => (end, Some(refusal.code)),
            Readiness::Wait => (end, None),
            other => panic!("{other:?}"),
        }
    };
    let elsewhere = ErrorCode::RANGE_NOT_FOUND;
    let outside = ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS;
    let end = Ok(Start::At(Offset(1)));
    assert_eq!(judge(&copies, 0, waiting), (end.clone(), Some(outside)));
    assert_eq!(judge(&copies, 0, at_once), (end, Some(outside)));
    // A follower may only not have been told yet.
    assert_eq!(judge(&copies, 1, waiting), (Err(elsewhere), None));
    assert_eq!(judge(&copies, 1, at_once), (Err(elsewhere), Some(elsewhere)));
    // Fenced, it does not know what goes on elsewhere.
    copies.vote(0);
    assert_eq!(judge(&copies, 0, waiting), (Err(elsewhere), None));
    assert_eq!(judge(&copies, 0, at_once), (Err(elsewhere), Some(elsewhere)));
}

#[test]
fn who_reads_up_to_an_end_that_a_follower_does_not_know_yet_is_sent_elsewhere() {
    let mut copies = Copies::new(3, 2);
    copies.append(job(0, 100));
    // Stored and confirmed, and the follower has not been told so, whichever of the two has synced it first.
    copies.send_with(1, false);
    let mut answers = copies.deliver(1);
    if answers.is_empty() {
        answers.extend(copies.rigs[1].wait(1));
    }
    copies.answer(1, &answers);
    copies.primary().wait(1);
    let judge = |copies: &Copies, member: usize, (offset, end): (i64, Option<i64>), last_call: bool| {
        let ranges = copies.rigs[member].server.hub.ranges.lock();
        let entry = FetchEntry {
            stream: STREAM,
            offset: Offset(offset),
            end: end.map(Offset),
            batch_max_bytes: 0,
        };
        let limits = Limits {
            min_bytes: u64::from(!last_call),
            last_call,
            budget: 1 << 20,
        };
        match judge_fetch(&ranges.table, &entry, limits, |_, _| 0) {
            Readiness::Refused(refusal, _) => Err(refusal.code),
            other => Ok(other),
        }
    };
    let elsewhere = Err(ErrorCode::RANGE_NOT_FOUND);
    assert_eq!(judge(&copies, 1, (0, Some(1)), true), elsewhere);
    assert_eq!(judge(&copies, 1, (0, Some(1)), false), Ok(Readiness::Wait));
    assert!(matches!(judge(&copies, 1, (0, None), true), Ok(Readiness::Empty(_))));
    assert!(matches!(judge(&copies, 0, (0, Some(1)), true), Ok(Readiness::Read(_))));
    // The primary knows that there is no more than it has.
    assert!(matches!(judge(&copies, 0, (1, Some(9)), true), Ok(Readiness::Empty(_))));
    copies.exchange(1);
    assert!(matches!(judge(&copies, 1, (0, Some(1)), true), Ok(Readiness::Read(_))));
}

fn copies_end(ranges: &crate::range::Ranges) -> Offset {
    ranges.table.stream(STREAM).unwrap().confirmed_end()
}

#[test]
fn a_primary_whose_log_has_failed_says_so_and_takes_no_more() {
    let mut copies = Copies::new(2, 2);
    copies.primary().fail_next_sync();
    copies.append(job(0, 100));
    let done = copies.primary().wait(1);
    assert_eq!(short(&done[0]).0, ErrorCode::LOG_FAILED);
    copies.exchange(1);
    assert_eq!(copies.end_at(0), 0);
    let refused = copies.primary().append(job(1, 100)).unwrap();
    assert!(refused.outcome.is_err());
}

#[test]
fn a_fence_waits_for_the_log_and_then_holds_against_clients_and_the_primary() {
    let mut copies = Copies::new(3, 2);
    copies.rigs[1].stall();
    copies.append(job(0, 100));
    copies.send(1);
    assert!(copies.deliver(1).is_empty());
    let follower = &copies.rigs[1].server;
    let places = asked(|done| follower.fence(FIRST, Some(Epoch(0)), done));
    assert!(places.try_recv().is_err(), "the log has not ended what was queued");
    copies.rigs[1].resume();
    let taken = places.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(taken, Position::start(Offset(1)));
    let fenced = copies.rigs[1].server.fence_is_durable(FIRST, taken).unwrap();
    assert_eq!(fenced.vote.end, taken);
    assert_eq!(fenced.confirmed, Position::start(Offset(0)));
    // What it took before it was fenced still confirms the append.
    let answers = copies.rigs[1].wait(1);
    copies.answer(1, &answers);
    assert_eq!(short(&copies.primary().wait(1)[0]), (ErrorCode::NONE, 0, -1));
    copies.append(job(1, 100));
    copies.send(1);
    let refused = copies.deliver(1).remove(0).outcome.unwrap_err().refusal;
    assert_eq!(refused.code, ErrorCode::RANGE_NOT_FOUND);
    assert!(refused.message.contains("is being sealed"), "{}", refused.message);
    assert_eq!(copies.vote(0), Position::start(Offset(2)));
    let refused = copies
        .primary()
        .append(job(2, 100))
        .unwrap()
        .outcome
        .unwrap_err()
        .refusal;
    assert!(refused.message.contains("is being sealed"), "{}", refused.message);
    assert_eq!(copies.vote(0), Position::start(Offset(2)), "a vote is given again");
    let other = asked(|done| copies.primary().server.fence(FIRST, Some(Epoch(1)), done));
    assert_eq!(other.recv().unwrap(), Err(ErrorCode::EXPIRED_RANGE_EPOCH));
}

#[test]
fn what_a_server_lacks_is_written_back_to_it_up_to_the_end() {
    let mut copies = Copies::new(3, 2);
    for index in 0..4 {
        copies.append(job(index, 100));
        if index < 2 {
            copies.exchange(1);
        }
    }
    copies.exchange(2);
    copies.primary().wait(4);
    let end = Position::start(Offset(3));
    assert_eq!((copies.vote(0).offset.0, copies.vote(1).offset.0), (4, 2));
    let primary = Arc::clone(&copies.primary().server);
    let done = asked(|done| primary.write_back(FIRST, &[id(1)], end, done));
    assert!(done.try_recv().is_err());
    while copies.send(1) > 0 {
        // What the primary sends as ever is not taken by a fenced follower.
        copies.sent[1].retain(|entry| entry.sealed_end.is_some());
        assert!(copies.sent[1].iter().all(|entry| entry.sealed_end == Some(end)));
        copies.deliver_copied(1, end);
    }
    assert_eq!(done.recv_timeout(PATIENCE).unwrap(), Ok(()));
    assert_eq!(copies.vote(1), end, "and no further");
    let over = asked(|done| primary.write_back(FIRST, &[id(1)], Position::start(Offset(9)), done));
    assert_eq!(over.recv().unwrap(), Err(ErrorCode::RANGE_NOT_FOUND));
}

#[test]
fn a_follower_too_sends_what_another_one_lacks_when_it_is_told_to() {
    let mut copies = Copies::new(3, 2);
    for index in 0..3 {
        copies.append(job(index, 100));
    }
    copies.exchange(1);
    copies.primary().wait(3);
    let end = Position::start(Offset(3));
    assert_eq!((copies.vote(1), copies.vote(2)), (end, Position::start(Offset(0))));
    // It has nothing in memory for others, and nobody waits for it.
    let source = &copies.rigs[1].server;
    let _done = asked(|done| source.write_back(FIRST, &[id(2)], end, done));
    let feed = source.feed(id(2), 1 << 20, false);
    assert_eq!((feed.entries.len(), feed.from_log), (0, Some(FIRST)));
    let read = source.feed_from_log(id(2), FIRST, 1 << 20).unwrap();
    assert_eq!(read.entries.len(), 3);
}

#[test]
fn a_follower_that_lacks_more_entries_than_a_frame_takes_is_sent_them_in_several() {
    const ENTRIES: i32 = 2_500;
    let mut copies = Copies::new(3, 2);
    for index in 0..ENTRIES {
        copies.append(job(index, 10));
        if index % 500 == 499 {
            copies.exchange(1);
        }
    }
    copies.primary().wait(usize::try_from(ENTRIES).unwrap());
    let primary = Arc::clone(&copies.primary().server);
    let feed = primary.feed(id(2), 1 << 20, false);
    assert_eq!(
        (feed.entries.len(), feed.from_log),
        (0, Some(FIRST)),
        "the first are in the log alone"
    );
    let read = primary.feed_from_log(id(2), FIRST, 1 << 20).unwrap();
    assert_eq!(read.entries.len(), 1_024, "as many as a server takes in one request");
    copies.sent[2].extend(read.entries);
    copies.exchange(2);
    assert_eq!(copies.vote(2), Position::start(Offset(i64::from(ENTRIES))));
}

#[test]
fn no_more_than_so_many_appends_wait_for_the_followers() {
    let copies = Copies::new(2, 2);
    for index in 0..1_024 {
        copies.append(job(index, 10));
    }
    let refused = copies.primary().append(job(1_024, 10)).unwrap();
    assert_eq!(short(&refused).0, ErrorCode::TOO_MANY_REQUESTS);
}

#[test]
fn appends_to_a_stream_that_is_deleted_are_answered() {
    let copies = Copies::new(2, 2);
    copies.append(job(0, 100));
    // It is synced here, and waits for the follower.
    let primary = &copies.primary().server;
    while primary.log.end_position(FIRST).is_none_or(|end| end.offset < Offset(1)) {
        std::thread::yield_now();
    }
    copies.primary().stall();
    copies.append(job(1, 100));
    primary.delete(STREAM);
    copies.primary().resume();
    let codes: Vec<_> = copies.primary().wait(2).iter().map(|done| short(done).0).collect();
    assert_eq!(codes, [ErrorCode::NOT_FOUND; 2]);
    assert!(primary.hub.ranges.lock().copies.is_empty(), "nothing of it is kept");
}

#[test]
fn what_a_follower_lacks_stays_in_the_log_when_the_stream_is_trimmed() {
    let mut copies = Copies::new(3, 2);
    for index in 0..4 {
        copies.append(job(index, 100));
    }
    copies.exchange(1);
    copies.primary().wait(4);
    copies.primary().server.trim(STREAM, Offset(3));
    copies.exchange(2);
    assert_eq!(copies.vote(2), Position::start(Offset(4)));
}

#[test]
fn a_copy_of_a_sealed_range_is_no_end_for_readers_until_it_is_whole_and_may_begin_where_the_range_is_trimmed() {
    let mut copies = Copies::new(3, 2);
    for index in 0..6 {
        copies.append(job(index, 100));
    }
    copies.exchange(1);
    copies.primary().wait(6);
    let end = Position::start(Offset(6));
    for member in 0..2 {
        copies.end(member, 6);
    }
    let trimmed = HeldRange {
        start: Offset(2),
        copy: CopyRecord {
            opened: Some(Offset(0)),
            ..CopyRecord::default()
        },
        ..held(0, 0, Some(6))
    };
    let target = Arc::clone(&copies.rigs[2].server);
    target.install(STREAM, StreamFacts::default(), &[trimmed]);
    let primary = Arc::clone(&copies.primary().server);
    let done = asked(|done| primary.write_back(FIRST, &[id(2)], end, done));
    copies.send(2);
    // The source of a copy may have no more of it than is not trimmed.
    let entries = std::mem::take(&mut copies.sent[2]);
    let mut entries: VecDeque<_> = entries
        .into_iter()
        .filter(|entry| entry.kind.is_some() && entry.at.offset.0 >= 2)
        .collect();
    assert_eq!(entries.len(), 4);
    let last = entries.split_off(3);
    copies.sent[2] = entries;
    let ends = || {
        let ranges = target.hub.ranges.lock();
        let range = ranges.table.range(FIRST).unwrap();
        (range.confirmed.0, range.replica.as_ref().unwrap().synced_end().offset.0)
    };
    // Where a reader finds data: what is asked for is read, or is said to be elsewhere.
    let asked_at = |offset| {
        let ranges = target.hub.ranges.lock();
        let entry = FetchEntry {
            stream: STREAM,
            offset: Offset(offset),
            end: None,
            batch_max_bytes: 0,
        };
        let limits = Limits {
            min_bytes: 1,
            last_call: false,
            budget: 1 << 20,
        };
        match judge_fetch(&ranges.table, &entry, limits, |_, _| 0) {
            Readiness::Read(read) => Ok(read.positions.end_of_range),
            Readiness::Empty(positions) => Ok(positions.end_of_range),
            Readiness::Refused(refusal, _) => Err(refusal.code),
            Readiness::Wait => panic!("it is sealed"),
        }
    };
    copies.deliver_copied(2, end);
    assert_eq!(ends(), (6, 5));
    assert_eq!(
        (2..7).map(asked_at).collect::<Vec<_>>(),
        [
            Ok(false),
            Ok(false),
            Ok(false),
            Err(ErrorCode::RANGE_NOT_FOUND),
            Err(ErrorCode::RANGE_NOT_FOUND)
        ],
        "what is here is served, and there is no end before all of it is"
    );
    copies.sent[2] = last;
    copies.deliver_copied(2, end);
    assert_eq!((ends(), asked_at(5), asked_at(6)), ((6, 6), Ok(false), Ok(true)));
    assert_eq!(done.recv_timeout(PATIENCE).unwrap(), Ok(()));
}

#[test]
fn a_repeat_of_what_the_seal_has_dropped_is_refused_with_it() {
    let mut copies = Copies::new(2, 2);
    copies.append(of_writer(0, 0, 0, 1));
    copies.exchange(1);
    copies.primary().wait(1);
    copies.append(of_writer(1, 0, 1, 1));
    // It says the same, and waits for the same.
    copies.append(of_writer(2, 0, 1, 1));
    assert_eq!(copies.vote(0), Position::start(Offset(2)));
    copies.end(0, 1);
    let mut done = copies.primary().wait(2);
    done.sort_by_key(|done| done.entry.request_index);
    let answers: Vec<_> = done
        .iter()
        .map(|done| (done.entry.request_index, short(done).0))
        .collect();
    assert_eq!(
        answers,
        [
            (1, ErrorCode::RANGE_ALREADY_SEALED),
            (2, ErrorCode::RANGE_ALREADY_SEALED)
        ]
    );
    let known = copies.primary().append(of_writer(3, 0, 0, 1)).unwrap();
    assert_eq!(short(&known).0, ErrorCode::NONE, "what stands below the end is stored");
}

#[test]
fn refusals_that_rest_on_what_is_not_confirmed_wait_for_it() {
    let expecting = |request_index| {
        let mut job = job(request_index, 10);
        job.entry.expected_offset = Some(Offset(0));
        job
    };
    for is_confirmed in [true, false] {
        let mut copies = Copies::new(2, 2);
        copies.append(of_writer(0, 1, 0, 1));
        copies.append(expecting(1));
        copies.append(of_writer(2, 1, 9, 1));
        copies.append(of_writer(3, 0, 0, 1));
        assert!(copies.primary().answered().is_empty());
        let codes = if is_confirmed {
            copies.exchange(1);
            [
                ErrorCode::NONE,
                ErrorCode::PRECONDITION_FAILED,
                ErrorCode::SEQUENCE_GAP,
                ErrorCode::WRITER_FENCED,
            ]
        } else {
            copies.vote(0);
            copies.end(0, 0);
            [ErrorCode::RANGE_ALREADY_SEALED; 4]
        };
        let mut done = copies.primary().wait(4);
        done.sort_by_key(|done| done.entry.request_index);
        assert_eq!(done.iter().map(|done| short(done).0).collect::<Vec<_>>(), codes);
    }
}

#[test]
fn one_turn_of_appends_is_bounded_like_many() {
    let copies = Copies::new(2, 2);
    let primary = copies.primary();
    let refused = primary.append_all((0..1_030).map(|index| job(index, 10)).collect());
    let codes: Vec<_> = refused.iter().map(|done| short(done).0).collect();
    assert_eq!(codes, [ErrorCode::TOO_MANY_REQUESTS; 6]);
}

#[test]
fn an_order_to_write_back_ends_when_another_comes_or_the_range_ends_elsewhere() {
    let copies = Copies::new(3, 2);
    for index in 0..3 {
        copies.append(job(index, 10));
    }
    assert_eq!(copies.vote(0).offset.0, 3);
    let primary = Arc::clone(&copies.primary().server);
    let order = |end| asked(|done| primary.write_back(FIRST, &[id(1)], Position::start(Offset(end)), done));
    let first = order(3);
    assert!(first.try_recv().is_err(), "the server that lacks it is away");
    let second = order(3);
    assert_eq!(first.try_recv().unwrap(), Err(ErrorCode::RS_INTERNAL_SERVER_ERROR));
    assert!(second.try_recv().is_err());
    copies.end(0, 2);
    // Without followers to wake, the answer is given with the next thing that is heard.
    primary.heard(id(1), &[]);
    let ended = second.recv_timeout(PATIENCE).unwrap();
    assert_eq!(ended, Err(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS));
}

#[test]
fn appends_to_a_range_with_several_copies_are_counted_when_they_are_answered() {
    let mut copies = Copies::new(2, 2);
    let counted = |copies: &Copies| {
        let counters = &copies.primary().server.hub.counters;
        let counters = [&counters.appends, &counters.records_appended, &counters.appends_refused];
        counters.map(crate::stats::Counter::value)
    };
    copies.append(job(0, 100));
    copies.append(job(1, 100));
    assert_eq!(counted(&copies), [0, 0, 0]);
    copies.exchange(1);
    copies.primary().wait(2);
    // What is answered is counted with the next thing that is heard, at the latest.
    copies.primary().server.heard(id(1), &[]);
    assert_eq!(counted(&copies), [2, 2, 0]);
}
