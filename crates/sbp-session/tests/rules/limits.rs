//! At its limits a server stops reading; it does not err.

use bytes::Bytes;
use sbp_frame::{CallId, OpCode, PayloadPart};
use sbp_session::SessionConfig;

use crate::script::{Raw, Seen, Subject, pattern};

fn id(raw: u32) -> CallId {
    CallId::from_raw(raw).expect("31 bits")
}

fn server(change: impl FnOnce(&mut sbp_session::Limits)) -> Subject {
    let mut config = SessionConfig::server();
    change(&mut config.limits);
    Subject::new(config)
}

/// The requests seen since the last look.
fn requests(subject: &mut Subject) -> Vec<u32> {
    let call = |seen: &Seen| match seen {
        Seen::Request { call, .. } => *call,
        other => panic!("{other:?}"),
    };
    subject.seen().iter().map(call).collect()
}

/// Receives as one read what a socket would have had ready.
fn receive_at_once(subject: &mut Subject, frames: impl IntoIterator<Item = u32>) {
    let bytes: Vec<u8> = frames
        .into_iter()
        .flat_map(|id| Raw::request(OpCode::APPEND, id).bytes())
        .collect();
    subject.receive(&bytes);
}

#[test]
fn requests_beyond_the_count_wait_in_the_receive_block() {
    let mut subject = server(|limits| limits.calls = 10);
    receive_at_once(&mut subject, 1..=25);
    assert_eq!(requests(&mut subject), (1..=10).collect::<Vec<_>>());
    assert!(!subject.session.wants_read());
    for answered in 1..=3 {
        subject
            .session
            .send_response(id(answered), OpCode::APPEND, true, b"done", &[])
            .unwrap();
    }
    assert_eq!(requests(&mut subject), [11, 12, 13], "as many go on as were answered");
    assert!(!subject.session.wants_read());
    (4..=25).for_each(|call| subject.session.send_system_error(call, OpCode::APPEND, b"no"));
    assert_eq!(requests(&mut subject), (14..=23).collect::<Vec<_>>());
    (14..=25).for_each(|call| subject.session.send_system_error(call, OpCode::APPEND, b"no"));
    assert_eq!(requests(&mut subject), [24, 25]);
    assert!(subject.session.wants_read());
}

#[test]
fn a_thousand_and_twenty_four_calls_by_default() {
    let mut subject = Subject::server();
    receive_at_once(&mut subject, 1..=1_100);
    assert_eq!(requests(&mut subject).len(), 1_024);
    assert_eq!(subject.session.peer_calls(), 1_024);
}

#[test]
fn bytes_of_unanswered_requests_count() {
    let mut subject = server(|limits| limits.request_bytes = 10_000);
    let frame = |id| Raw::request(OpCode::APPEND, id).payload(pattern(4_000)).bytes();
    for call in 1..=3 {
        assert!(subject.session.wants_read());
        subject.receive(&frame(call));
    }
    assert!(!subject.session.wants_read(), "12,000 bytes are over 10,000");
    subject
        .session
        .send_response(id(2), OpCode::APPEND, true, b"done", &[])
        .unwrap();
    assert!(subject.session.wants_read());
}

#[test]
fn bytes_of_unwritten_answers_count() {
    let mut subject = server(|limits| limits.answer_bytes = 100_000);
    subject.receive(&Raw::request(OpCode::FETCH, 1).bytes());
    let part = [PayloadPart::Share(Bytes::from(vec![0; 60_000]))];
    subject
        .session
        .send_response(id(1), OpCode::FETCH, false, b"part", &part)
        .unwrap();
    assert!(subject.session.wants_read());
    subject
        .session
        .send_response(id(1), OpCode::FETCH, true, b"part", &part)
        .unwrap();
    assert!(!subject.session.wants_read());
    subject.write();
    assert!(subject.session.wants_read());
}

#[test]
fn a_request_that_waits_counts_in_no_limit_but_its_own() {
    let mut subject = server(|limits| (limits.calls, limits.waits) = (4, 2));
    receive_at_once(&mut subject, 1..=10);
    assert_eq!(requests(&mut subject), [1, 2, 3, 4]);
    assert!(subject.session.mark_waiting(id(1)));
    assert!(subject.session.mark_waiting(id(1)), "twice is once");
    assert!(subject.session.mark_waiting(id(2)));
    assert!(!subject.session.mark_waiting(id(3)), "no more may wait");
    assert!(!subject.session.mark_waiting(id(77)), "unknown");
    assert_eq!((subject.session.waiting(), subject.session.peer_calls()), (2, 2));
    assert_eq!(requests(&mut subject), [5, 6]);
    subject
        .session
        .send_response(id(1), OpCode::FETCH, false, b"part", &[])
        .unwrap();
    assert_eq!(subject.session.waiting(), 2, "it waits until its last frame");
    subject
        .session
        .send_response(id(1), OpCode::FETCH, true, b"rest", &[])
        .unwrap();
    assert_eq!((subject.session.waiting(), subject.session.peer_calls()), (1, 4));
    assert!(subject.session.mark_waiting(id(3)));
}

#[test]
fn a_client_reads_whatever_it_has_to_send() {
    let mut config = SessionConfig::client();
    config.limits.answer_bytes = 1;
    let mut subject = Subject::new(config);
    subject.call(OpCode::APPEND, 1, 0);
    assert!(subject.session.wants_read(), "else both ends could wait for each other");
}

#[test]
fn a_client_hears_no_more_requests_from_a_peer_that_takes_no_refusals() {
    let mut config = SessionConfig::client();
    config.limits.calls = 3;
    let mut subject = Subject::new(config);
    subject.write();
    for call in 1..=3 {
        assert!(subject.session.wants_read());
        receive_at_once(&mut subject, [call]);
        assert!(matches!(subject.seen().as_slice(), [Seen::Reject { raw, .. }] if *raw == call));
        subject.session.send_system_error(call, OpCode::APPEND, b"no");
    }
    assert!(!subject.session.wants_read(), "they would grow for ever");
    subject.write();
    assert!(subject.session.wants_read(), "it has taken them");
    receive_at_once(&mut subject, [4]);
    subject.session.send_system_error(4, OpCode::APPEND, b"no");
    assert!(subject.session.wants_read(), "and counts from the beginning");
}
