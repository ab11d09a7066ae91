//! Calls from request to answer, between two sessions.

use std::time::Duration;

use bytes::Bytes;
use sbp_frame::{CallId, OpCode, PayloadPart};
use sbp_session::{CallFailure, CloseReason, Event, Outgoing, SendError, Session, SessionConfig};

use crate::{
    pair::{Pair, events, seen},
    script::{Raw, Seen, Subject},
};

#[test]
fn a_call_carries_everything_there_and_back() {
    let mut pair = Pair::new();
    assert_eq!(seen(&mut pair.client), [Seen::HeartbeatDue]);
    let large = Bytes::from(vec![9; 100_000]);
    let request = Outgoing {
        opcode: OpCode::APPEND,
        header: b"ask",
        payload: &[PayloadPart::Copy(b"small"), PayloadPart::Share(large.clone())],
        user: 77,
        deadline: None,
        receive_charge: 0,
    };
    let id = pair.client.send_request(pair.now, request).unwrap();
    pair.carry();
    let events = events(&mut pair.server);
    let [Event::Request(frame)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(
        (frame.opcode, frame.call_id, &frame.header[..]),
        (OpCode::APPEND, id, &b"ask"[..])
    );
    assert_eq!(frame.payload.clone().into_contiguous(), [b"small", &large[..]].concat());
    assert_eq!(pair.server.peer_calls(), 1);

    pair.server
        .send_response(id, OpCode::APPEND, false, b"part", &[PayloadPart::Copy(b"data")])
        .unwrap();
    pair.server
        .send_response(id, OpCode::APPEND, true, b"done", &[])
        .unwrap();
    pair.carry();
    let response = |header: &[u8], payload: &'static [u8], end| Seen::Response {
        user: 77,
        header: header.to_vec(),
        payload: Bytes::from_static(payload),
        system_error: false,
        end,
    };
    assert_eq!(
        seen(&mut pair.client),
        [response(b"part", b"data", false), response(b"done", b"", true)]
    );
    assert_eq!((pair.client.own_calls(), pair.server.peer_calls()), (0, 0));
    let unknown = pair.server.send_response(id, OpCode::APPEND, true, b"twice", &[]);
    assert_eq!(unknown, Err(SendError::UnknownCall(id)), "END once");
}

#[test]
fn many_calls_are_answered_in_any_order() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    let ids: Vec<_> = (0..1_000).map(|user| pair.call(OpCode::FETCH, user)).collect();
    assert!(ids.is_sorted(), "ids grow");
    pair.carry();
    assert_eq!(events(&mut pair.server).len(), 1_000);
    for step in 0..1_000_usize {
        let id = ids[step * 617 % 1_000];
        pair.server
            .send_response(id, OpCode::FETCH, true, b"done", &[])
            .unwrap();
    }
    pair.carry();
    let users: Vec<_> = events(&mut pair.client)
        .into_iter()
        .map(|event| match event {
            Event::Response { user, end: true, .. } => user as usize,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(users, (0..1_000).map(|step| step * 617 % 1_000).collect::<Vec<_>>());
}

#[test]
fn either_side_may_ping() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    pair.client.send_ping(pair.now, 1, None).unwrap();
    pair.server.send_ping(pair.now, 2, None).unwrap();
    pair.pass(Duration::from_millis(30));
    pair.carry();
    for (session, expected) in [(&mut pair.client, 1), (&mut pair.server, 2)] {
        let [Event::Pong { user, rtt }] = events(session)[..] else {
            panic!("a PONG")
        };
        assert_eq!((user, rtt), (expected, Duration::from_millis(30)));
    }
}

#[test]
fn a_system_error_ends_the_request_it_answers() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    let id = pair.call(OpCode::APPEND, 5);
    pair.carry();
    events(&mut pair.server);
    pair.server.send_system_error(id.raw(), OpCode::APPEND, b"no");
    assert_eq!(pair.server.peer_calls(), 0);
    pair.carry();
    let [
        Seen::Response {
            user: 5,
            system_error: true,
            end: true,
            ..
        },
    ] = seen(&mut pair.client)[..]
    else {
        panic!("a system error");
    };
}

#[test]
fn a_deadline_fails_the_call_and_leaves_an_orphan() {
    let mut pair = Pair::new();
    events(&mut pair.client);
    let mut send = |user, seconds| {
        let deadline = Some(pair.now + Duration::from_secs(seconds));
        let request = Outgoing {
            opcode: OpCode::APPEND,
            header: b"ask",
            payload: &[],
            user,
            deadline,
            receive_charge: 0,
        };
        pair.client.send_request(pair.now, request).unwrap()
    };
    let (late, soon) = (send(1, 20), send(2, 5));
    pair.carry();
    events(&mut pair.server);
    assert_eq!(pair.client.poll_timeout(), Some(pair.now + Duration::from_secs(5)));
    pair.pass(Duration::from_secs(5));
    let failed = |user| Seen::Failed {
        user,
        failure: CallFailure::DeadlineExceeded,
        bytes_sent: true,
    };
    assert_eq!(seen(&mut pair.client), [failed(2)]);
    assert_eq!(pair.client.poll_timeout(), Some(pair.now + Duration::from_secs(15)));
    for id in [soon, late] {
        pair.server
            .send_response(id, OpCode::APPEND, true, b"done", &[])
            .unwrap();
    }
    pair.carry();
    let [Seen::Response { user: 1, .. }] = seen(&mut pair.client)[..] else {
        panic!("only the live one")
    };
    assert_eq!(
        (pair.client.stats().late_answers, pair.client.stats().discarded),
        (1, 0)
    );
}

#[test]
fn too_many_orphans_for_too_long_close_the_connection() {
    let mut subject = Subject::client();
    let ids: Vec<_> = (0..1_026).map(|user| subject.call(OpCode::APPEND, user, 0)).collect();
    ids.iter().take(1_024).for_each(|id| subject.session.cancel(*id));
    subject.pass(Duration::from_secs(2));
    assert_eq!(subject.seen(), [], "as many as are allowed");
    subject.session.cancel(ids[1_024]);
    subject.pass(Duration::from_millis(900));
    subject.receive(&Raw::response(OpCode::APPEND, ids[0].raw()).bytes());
    subject.pass(Duration::from_secs(5));
    assert_eq!(subject.seen(), [], "not for long enough");
    subject.session.cancel(ids[1_025]);
    subject.pass(Duration::from_secs(1));
    assert!(matches!(
        subject.session.close_reason(),
        Some(CloseReason::TooManyOrphans)
    ));
}

#[test]
fn ids_are_never_used_again() {
    let last = CallId::LAST;
    let first_call_id = CallId::from_raw(last.raw() - 1).unwrap();
    let mut subject = Subject::new(SessionConfig {
        first_call_id,
        ..SessionConfig::client()
    });
    assert!(!subject.session.is_going_away());
    assert_eq!(subject.call(OpCode::APPEND, 1, 0), first_call_id);
    assert_eq!(subject.call(OpCode::APPEND, 2, 0), last);
    let request = Outgoing {
        opcode: OpCode::APPEND,
        header: b"h",
        payload: &[],
        user: 3,
        deadline: None,
        receive_charge: 0,
    };
    assert_eq!(
        subject.session.send_request(subject.now, request),
        Err(SendError::CallIdsExhausted)
    );
    assert!(subject.session.is_going_away(), "the next connection is due");
    assert!(!subject.session.is_closed());
}

#[test]
fn what_cannot_be_sent_is_refused_here() {
    let mut subject = Subject::client();
    let now = subject.now;
    let mut send = |header: &[u8], payload: &[PayloadPart<'_>]| {
        let request = Outgoing {
            opcode: OpCode::APPEND,
            header,
            payload,
            user: 0,
            deadline: None,
            receive_charge: 0,
        };
        subject.session.send_request(now, request)
    };
    let long = vec![0; (1 << 20) + 1];
    assert!(matches!(send(&long, &[]), Err(SendError::HeaderTooLarge { .. })));
    let most = Bytes::from(vec![0; 16 << 20]);
    assert!(matches!(
        send(b"h", &[PayloadPart::Share(most)]),
        Err(SendError::FrameTooLarge(_))
    ));
    assert_eq!(send(b"h", &[]), Ok(CallId::FIRST), "a refused request takes no id");
}

#[test]
fn calls_in_flight_are_limited() {
    let mut config = SessionConfig::client();
    config.limits.own_calls = 3;
    let mut subject = Subject::new(config);
    for user in 0..3 {
        subject.call(OpCode::APPEND, user, 0);
    }
    let request = Outgoing {
        opcode: OpCode::APPEND,
        header: b"h",
        payload: &[],
        user: 3,
        deadline: None,
        receive_charge: 0,
    };
    assert_eq!(
        subject.session.send_request(subject.now, request.clone()),
        Err(SendError::TooManyCalls)
    );
    let heartbeat = Outgoing {
        opcode: OpCode::HEARTBEAT,
        ..request
    };
    assert!(
        subject.session.send_request(subject.now, heartbeat).is_ok(),
        "a heartbeat always goes"
    );
}

#[test]
fn whether_bytes_were_sent_is_told_call_by_call() {
    let mut subject = Subject::client();
    for user in 0..3 {
        subject.call(OpCode::APPEND, user, 0);
    }
    // One byte of the second frame reaches the socket.
    let first = subject.session.transmit_len() / 3;
    subject.session.handle_written(first + 1, subject.now);
    subject
        .session
        .handle_transport_error(std::io::ErrorKind::ConnectionReset.into(), subject.now);
    let failed = |user, bytes_sent| Seen::Failed {
        user,
        failure: CallFailure::ConnectionClosed,
        bytes_sent,
    };
    let seen = subject.seen();
    assert_eq!(seen[..3], [failed(0, true), failed(1, true), failed(2, false)]);
    assert!(subject.session.is_closed());
    assert_eq!(subject.session.transmit_len(), 0, "what was not sent never will be");
    let request = Outgoing {
        opcode: OpCode::APPEND,
        header: b"h",
        payload: &[],
        user: 3,
        deadline: None,
        receive_charge: 0,
    };
    assert_eq!(
        subject.session.send_request(subject.now, request),
        Err(SendError::Closed)
    );
}

#[test]
fn a_call_that_will_still_be_written_counts_as_sent() {
    let mut subject = Subject::client();
    subject.call(OpCode::APPEND, 1, 0);
    subject.session.close();
    let failed = Seen::Failed {
        user: 1,
        failure: CallFailure::ConnectionClosed,
        bytes_sent: true,
    };
    assert_eq!(subject.seen().first(), Some(&failed));
    assert!(!subject.session.is_closed(), "not before it is written");
    subject.write();
    assert!(subject.session.is_closed());
}

#[test]
fn a_session_can_be_made_for_either_end() {
    let now = std::time::Instant::now();
    let mut server = Session::new(SessionConfig::server(), now);
    assert!(server.poll_event().is_none(), "a server sends no heartbeat");
    assert!(server.wants_read() && !server.is_closed() && !server.is_going_away());
}
