//! GOAWAY in both directions, and the ends of a connection.

use std::time::Duration;

use bytes::Bytes;
use sbp_frame::{CallId, OpCode};
use sbp_session::{CallFailure, CloseReason, Event, Outgoing, RejectReason, SendError};

use crate::{
    pair::{Pair, events, seen},
    script::{Raw, Seen, Subject},
};

#[test]
fn a_server_that_goes_away_finishes_what_was_started() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    let ids: Vec<_> = (1..=3).map(|user| pair.call(OpCode::APPEND, user)).collect();
    pair.carry();
    events(&mut pair.server);
    // The third is on its way when the server says that it goes.
    let late = pair.call(OpCode::APPEND, 4);
    pair.server.go_away(b"bye", pair.now);
    pair.carry();
    let not_started = Seen::Failed {
        user: 4,
        failure: CallFailure::NotStarted,
        bytes_sent: true,
    };
    let announced = Seen::PeerGoAway {
        last_started: ids[2].raw(),
        header: b"bye".to_vec(),
    };
    assert_eq!(seen(&mut pair.client), [announced, not_started]);
    let refused = Seen::Reject {
        raw: late.raw(),
        reason: RejectReason::GoingAway,
        must_answer: false,
    };
    assert_eq!(seen(&mut pair.server), [refused]);
    let request = Outgoing {
        opcode: OpCode::APPEND,
        header: b"h",
        payload: &[],
        user: 5,
        deadline: None,
        receive_charge: 0,
    };
    assert_eq!(pair.client.send_request(pair.now, request), Err(SendError::GoingAway));
    assert!(pair.client.is_going_away());

    for id in ids {
        assert!(!pair.server.is_closed() && !pair.client.is_closed());
        pair.server
            .send_response(id, OpCode::APPEND, true, b"done", &[])
            .unwrap();
        pair.carry();
    }
    assert!(pair.server.is_closed() && pair.client.is_closed());
    assert!(matches!(pair.server.close_reason(), Some(CloseReason::WentAway)));
    let at_client = seen(&mut pair.client);
    assert_eq!(
        at_client
            .iter()
            .filter(|seen| matches!(seen, Seen::Response { .. }))
            .count(),
        3
    );
    assert!(matches!(at_client.last(), Some(Seen::Closing(_))));
}

#[test]
fn a_request_that_is_half_here_when_the_server_goes_is_not_started() {
    let late = Raw::request(OpCode::APPEND, 6).payload(*b"payload").bytes();
    for cut in [1, 16, late.len() - 1] {
        let mut subject = Subject::server();
        subject.receive(&Raw::request(OpCode::APPEND, 5).bytes());
        subject.seen();
        subject.receive(&late[..cut]);
        subject.session.go_away(b"bye", subject.now);
        assert_eq!(subject.sent().pop().map(|frame| frame.call_id.raw()), Some(5));
        subject.receive(&late[cut..]);
        let refused = Seen::Reject {
            raw: 6,
            reason: RejectReason::GoingAway,
            must_answer: false,
        };
        assert_eq!(
            subject.seen(),
            [refused],
            "the peer was told that it may send it elsewhere"
        );
    }
}

#[test]
fn a_client_that_goes_away_is_answered_first() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    let id = pair.call(OpCode::FETCH, 1);
    pair.client.go_away(b"bye", pair.now);
    pair.carry();
    let at_server = seen(&mut pair.server);
    assert!(matches!(
        at_server[..],
        [Seen::Request { .. }, Seen::PeerGoAway { last_started: 0, .. }]
    ));
    assert!(!pair.server.is_closed());
    pair.server
        .send_response(id, OpCode::FETCH, true, b"done", &[])
        .unwrap();
    pair.carry();
    assert!(matches!(
        seen(&mut pair.client)[..],
        [Seen::Response { user: 1, .. }, Seen::Closing(_)]
    ));
    assert!(pair.server.is_closed() && pair.client.is_closed());
}

#[test]
fn an_idle_connection_goes_at_once() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    pair.server.go_away(b"bye", pair.now);
    pair.carry();
    assert!(pair.server.is_closed() && pair.client.is_closed());
}

#[test]
fn a_heartbeat_in_flight_holds_nobody_up() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    pair.call(OpCode::HEARTBEAT, 1);
    pair.client.go_away(b"bye", pair.now);
    let failed = Seen::Failed {
        user: 1,
        failure: CallFailure::ConnectionClosed,
        bytes_sent: true,
    };
    assert_eq!(seen(&mut pair.client).first(), Some(&failed));
}

#[test]
fn grace_ends() {
    let mut subject = Subject::server();
    subject.receive(&Raw::request(OpCode::APPEND, 5).bytes());
    subject.session.go_away(b"bye", subject.now);
    subject.session.go_away(b"again", subject.now);
    assert_eq!(subject.sent().len(), 1, "a second one is not sent");
    subject.pass(Duration::from_secs(9));
    assert!(subject.session.close_reason().is_none());
    assert_eq!(
        subject.session.poll_timeout(),
        Some(subject.now + Duration::from_secs(1))
    );
    subject.pass(Duration::from_secs(1));
    assert!(matches!(
        subject.session.close_reason(),
        Some(CloseReason::GraceExpired)
    ));
    let five = CallId::from_raw(5).unwrap();
    let late = subject.session.send_response(five, OpCode::APPEND, true, b"late", &[]);
    assert_eq!(late, Err(SendError::Closed));
}

#[test]
fn pings_are_answered_while_going() {
    let mut subject = Subject::server();
    subject.receive(&Raw::request(OpCode::APPEND, 5).bytes());
    subject.session.go_away(b"bye", subject.now);
    subject.sent();
    subject.receive(&Raw::request(OpCode::PING, 6).bytes());
    assert_eq!(subject.sent().len(), 1);
}

#[test]
fn go_away_names_the_highest_request_started() {
    let mut subject = Subject::server();
    for id in [3, 9, 4] {
        subject.receive(&Raw::request(OpCode::APPEND, id).bytes());
    }
    subject.receive(&Raw::request(OpCode::APPEND, 12).format(5).bytes());
    subject.session.go_away(b"bye", subject.now);
    let go_away = subject.sent().pop().unwrap();
    assert_eq!(go_away.call_id.raw(), 9, "a refused request was not started");
    assert_eq!((go_away.header, go_away.payload.len()), (Bytes::from_static(b"bye"), 0));
}

#[test]
fn orphans_behind_the_last_started_are_forgotten() {
    let mut subject = Subject::client();
    let ids: Vec<_> = (0..3).map(|user| subject.call(OpCode::APPEND, user, 0)).collect();
    subject.session.cancel(ids[2]);
    subject.receive(&Raw::request(OpCode::GOAWAY, ids[0].raw()).bytes());
    let failed = Seen::Failed {
        user: 1,
        failure: CallFailure::NotStarted,
        bytes_sent: true,
    };
    let announced = Seen::PeerGoAway {
        last_started: ids[0].raw(),
        header: b"header".to_vec(),
    };
    assert_eq!(
        subject.seen(),
        [announced, failed],
        "nobody waits for the cancelled one"
    );
    subject.receive(&Raw::response(OpCode::APPEND, ids[0].raw()).bytes());
    assert!(matches!(
        subject.seen()[..],
        [Seen::Response { user: 0, .. }, Seen::Closing(_)]
    ));
}

#[test]
fn a_server_flushes_after_the_peer_has_closed() {
    let mut subject = Subject::server();
    subject.receive(&Raw::request(OpCode::APPEND, 1).bytes());
    subject
        .session
        .send_response(CallId::FIRST, OpCode::APPEND, true, b"done", &[])
        .unwrap();
    subject.session.handle_eof(subject.now);
    assert!(!subject.session.is_closed() && !subject.session.wants_read());
    assert_eq!(
        subject.session.poll_timeout(),
        Some(subject.now + Duration::from_secs(1))
    );
    assert_eq!(subject.sent().len(), 1);
    assert!(subject.session.is_closed());
}

#[test]
fn a_flush_that_does_not_end_is_cut() {
    let mut subject = Subject::server();
    subject.receive(&Raw::request(OpCode::APPEND, 1).bytes());
    subject
        .session
        .send_response(CallId::FIRST, OpCode::APPEND, true, b"done", &[])
        .unwrap();
    subject.session.close();
    subject.pass(Duration::from_secs(1));
    assert!(subject.session.is_closed());
    assert_eq!(subject.session.transmit_len(), 0);
    assert_eq!(subject.session.poll_timeout(), None);
}

#[test]
fn nothing_is_looked_at_after_the_end() {
    let mut subject = Subject::server();
    let frame = Raw::request(OpCode::APPEND, 1).bytes();
    subject.session.close();
    subject.seen();
    {
        use bytes::BufMut;
        let mut buffer = subject.session.recv_buffer();
        buffer.put_slice(&frame);
    }
    subject.session.handle_received(frame.len(), subject.now);
    subject.session.handle_eof(subject.now);
    subject
        .session
        .handle_transport_error(std::io::ErrorKind::BrokenPipe.into(), subject.now);
    subject.session.go_away(b"bye", subject.now);
    subject.session.close();
    assert_eq!(subject.seen(), []);
    assert!(
        matches!(subject.session.close_reason(), Some(CloseReason::Local)),
        "the first reason counts"
    );
    let ended = events(&mut subject.session);
    assert!(ended.is_empty() && !matches!(ended.first(), Some(Event::Request(_))));
}

#[test]
fn the_end_does_not_depend_on_what_a_read_brings() {
    let go_away = Raw::request(OpCode::GOAWAY, 0).bytes();
    let late = Raw::request(OpCode::APPEND, 1).bytes();
    let mut together = Subject::server();
    together.receive(&[go_away.as_slice(), &late].concat());
    let mut apart = Subject::server();
    apart.receive(&go_away);
    apart.receive(&late);
    let seen = together.seen();
    assert!(
        matches!(seen[..], [Seen::PeerGoAway { .. }, Seen::Closing(_)]),
        "{seen:?}"
    );
    assert_eq!(apart.seen(), seen);
}

/// Found by fuzzing: a peer may refuse each request that it did not start, and is not to be taken for a bad one.
#[test]
fn refusals_of_what_was_not_started_cost_nothing() {
    let mut pair = Pair::new();
    let started = pair.call(OpCode::APPEND, 0);
    pair.carry();
    for user in 1..=200 {
        pair.call(OpCode::APPEND, user);
    }
    pair.server.go_away(b"", pair.now);
    pair.carry();
    let is_failed = |event: &Event| {
        matches!(
            event,
            Event::CallFailed {
                failure: CallFailure::NotStarted,
                ..
            }
        )
    };
    assert_eq!(
        events(&mut pair.client).iter().filter(|event| is_failed(event)).count(),
        200
    );

    for event in events(&mut pair.server) {
        if let Event::Reject {
            raw_call_id, opcode, ..
        } = event
        {
            pair.server.send_system_error(raw_call_id, opcode, b"no");
        }
    }
    let answered = pair.server.send_response(started, OpCode::APPEND, true, b"done", &[]);
    assert_eq!(answered, Ok(()));
    let sent = pair.server.stats().frames_out;
    pair.carry();
    let heard = events(&mut pair.client);
    assert!(
        sent > 200
            && heard
                .iter()
                .any(|event| matches!(event, Event::Response { user: 0, end: true, .. }))
    );
    assert_eq!(
        pair.client.stats().discarded,
        0,
        "refusals were taken for stray answers"
    );
}
