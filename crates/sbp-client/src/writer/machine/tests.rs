use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, Status};
use sbp_types::{Offset, StreamId, TimestampMs};

use super::{Action, AttemptEnd, Content, Kind, Machine, Opening, Setup, TimeLimit};
use crate::codes;
use crate::config::RetryPolicy;
use crate::error::{ClientError, ErrorKind};
use crate::failure::{Cause, Failure};
use crate::features::Durability;
use crate::outcome::Ack;

pub(crate) const WINDOW: usize = 64;

pub(crate) fn setup(kind: Kind) -> Setup {
    Setup {
        epoch: 0,
        opening: Opening::At(0),
        open_by: Instant::now() + Duration::from_secs(100),
        kind,
        max_in_flight: WINDOW,
        attempt_timeout: Duration::from_secs(10),
        policy: RetryPolicy::default(),
    }
}

pub(crate) fn refused(code: ErrorCode) -> Cause {
    Cause::Refused {
        code,
        message: code.name().to_owned(),
        throttle: Duration::ZERO,
        leader: None,
    }
}

pub(crate) fn lost() -> Cause {
    Cause::ConnectionLost {
        sent: true,
        reason: "reset".into(),
    }
}

pub(crate) fn failed(cause: Cause, next_sequence: i64) -> AttemptEnd {
    AttemptEnd {
        next_sequence: (next_sequence >= 0).then_some(next_sequence),
        ..AttemptEnd::failed(Failure::from(cause))
    }
}

pub(crate) fn fenced(by: i64) -> AttemptEnd {
    AttemptEnd {
        fenced_by: Some(by),
        ..failed(refused(ErrorCode::WRITER_FENCED), -1)
    }
}

pub(crate) fn stored(offset: i64, duplicate: bool) -> AttemptEnd {
    AttemptEnd {
        outcome: Ok(Ack {
            stream: StreamId(1),
            base_offset: Some(Offset(offset)).filter(|base| *base >= Offset::ZERO),
            records: 1,
            next_offset: Some(Offset(offset + 1)),
            append_time: TimestampMs(0),
            durability: Durability::Fsync,
            duplicate,
            next_sequence: None,
        }),
        next_sequence: None,
        fenced_by: None,
    }
}

/// What is sent now: token, epoch and sequence of each.
fn sent(machine: &mut Machine<u32>, now: Instant) -> Vec<(u64, i64, i64)> {
    let mut all = Vec::new();
    while let Some(batch) = machine.poll_send(now) {
        all.push((batch.token, batch.epoch, batch.base_sequence));
    }
    all
}

type Told = Vec<(u32, Result<i64, (ErrorKind, ErrorCode)>)>;

/// Who is told what.
fn told(machine: &mut Machine<u32>) -> Told {
    let mut all = Vec::new();
    while let Some(action) = machine.poll_action() {
        if let Action::Tell(who, result) = action {
            let result = result.map(|ack| ack.base_offset.unwrap().0);
            all.push((who, result.map_err(|error: ClientError| (error.kind(), error.code()))));
        }
    }
    all
}

/// A machine with `batches` of one record, all of them on their way.
fn with_sent(kind: Kind, batches: u32) -> (Machine<u32>, Vec<u64>, Instant) {
    let now = Instant::now();
    let mut machine = Machine::new(setup(kind));
    machine.known_at = Some(now);
    for id in 0..batches {
        machine
            .push(1, TimeLimit::At(now + Duration::from_secs(100)), id)
            .unwrap();
    }
    let tokens = sent(&mut machine, now).into_iter().map(|(token, ..)| token).collect();
    (machine, tokens, now)
}

fn sequences(sent: &[(u64, i64, i64)]) -> Vec<(i64, i64)> {
    sent.iter().map(|&(_, epoch, sequence)| (epoch, sequence)).collect()
}

#[test]
fn no_more_than_the_window_is_on_its_way() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 100);
    assert_eq!(tokens.len(), WINDOW);
    machine.handle_end(now, tokens[1], stored(1, false));
    // By place: the first is still unanswered, so the server may have to recognise it among its last 64.
    assert!(sent(&mut machine, now).is_empty());
    machine.handle_end(now, tokens[0], stored(0, false));
    assert_eq!(sequences(&sent(&mut machine, now)), [(0, 64), (0, 65)]);
    assert_eq!(told(&mut machine), [(1, Ok(1)), (0, Ok(0))]);
}

#[test]
fn the_first_batch_of_a_writer_goes_alone() {
    let now = Instant::now();
    let mut machine = Machine::new(setup(Kind::Anonymous));
    for id in 0..3 {
        machine
            .push(1, TimeLimit::At(now + Duration::from_secs(100)), id)
            .unwrap();
    }
    let first = sent(&mut machine, now);
    assert_eq!(sequences(&first), [(0, 0)]);
    machine.handle_end(now, first[0].0, failed(lost(), -1));
    let first = sent(&mut machine, now);
    assert_eq!(sequences(&first), [(0, 0)]);
    machine.handle_end(now, first[0].0, stored(0, false));
    assert_eq!(sequences(&sent(&mut machine, now)), [(0, 1), (0, 2)]);
}

#[test]
fn what_was_on_a_lost_connection_is_sent_again_in_order_under_the_same_sequences() {
    let (mut machine, tokens, now) = with_sent(Kind::Named, 3);
    for token in [tokens[2], tokens[0], tokens[1]] {
        machine.handle_end(now, token, failed(lost(), -1));
    }
    let again = sent(&mut machine, now);
    assert_eq!(sequences(&again), [(0, 0), (0, 1), (0, 2)]);
    machine.handle_end(now, again[0].0, stored(5, true));
    assert_eq!(told(&mut machine), [(0, Ok(5))]);
    // The end of an attempt that was given up on changes nothing.
    machine.handle_end(now, tokens[1], failed(lost(), -1));
    assert!(sent(&mut machine, now).is_empty());
}

#[test]
fn behind_a_refusal_for_the_moment_everything_is_sent_again_in_order() {
    let (mut machine, tokens, now) = with_sent(Kind::Named, 3);
    machine.handle_end(now, tokens[0], failed(refused(ErrorCode::TOO_MANY_REQUESTS), 0));
    machine.handle_end(now, tokens[1], failed(refused(ErrorCode::SEQUENCE_GAP), 0));
    assert!(sent(&mut machine, now).is_empty(), "it waits");
    let later = machine.poll_timeout().expect("it waits for something");
    assert_eq!(sequences(&sent(&mut machine, later)), [(0, 0), (0, 1)]);
    machine.handle_end(later, tokens[2], failed(refused(ErrorCode::SEQUENCE_GAP), 0));
    assert_eq!(sequences(&sent(&mut machine, later)), [(0, 2)]);
    assert!(told(&mut machine).is_empty());
}

#[test]
fn while_a_range_is_taken_over_its_batch_is_sent_again_at_least_once_a_second() {
    let (mut machine, tokens, begun) = with_sent(Kind::Named, 1);
    let (mut now, mut token) = (begun, tokens[0]);
    while now < begun + Duration::from_secs(60) {
        machine.handle_end(now, token, failed(refused(ErrorCode::RANGE_NOT_FOUND), -1));
        machine.handle_refreshed();
        let mut again = sent(&mut machine, now);
        if again.is_empty() {
            let due = machine.poll_timeout().expect("it waits for something");
            assert!(due <= now + Duration::from_secs(1), "{:?}", due - now);
            now = due;
            again = sent(&mut machine, now);
        }
        assert_eq!(sequences(&again), [(0, 0)]);
        token = again[0].0;
    }
}

#[test]
fn a_gap_shows_that_what_went_before_did_not_arrive() {
    let (mut machine, tokens, now) = with_sent(Kind::Named, 3);
    // Nothing was heard of the first, and it is not waited for.
    machine.handle_end(now, tokens[1], failed(refused(ErrorCode::SEQUENCE_GAP), 0));
    let again = sent(&mut machine, now);
    assert_eq!(sequences(&again), [(0, 0), (0, 1)]);
    // Its answer comes after all.
    machine.handle_end(now, tokens[0], stored(7, false));
    assert_eq!(told(&mut machine), [(0, Ok(7))]);
}

#[test]
fn a_batch_refused_for_good_is_left_out_and_those_behind_go_on() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 3);
    machine.handle_end(now, tokens[1], failed(refused(ErrorCode::BATCH_CORRUPT), -1));
    assert_eq!(
        told(&mut machine),
        [(1, Err((ErrorKind::Rejected, ErrorCode::BATCH_CORRUPT)))]
    );
    machine.handle_end(now, tokens[2], failed(refused(ErrorCode::SEQUENCE_GAP), 1));
    assert!(sent(&mut machine, now).is_empty(), "the first is not answered yet");
    machine.handle_end(now, tokens[0], stored(0, false));
    let again = sent(&mut machine, now);
    assert_eq!(
        sequences(&again),
        [(0, 1)],
        "it has the sequence of the one that was left out"
    );
    assert_eq!(machine.next_sequence(), Some(2));
}

#[test]
fn in_doubt_a_new_epoch_keeps_what_may_still_arrive_from_being_stored_between() {
    for kind in [Kind::Anonymous, Kind::Named] {
        let (mut machine, tokens, now) = with_sent(kind, 3);
        machine.handle_end(now, tokens[2], failed(lost(), -1));
        machine.handle_end(now, tokens[0], failed(refused(ErrorCode::BATCH_CORRUPT), -1));
        machine.handle_end(now, tokens[1], failed(refused(ErrorCode::SEQUENCE_GAP), 0));
        let again = sent(&mut machine, now);
        if kind == Kind::Anonymous {
            assert_eq!(sequences(&again), [(1, 0)]);
            machine.handle_end(now, again[0].0, stored(0, false));
            assert_eq!(sequences(&sent(&mut machine, now)), [(1, 1)]);
        } else {
            assert!(again.is_empty() && machine.stopped().is_some());
            let outcomes = told(&mut machine);
            let kinds: Vec<_> = outcomes
                .iter()
                .map(|(who, result)| (*who, result.unwrap_err().0))
                .collect();
            assert_eq!(
                kinds,
                [
                    (0, ErrorKind::Rejected),
                    (2, ErrorKind::Indeterminate),
                    (1, ErrorKind::Rejected),
                ]
            );
        }
    }
}

#[test]
fn the_first_batch_of_a_new_epoch_goes_alone() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 8);
    // The first three are stored: the next epoch may begin at 0, or at 3.
    for (place, token) in tokens[..3].iter().enumerate() {
        machine.handle_end(now, *token, stored(i64::try_from(place).unwrap(), false));
    }
    machine.handle_end(now, tokens[4], failed(lost(), -1));
    machine.handle_end(now, tokens[3], failed(refused(ErrorCode::BATCH_CORRUPT), -1));
    for token in &tokens[5..] {
        machine.handle_end(now, *token, failed(refused(ErrorCode::SEQUENCE_GAP), 3));
    }
    // Were all four sent and the first lost, the server would take the fourth, number 3, for the first of the epoch.
    let first = sent(&mut machine, now);
    assert_eq!(sequences(&first), [(1, 0)]);
    machine.handle_end(now, first[0].0, failed(lost(), -1));
    let again = sent(&mut machine, now);
    assert_eq!(sequences(&again), [(1, 0)]);
    machine.handle_end(now, again[0].0, stored(3, false));
    assert_eq!(sequences(&sent(&mut machine, now)), [(1, 1), (1, 2), (1, 3)]);
}

#[test]
fn a_fenced_writer_stops_and_says_why() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 3);
    machine.handle_end(now, tokens[0], stored(0, false));
    machine.handle_end(now, tokens[1], failed(refused(ErrorCode::WRITER_FENCED), -1));
    machine.handle_end(now, tokens[2], failed(refused(ErrorCode::WRITER_FENCED), -1));
    let fenced = Err((ErrorKind::Rejected, ErrorCode::WRITER_FENCED));
    assert_eq!(told(&mut machine), [(0, Ok(0)), (1, fenced), (2, fenced)]);
    let (error, _) = machine.push(1, TimeLimit::At(now), 9).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WRITER_FENCED);
    assert!(sent(&mut machine, now).is_empty());
}

#[test]
fn a_gap_at_the_front_means_that_the_server_lost_something() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 2);
    machine.handle_end(now, tokens[0], stored(0, false));
    // Sent behind another: may have been overtaken.
    machine.handle_end(now, tokens[1], failed(refused(ErrorCode::SEQUENCE_GAP), 0));
    let again = sent(&mut machine, now);
    machine.handle_end(now, again[0].0, failed(refused(ErrorCode::SEQUENCE_GAP), 0));
    assert_eq!(machine.stopped().unwrap().code(), ErrorCode::SEQUENCE_GAP);
    assert_eq!(machine.stopped().unwrap().next_sequence(), Some(0));
}

#[test]
fn time_that_is_over_is_definite_only_without_doubt() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 2);
    let late = now + Duration::from_secs(101);
    machine.handle_end(late, tokens[0], failed(Cause::deadline(true), -1));
    assert_eq!(
        told(&mut machine),
        [(0, Err((ErrorKind::Indeterminate, codes::DEADLINE_AFTER_SEND)))]
    );
    machine.handle_end(late, tokens[1], failed(refused(ErrorCode::INSUFFICIENT_STORAGE), -1));
    assert_eq!(
        told(&mut machine),
        [(1, Err((ErrorKind::Rejected, ErrorCode::INSUFFICIENT_STORAGE)))]
    );
    // Never sent.
    machine
        .push(1, TimeLimit::At(late + Duration::from_secs(1)), 2)
        .unwrap();
    machine.handle_timeout(late + Duration::from_secs(1));
    assert_eq!(
        told(&mut machine),
        [(2, Err((ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND)))]
    );
    machine
        .push(1, TimeLimit::At(late + Duration::from_secs(9)), 3)
        .unwrap();
    assert_eq!(sequences(&sent(&mut machine, late)), [(1, 0)]);
}

#[test]
fn a_connection_that_answers_nothing_is_left_once() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 3);
    let reconnects = |machine: &mut Machine<u32>| {
        let mut count = 0;
        while let Some(action) = machine.poll_action() {
            count += usize::from(matches!(action, Action::Reconnect));
        }
        count
    };
    let later = now + Duration::from_secs(10);
    for token in &tokens {
        machine.handle_end(later, *token, failed(Cause::deadline(true), -1));
    }
    assert_eq!(reconnects(&mut machine), 1);
    let again = sent(&mut machine, later);
    assert_eq!(again.len(), 3);
    // One answer is lost, the others come: the connection is good.
    machine.handle_end(later + Duration::from_secs(1), again[1].0, stored(1, true));
    machine.handle_end(
        later + Duration::from_secs(10),
        again[0].0,
        failed(Cause::deadline(true), -1),
    );
    assert_eq!(reconnects(&mut machine), 0);
}

#[test]
fn a_named_writer_asks_where_it_stands() {
    for (answer, start) in [(0, 0), (17, 17), (-1, 0)] {
        let now = Instant::now();
        let mut machine = Machine::new(Setup {
            opening: Opening::Asks,
            ..setup(Kind::Named)
        });
        machine.push(2, TimeLimit::At(now + Duration::from_secs(9)), 0).unwrap();
        machine.push(3, TimeLimit::At(now + Duration::from_secs(9)), 1).unwrap();
        let is_question = |content| matches!(content, Content::Question);
        let question = machine
            .poll_send(now)
            .map(|send| (send.token, is_question(send.content)));
        let Some((token, true)) = question else {
            panic!("it asks first")
        };
        assert!(sent(&mut machine, now).is_empty());
        assert_eq!(machine.next_sequence(), None);
        let end = AttemptEnd {
            next_sequence: Some(answer),
            ..stored(-1, false)
        };
        machine.handle_end(now, token, end);
        let batches = [(0, start), (0, start + 2)];
        // One that the server does not know begins with one batch.
        let at_once = if answer < 0 { 1 } else { 2 };
        assert_eq!(sequences(&sent(&mut machine, now)), batches[..at_once]);
        assert_eq!(machine.next_sequence(), Some(start + 5));
    }
}

#[test]
fn a_named_writer_that_is_behind_is_refused_at_its_question() {
    let now = Instant::now();
    let mut machine = Machine::new(Setup {
        opening: Opening::Asks,
        ..setup(Kind::Named)
    });
    machine.push(1, TimeLimit::At(now + Duration::from_secs(9)), 0).unwrap();
    let token = sent(&mut machine, now)[0].0;
    machine.handle_end(now, token, failed(refused(ErrorCode::WRITER_FENCED), -1));
    assert_eq!(
        told(&mut machine),
        [(0, Err((ErrorKind::Rejected, ErrorCode::WRITER_FENCED)))]
    );
}

/// A machine that takes over, with two batches that wait for it, and the token of its fence.
fn taking_over(first_sequence: Option<i64>) -> (Machine<u32>, u64, Instant) {
    let now = Instant::now();
    let mut machine = Machine::new(Setup {
        epoch: 1,
        opening: Opening::TakesOver { first_sequence },
        open_by: now + Duration::from_secs(30),
        ..setup(Kind::Named)
    });
    machine
        .push(2, TimeLimit::At(now + Duration::from_secs(90)), 0)
        .unwrap();
    machine
        .push(3, TimeLimit::At(now + Duration::from_secs(90)), 1)
        .unwrap();
    let token = fence(&mut machine, now, 1);
    (machine, token, now)
}

/// The fence that is sent now, which has this epoch.
fn fence(machine: &mut Machine<u32>, now: Instant, epoch: i64) -> u64 {
    let fence = machine.poll_send(now).expect("it fences first");
    assert!(
        matches!(fence.content, Content::Fence) && fence.epoch == epoch,
        "{fence:?}"
    );
    let token = fence.token;
    assert!(sent(machine, now).is_empty(), "it waits for the fence's answer");
    token
}

fn told_sequence(next_sequence: i64) -> AttemptEnd {
    AttemptEnd {
        next_sequence: Some(next_sequence),
        ..stored(-1, false)
    }
}

#[test]
fn a_writer_that_takes_over_fences_and_goes_on_where_the_one_before_stood() {
    for (first_sequence, begins) in [(None, 7), (Some(0), 0), (Some(5), 5)] {
        let (mut machine, token, now) = taking_over(first_sequence);
        machine.handle_end(now, token, fenced(8));
        let token = fence(&mut machine, now, 9);
        // It may be this one's own that was repeated, or somebody else's: another epoch tells them apart.
        machine.handle_end(
            now,
            token,
            AttemptEnd {
                next_sequence: Some(7),
                ..stored(-1, true)
            },
        );
        let token = fence(&mut machine, now, 10);
        machine.handle_end(now, token, failed(lost(), -1));
        assert!(machine.poll_send(now).is_none(), "it backs off");
        let later = machine.poll_timeout().expect("it waits for something");
        let token = fence(&mut machine, later, 10);
        machine.handle_end(later, token, told_sequence(7));
        assert_eq!(sequences(&sent(&mut machine, later)), [(10, begins), (10, begins + 2)]);
        assert_eq!((machine.epoch(), machine.next_sequence()), (10, Some(begins + 5)));
    }
}

#[test]
fn a_writer_that_cannot_be_opened_in_its_time_stores_nothing_and_says_so() {
    let (mut machine, token, now) = taking_over(None);
    let late = now + Duration::from_secs(30);
    assert!(machine.poll_timeout() > Some(late), "the attempt ends by itself");
    machine.handle_end(late, token, failed(Cause::deadline(true), -1));
    let definite = Err((ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND));
    assert_eq!(told(&mut machine), [(0, definite), (1, definite)]);
    let why = machine.stopped().unwrap();
    assert!(why.to_string().contains("could not be opened in its time"), "{why}");
    // Without a server to ask at all, time ends it.
    let (mut machine, token, now) = taking_over(None);
    machine.handle_end(now, token, failed(refused(ErrorCode::TOO_MANY_REQUESTS), -1));
    let late = now + Duration::from_secs(30);
    assert!(machine.poll_timeout() < Some(late));
    machine.handle_timeout(late);
    assert!(machine.stopped().is_some() && machine.poll_timeout() != Some(late));
    // One whose answers are always repeats does not go on for ever.
    let (mut machine, token, now) = taking_over(None);
    machine.handle_end(now + Duration::from_secs(30), token, stored(-1, true));
    assert!(machine.stopped().is_some());
}

#[test]
fn a_server_without_fences_and_an_epoch_without_a_next_one_are_told() {
    let (mut machine, token, now) = taking_over(None);
    let lacks = Cause::Unsupported {
        feature: sbp_messages::features::FENCE,
    };
    machine.handle_end(now, token, failed(lacks, -1));
    let why = machine.stopped().unwrap();
    assert_eq!(why.code(), codes::FEATURE_NOT_OFFERED);
    assert!(why.to_string().contains("give the writer an epoch"), "{why}");
    let (mut machine, token, now) = taking_over(None);
    machine.handle_end(now, token, fenced(i64::MAX));
    assert!(machine.stopped().unwrap().to_string().contains("another writer_id"));
}

#[test]
fn behind_a_batch_that_is_not_stored_a_writer_with_a_name_stores_nothing() {
    // Refused for good, refused until its time is over, never sent in time, and gone in doubt.
    let past = Duration::from_secs(101);
    let ends: [(Cause, Duration, ErrorKind); 4] = [
        (refused(ErrorCode::BATCH_CORRUPT), Duration::ZERO, ErrorKind::Rejected),
        (refused(ErrorCode::INSUFFICIENT_STORAGE), past, ErrorKind::Rejected),
        (Cause::NotStarted, past, ErrorKind::TimedOut),
        (Cause::deadline(true), past, ErrorKind::Indeterminate),
    ];
    for (cause, after, kind) in ends {
        let (mut machine, tokens, now) = with_sent(Kind::Named, 3);
        machine.push(1, TimeLimit::At(now + 2 * past), 3).unwrap();
        machine.handle_end(now, tokens[0], stored(0, false));
        let later = now + after;
        machine.handle_end(later, tokens[1], failed(cause.clone(), -1));
        // It never arrives behind the hole.
        machine.handle_end(later, tokens[2], failed(refused(ErrorCode::SEQUENCE_GAP), 1));
        assert!(sent(&mut machine, later).is_empty(), "{cause:?}");
        let outcomes = told(&mut machine);
        let kinds: Vec<_> = outcomes
            .iter()
            .map(|(who, end)| (*who, end.err().map(|end| end.0)))
            .collect();
        assert_eq!(kinds[..2], [(0, None), (1, Some(kind))], "{cause:?}");
        for (who, behind) in &kinds[2..] {
            assert!(
                *behind != Some(ErrorKind::Indeterminate),
                "{cause:?}: batch {who} was not stored"
            );
        }
        assert_eq!(kinds.len(), 4, "{cause:?}: each is told");
        let (error, _) = machine.push(1, TimeLimit::At(later + past), 4).unwrap_err();
        assert!(!error.is_indeterminate() && !error.is_retriable());
        for part in ["the writer has stopped", "was not stored", "open the writer again"] {
            assert!(error.to_string().contains(part), "{part} is not in: {error}");
        }
    }
}

#[test]
fn what_was_sent_before_a_writer_stopped_may_still_be_stored_and_is_told_as_it_is() {
    let (mut machine, tokens, now) = with_sent(Kind::Named, 4);
    machine.handle_end(now, tokens[2], failed(refused(ErrorCode::BATCH_CORRUPT), -1));
    machine.handle_end(now, tokens[0], stored(0, false));
    machine.handle_end(now, tokens[1], failed(lost(), -1));
    machine.handle_end(now, tokens[3], failed(refused(ErrorCode::SEQUENCE_GAP), 2));
    let kinds: Vec<_> = told(&mut machine)
        .into_iter()
        .map(|(who, end)| (who, end.map_err(|end| end.0)))
        .collect();
    let expected = [
        (2, Err(ErrorKind::Rejected)),
        (0, Ok(0)),
        (1, Err(ErrorKind::Indeterminate)),
        (3, Err(ErrorKind::Rejected)),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn a_stream_that_is_gone_stops_its_writer_and_what_may_be_stored_is_said_to_be_in_doubt() {
    let (mut machine, tokens, now) = with_sent(Kind::Anonymous, 3);
    machine.handle_end(now, tokens[0], failed(lost(), -1));
    machine.handle_end(now, tokens[1], failed(refused(ErrorCode::RANGE_NOT_FOUND), -1));
    assert!(matches!(machine.poll_action(), Some(Action::Refresh)));
    let gone = ClientError::entry(&Status::error(ErrorCode::NOT_FOUND, "it was deleted"), None);
    machine.handle_deleted(gone);
    let doubtful = (ErrorKind::Indeterminate, codes::CONNECTION_LOST);
    let gone = (ErrorKind::Rejected, ErrorCode::NOT_FOUND);
    assert_eq!(told(&mut machine), [(0, Err(doubtful)), (1, Err(gone))]);
    machine.handle_end(now, tokens[2], failed(refused(ErrorCode::RANGE_NOT_FOUND), -1));
    assert_eq!(told(&mut machine), [(2, Err(gone))]);
    assert_eq!(machine.stopped().unwrap().code(), ErrorCode::NOT_FOUND);
}
