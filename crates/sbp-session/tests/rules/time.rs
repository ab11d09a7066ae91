//! Heartbeats, silence and peers that take no bytes.

use std::time::Duration;

use sbp_frame::{CallId, OpCode};
use sbp_session::{CloseReason, Outgoing, SessionConfig};

use crate::script::{Raw, Seen, Subject, pattern};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_client_s_heartbeats_are_due_at_every_interval() {
    let mut subject = Subject::client();
    let mut due = 0;
    for _ in 0..10 {
        subject.receive(&Raw::request(OpCode::PING, 1).bytes());
        subject.write();
        subject.live_through(10 * SECOND);
        due += subject
            .seen()
            .iter()
            .filter(|seen| **seen == Seen::HeartbeatDue)
            .count();
    }
    assert_eq!(due, 3, "at 30, 60 and 90 seconds");
}

#[test]
fn heartbeats_that_were_missed_are_not_made_up_for() {
    let mut config = SessionConfig::client();
    config.silent_intervals = 1_000;
    let mut subject = Subject::new(config);
    subject.pass(100 * SECOND);
    assert_eq!(subject.seen(), [Seen::HeartbeatDue]);
    subject.live_through(30 * SECOND);
    assert_eq!(subject.seen(), [Seen::HeartbeatDue]);
}

#[test]
fn a_silent_connection_is_closed_after_three_intervals() {
    for mut subject in [Subject::server(), Subject::client()] {
        subject.live_through(50 * SECOND);
        subject.receive(&Raw::request(OpCode::PING, 1).bytes());
        subject.write();
        subject.live_through(89 * SECOND);
        assert!(
            subject.session.close_reason().is_none(),
            "any complete frame is a sign of life"
        );
        subject.live_through(SECOND);
        assert!(matches!(subject.session.close_reason(), Some(CloseReason::Silent(after)) if *after == 90 * SECOND));
    }
}

#[test]
fn half_a_frame_is_no_sign_of_life() {
    let mut subject = Subject::server();
    // As fast as a frame must be, for longer than nothing may come.
    let frame = Raw::request(OpCode::APPEND, 1).payload(pattern(2_000_000)).bytes();
    for second in frame.chunks(16 * 1024).take(100) {
        subject.receive(second);
        subject.live_through(SECOND);
    }
    assert!(matches!(subject.session.close_reason(), Some(CloseReason::Silent(_))));
}

#[test]
fn calls_in_flight_excuse_silence() {
    let mut server = Subject::server();
    server.receive(&Raw::request(OpCode::FETCH, 1).bytes());
    assert!(server.session.mark_waiting(CallId::FIRST));
    server.live_through(1_000 * SECOND);
    assert!(server.session.close_reason().is_none());
    server
        .session
        .send_response(CallId::FIRST, OpCode::FETCH, true, b"done", &[])
        .unwrap();
    server.write();
    server.live_through(31 * SECOND);
    assert!(matches!(server.session.close_reason(), Some(CloseReason::Silent(_))));

    let mut client = Subject::client().with_calls(OpCode::FETCH, 1);
    client.live_through(1_000 * SECOND);
    assert!(client.session.close_reason().is_none());
}

#[test]
fn an_unanswered_heartbeat_excuses_nothing() {
    let mut subject = Subject::client();
    for round in 0..3 {
        let heartbeat = Outgoing {
            opcode: OpCode::HEARTBEAT,
            header: b"h",
            payload: &[],
            user: round,
            deadline: None,
            receive_charge: 0,
        };
        subject.session.send_request(subject.now, heartbeat).unwrap();
        subject.write();
        subject.live_through(30 * SECOND);
    }
    assert!(matches!(subject.session.close_reason(), Some(CloseReason::Silent(_))));
}

#[test]
fn a_peer_that_takes_no_bytes_is_given_up() {
    let mut subject = Subject::server();
    subject.receive(&Raw::request(OpCode::FETCH, 1).bytes());
    subject
        .session
        .send_response(CallId::FIRST, OpCode::FETCH, false, b"part", &[])
        .unwrap();
    subject.live_through(29 * SECOND);
    subject.session.handle_written(1, subject.now);
    subject.live_through(29 * SECOND);
    assert!(subject.session.close_reason().is_none(), "a byte is progress");
    subject.live_through(SECOND);
    assert!(matches!(subject.session.close_reason(), Some(CloseReason::Stalled(_))));
    assert!(subject.session.is_closed(), "at once: there is nobody to flush to");
}

#[test]
fn timers_never_stand_still() {
    // Every timer at once: `live_through` fails on one that is due again at the moment it was handled.
    let mut subject = Subject::client();
    for user in 0..50 {
        let deadline = Some(subject.now + SECOND * u32::try_from(user).unwrap());
        let request = Outgoing {
            opcode: OpCode::APPEND,
            header: b"h",
            payload: &[],
            user,
            deadline,
            receive_charge: 0,
        };
        subject.session.send_request(subject.now, request).unwrap();
    }
    subject.live_through(300 * SECOND);
    assert!(subject.session.close_reason().is_some());
}

#[test]
fn short_intervals_do_not_make_a_hiccup_deadly() {
    let config = SessionConfig {
        heartbeat_interval: Duration::from_millis(100),
        ..SessionConfig::client()
    };
    let mut subject = Subject::new(config);
    subject.live_through(Duration::from_millis(1_990));
    let due = subject
        .seen()
        .iter()
        .filter(|seen| **seen == Seen::HeartbeatDue)
        .count();
    assert_eq!((due, subject.session.close_reason().is_none()), (19, true));
    subject.live_through(Duration::from_millis(200));
    assert!(matches!(subject.session.close_reason(), Some(CloseReason::Silent(_))));
}
