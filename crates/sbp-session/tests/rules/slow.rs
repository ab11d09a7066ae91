//! Peers that send too slowly, take too slowly, or do not stop: in virtual time, for both roles where both can meet them.

use std::time::Duration;

use bytes::Bytes;
use sbp_frame::{CallId, OpCode, PayloadPart};
use sbp_session::{CallFailure, CloseReason, Role, SessionConfig, Violation};

use crate::script::{Raw, Seen, Subject, Why, pattern};

const SECOND: Duration = Duration::from_secs(1);
const ROLES: [Role; 2] = [Role::Server, Role::Client];

/// A connection that has seen a whole frame, with calls 1 to 10 of a client in flight.
fn greeted(role: Role) -> Subject {
    let mut subject = fresh(role);
    subject.receive(&Raw::request(OpCode::PING, 1).bytes());
    assert_eq!(subject.sent().len(), 1);
    subject
}

fn fresh(role: Role) -> Subject {
    match role {
        Role::Server => Subject::server(),
        Role::Client => Subject::client().with_calls(OpCode::APPEND, 10),
    }
}

/// A frame that `role` expects, and reads to its end.
fn expected(role: Role) -> Raw {
    match role {
        Role::Server => Raw::request(OpCode::APPEND, 7),
        Role::Client => Raw::response(OpCode::APPEND, 7),
    }
}

/// How much of a frame came, and in which time, where the connection ended because that was too slow.
fn slow_end(subject: &Subject) -> Option<(u64, Duration)> {
    match subject.session.close_reason() {
        Some(CloseReason::TooSlow { bytes, within }) => Some((*bytes, *within)),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}

#[test]
fn the_first_sixteen_bytes_are_due_within_five_seconds() {
    for role in ROLES {
        for step in [Duration::from_millis(400), SECOND, 4 * SECOND] {
            let mut subject = greeted(role);
            let frame = expected(role).bytes();
            let begun = subject.now;
            for byte in frame.chunks(1) {
                subject.receive(byte);
                for _ in 0..step.as_millis() / 100 {
                    subject.live_through(SECOND / 10);
                    subject.write();
                }
            }
            let (bytes, within) = slow_end(&subject).expect("closed");
            assert_eq!(within, 5 * SECOND, "{role:?} at {step:?} a byte");
            assert!(bytes < 16);
            assert!(subject.now > begun + within, "long before the frame was through");
            let go_away = subject.sent().pop().expect("a word of farewell");
            assert_eq!(
                (go_away.opcode, &go_away.header[..]),
                (OpCode::GOAWAY, &b"violation"[..])
            );
            assert!(subject.session.is_closed());
        }
    }
}

#[test]
fn sixteen_bytes_in_time_are_enough() {
    for role in ROLES {
        let mut subject = greeted(role);
        for byte in expected(role).bytes().chunks(1) {
            subject.receive(byte);
            subject.live_through(Duration::from_millis(290));
        }
        assert_eq!(slow_end(&subject), None, "{role:?}");
        let seen = subject.seen();
        assert!(
            matches!(seen[..], [Seen::Request { .. } | Seen::Response { .. }]),
            "{seen:?}"
        );
    }
}

#[test]
fn each_frame_has_its_own_time() {
    let mut subject = greeted(Role::Server);
    // Never a moment without half a frame, but every frame is through within five seconds.
    let frames: Vec<u8> = (10..110)
        .flat_map(|id| Raw::request(OpCode::APPEND, id).bytes())
        .collect();
    for piece in frames.chunks(13) {
        subject.receive(piece);
        subject.live_through(Duration::from_millis(2_400));
    }
    assert_eq!(slow_end(&subject), None);
    assert_eq!(subject.seen().len(), 100);
}

#[test]
fn who_never_sent_a_frame_is_closed_without_a_word() {
    let mut subject = Subject::server();
    subject.receive(&[0]);
    subject.live_through(5 * SECOND);
    assert_eq!(
        slow_end(&subject),
        Some((0, 5 * SECOND)),
        "nothing came behind the first byte"
    );
    assert!(subject.session.is_closed(), "at once");
    assert_eq!(subject.sent().len(), 0);
}

/// Receives a frame's rest at so many bytes a second, and returns when the connection ended.
fn rest_at(mut subject: Subject, raw: &Raw, per_second: usize) -> (Subject, Option<Duration>) {
    let bytes = raw.bytes();
    let (head, rest) = bytes.split_at(16);
    subject.receive(head);
    let begun = subject.now;
    for tenth in rest.chunks(per_second / 10) {
        subject.live_through(SECOND / 10);
        if subject.session.close_reason().is_some() {
            let (_, within) = slow_end(&subject).expect("too slow");
            assert!(subject.now - begun >= within);
            return (subject, Some(within));
        }
        subject.receive(tenth);
    }
    (subject, None)
}

#[test]
fn the_rest_is_due_at_sixteen_kibibytes_a_second() {
    for role in ROLES {
        // Header, payload in blocks, and a frame that is thrown away.
        let long_header = expected(role).header(pattern(600_000));
        let payload = expected(role).payload(pattern(600_000));
        let unknown = Raw {
            opcode: 0x7777,
            ..Raw::request(OpCode::APPEND, 9).payload(pattern(600_000))
        };
        for raw in [long_header, payload, unknown] {
            let (subject, end) = rest_at(greeted(role), &raw, 16 * 1024);
            assert_eq!(end, None, "{role:?} {:#06x}", raw.opcode);
            assert_eq!(subject.session.stats().frames_in, 2, "it is through");
            for (per_second, latest) in [(10, 6), (1_000, 6), (8 * 1024, 11), (15 * 1024, 80)] {
                let (_, end) = rest_at(greeted(role), &raw, per_second);
                match end {
                    Some(end) => assert!(
                        (5..=latest).contains(&end.as_secs()),
                        "{per_second} bytes a second: {end:?}"
                    ),
                    // 600,000 bytes at 15 KiB a second take less than the first five seconds make up for.
                    None => assert_eq!(per_second, 15 * 1024),
                }
            }
        }
    }
}

#[test]
fn a_charged_payload_has_to_hurry_too() {
    let mut client = Subject::client();
    client.call(OpCode::FETCH, 1, 1 << 20);
    client.write();
    client.receive(&Raw::request(OpCode::PING, 1).bytes());
    let raw = Raw::response(OpCode::FETCH, 1).payload(pattern(1 << 20));
    let (mut client, end) = rest_at(client, &raw, 4 * 1024);
    assert!(end.is_some_and(|end| end < 7 * SECOND), "{end:?}");
    assert!(client.seen().contains(&Seen::Failed {
        user: 1,
        failure: CallFailure::ConnectionClosed,
        bytes_sent: true
    }));
}

#[test]
fn time_in_which_this_side_does_not_read_is_not_counted() {
    let mut config = SessionConfig::server();
    config.limits.answer_bytes = 1_000;
    config.stall_timeout = 3_600 * SECOND;
    let mut subject = Subject::new(config);
    subject.receive(&Raw::request(OpCode::FETCH, 1).bytes());
    subject.receive(&Raw::request(OpCode::APPEND, 2).payload(pattern(50_000)).bytes()[..100]);
    // Its answers pile up, so nothing more is read, in the middle of a frame.
    subject
        .session
        .send_response(
            CallId::FIRST,
            OpCode::FETCH,
            false,
            b"part",
            &[PayloadPart::Copy(&[0; 1_000])],
        )
        .unwrap();
    subject.take_events();
    assert!(!subject.session.wants_read());
    subject.live_through(60 * SECOND);
    assert_eq!(slow_end(&subject), None);
    subject.write();
    subject.take_events();
    assert!(subject.session.wants_read());
    subject.live_through(4 * SECOND + SECOND / 2);
    assert_eq!(slow_end(&subject), None, "its time begins anew");
    subject.live_through(SECOND);
    assert!(slow_end(&subject).is_some(), "and ends");
}

#[test]
fn a_connection_without_a_byte_is_silent_not_slow() {
    let mut subject = Subject::server();
    subject.live_through(89 * SECOND);
    assert!(subject.session.close_reason().is_none());
    subject.live_through(SECOND);
    assert!(matches!(subject.session.close_reason(), Some(CloseReason::Silent(_))));
}

/// A server with `answers` bytes that wait to be written.
fn crowded(answers: usize) -> Subject {
    let mut config = SessionConfig::server();
    config.limits.answer_bytes = 1 << 20;
    let mut subject = Subject::new(config);
    subject.receive(&Raw::request(OpCode::FETCH, 1).bytes());
    let part = [PayloadPart::Share(Bytes::from(vec![0; answers]))];
    subject
        .session
        .send_response(CallId::FIRST, OpCode::FETCH, false, b"part", &part)
        .expect("room for an answer");
    subject
}

/// The time from now on after which the connection is given up, and the patience that it names.
fn given_up(subject: &mut Subject) -> (Duration, Duration) {
    let begun = subject.now;
    for _ in 0..1_000 {
        if let Some(reason) = subject.session.close_reason() {
            let CloseReason::Stalled(patience) = reason else {
                panic!("{reason:?}")
            };
            assert!(subject.session.is_closed() && subject.session.transmit_len() == 0);
            return (subject.now - begun, *patience);
        }
        subject.live_through(SECOND / 10);
    }
    panic!("it is never given up");
}

#[test]
fn who_takes_nothing_is_read_no_more_and_has_thirty_seconds() {
    // Below the limit of what may wait, at it and beyond it; the peer may have been paused.
    for answers in [1_000, 1 << 19, 1 << 20, 15 << 20] {
        let mut subject = crowded(answers);
        assert_eq!(subject.session.wants_read(), answers < 1 << 20);
        subject.live_through(29 * SECOND);
        assert!(subject.session.close_reason().is_none());
        let (after, patience) = given_up(&mut subject);
        assert_eq!((after, patience), (SECOND, 30 * SECOND), "{answers} bytes");
    }
}

#[test]
fn thirty_seconds_count_from_the_last_byte_that_was_taken() {
    for (answers, moved) in [(1 << 19, 1), (1 << 19, 1 << 18), (1 << 20, 1 << 19)] {
        for late in [Duration::ZERO, SECOND, 29 * SECOND] {
            let mut subject = crowded(answers);
            subject.live_through(late);
            subject.session.handle_written(moved, subject.now);
            assert_eq!(
                given_up(&mut subject),
                (30 * SECOND, 30 * SECOND),
                "{moved} bytes after {late:?}"
            );
        }
    }
}

#[test]
fn a_queue_that_moves_is_left_alone() {
    for (short, pause) in [(false, 29 * SECOND), (true, SECOND)] {
        let mut subject = crowded(2 << 20);
        subject.session.set_tight(short, subject.now);
        for _ in 0..100 {
            subject.session.handle_written(1, subject.now);
            subject.live_through(pause);
            assert!(subject.session.close_reason().is_none(), "a byte is progress");
        }
    }
}

#[test]
fn while_memory_is_short_who_takes_nothing_is_cut_within_two_seconds() {
    // However long it took nothing before: others may have used the memory up.
    for before in [Duration::ZERO, SECOND, 20 * SECOND] {
        let mut subject = crowded(1_000);
        subject.live_through(before);
        subject.session.set_tight(true, subject.now);
        assert_eq!(
            given_up(&mut subject),
            (SECOND * 3 / 2, SECOND * 3 / 2),
            "after {before:?}"
        );
    }
    // What became free in time is no reason any more.
    let mut subject = crowded(1_000);
    subject.session.set_tight(true, subject.now);
    subject.live_through(SECOND);
    subject.session.set_tight(false, subject.now);
    assert_eq!(given_up(&mut subject), (29 * SECOND, 30 * SECOND));
}

#[test]
fn what_is_queued_after_a_rest_has_all_its_time() {
    let mut subject = Subject::server();
    subject.receive(&Raw::request(OpCode::FETCH, 1).bytes());
    subject.take_events();
    // Nothing happens for a while, and no timer tells the time.
    subject.now += 20 * SECOND;
    subject.session.note_time(subject.now);
    subject
        .session
        .send_response(CallId::FIRST, OpCode::FETCH, false, b"part", &[])
        .unwrap();
    assert_eq!(given_up(&mut subject).0, 30 * SECOND);
}

fn too_long(user: u64) -> Seen {
    Seen::Failed {
        user,
        failure: CallFailure::AnswerTooLong,
        bytes_sent: true,
    }
}

/// A client with two calls in flight and small limits for answers.
fn client(frames: u32, overshoot: u64, charge: u32) -> Subject {
    let mut config = SessionConfig::client();
    (config.limits.answer_frames, config.limits.answer_overshoot) = (frames, overshoot);
    let mut subject = Subject::new(config);
    subject.call(OpCode::FETCH, 1, charge);
    subject.call(OpCode::FETCH, 2, charge);
    subject
}

#[test]
fn an_answer_has_so_many_frames() {
    let mut subject = client(5, 1 << 20, 0);
    let part = Raw::response(OpCode::FETCH, 1).flags(0x01).bytes();
    (0..5).for_each(|_| subject.receive(&part));
    assert_eq!(subject.seen().len(), 5);
    subject.receive(&part);
    assert_eq!(subject.seen(), [too_long(1)]);
    assert_eq!(subject.session.stats().discarded, 1);
    subject.receive(&Raw::response(OpCode::FETCH, 2).bytes());
    assert!(
        matches!(subject.seen()[..], [Seen::Response { user: 2, .. }]),
        "the others go on"
    );
    (0..64).for_each(|_| subject.receive(&part));
    assert_eq!(
        subject.seen(),
        [Seen::Closing(Why::Violation(Violation::TooManyDiscards))],
        "a flood ends the connection"
    );
}

#[test]
fn an_answer_has_so_many_bytes() {
    let payload = Raw::response(OpCode::FETCH, 1).flags(0x01).payload(pattern(10_000));
    let frame = payload.bytes().len() as u64;
    for (overshoot, charge, fits) in [
        (4 * frame, 0, 4),
        (4 * frame - 1, 0, 3),
        (frame, 2 * frame, 3),
        (0, frame, 1),
    ] {
        let mut subject = client(100, overshoot, u32::try_from(charge).unwrap());
        (0..fits).for_each(|_| subject.receive(&payload.bytes()));
        assert_eq!(subject.seen().len(), fits, "{overshoot} beside {charge}");
        subject.receive(&payload.bytes());
        assert_eq!(subject.seen(), [too_long(1)], "{overshoot} beside {charge}");
        assert_eq!(
            subject.session.stats().frames_in,
            fits as u64 + 1,
            "it was skipped, not kept"
        );
    }
}

#[test]
fn the_last_frame_of_too_long_an_answer_ends_it() {
    let mut subject = client(1, 1 << 20, 0);
    subject.receive(&Raw::response(OpCode::FETCH, 1).flags(0x01).bytes());
    subject.seen();
    subject.receive(&Raw::response(OpCode::FETCH, 1).bytes());
    assert_eq!(subject.seen(), [too_long(1)]);
    subject.receive(&Raw::response(OpCode::FETCH, 1).bytes());
    assert_eq!(subject.session.stats().discarded, 2, "nobody knows the call any more");
}

#[test]
fn a_cancelled_call_s_answer_is_free_as_long_as_it_may_be() {
    let mut subject = client(5, 1 << 20, 0);
    subject.session.cancel(CallId::FIRST);
    let part = Raw::response(OpCode::FETCH, 1).flags(0x01).bytes();
    (0..5).for_each(|_| subject.receive(&part));
    assert_eq!(subject.session.stats().discarded, 0);
    (0..3).for_each(|_| subject.receive(&part));
    assert_eq!((subject.seen(), subject.session.stats().discarded), (vec![], 3));
}

#[test]
fn go_aways_without_end_are_cut() {
    for role in ROLES {
        let mut subject = greeted(role);
        let go_away = Raw::request(OpCode::GOAWAY, 10).bytes();
        if role == Role::Server {
            // Something in flight, or the first one would end the connection.
            subject.receive(&Raw::request(OpCode::FETCH, 9).bytes());
        }
        (0..66).for_each(|_| subject.receive(&go_away));
        assert!(subject.session.close_reason().is_none(), "the first two are free");
        subject.receive(&go_away);
        let reason = subject.session.close_reason();
        assert!(
            matches!(reason, Some(CloseReason::Violation(Violation::TooManyDiscards))),
            "{role:?}: {reason:?}"
        );
    }
}

#[test]
fn work_goes_on_counting_when_its_asker_is_gone() {
    let mut subject = Subject::server();
    (1..=3).for_each(|id| subject.receive(&Raw::request(OpCode::APPEND, id).bytes()));
    subject.session.handle_eof(subject.now);
    assert_eq!(subject.session.peer_calls(), 3, "what was started is still being done");
    let answer = |subject: &mut Subject, id| {
        let id = CallId::from_raw(id).unwrap();
        subject.session.send_response(id, OpCode::APPEND, true, b"done", &[])
    };
    assert!(answer(&mut subject, 2).is_err());
    assert_eq!(subject.session.peer_calls(), 2);
    subject.session.send_system_error(3, OpCode::APPEND, b"no");
    assert!(answer(&mut subject, 1).is_err());
    assert_eq!((subject.session.peer_calls(), subject.sent().len()), (0, 0));
}
