//! A server that has to know who its peer is: what it serves until then, for how long, and what that may cost.

use std::time::Duration;

use sbp_frame::{CallId, OpCode};
use sbp_session::{Authentication, CloseReason, RejectReason, Session, SessionConfig};

use crate::{
    pair::{Pair, seen},
    script::{Raw, Seen, Subject},
};

fn demanding() -> SessionConfig {
    SessionConfig {
        authentication: Some(Authentication {
            goodbye: b"who are you".as_slice().into(),
            ..Authentication::default()
        }),
        ..SessionConfig::server()
    }
}

fn refused(raw: u32, reason: RejectReason) -> Seen {
    Seen::Reject {
        raw,
        reason,
        must_answer: true,
    }
}

fn calls_of(seen: &[Seen]) -> Vec<u32> {
    let call = |seen: &Seen| match seen {
        Seen::Request { call, .. } => Some(*call),
        _ => None,
    };
    seen.iter().filter_map(call).collect()
}

/// Every operation but HEARTBEAT and PING is refused, whatever it brings, and the body is never read.
#[test]
fn before_it_is_known_a_peer_may_greet_and_ping_alone() {
    for opcode in (0_u16..=0x4002).map(OpCode).filter(|opcode| opcode.is_known()) {
        if [OpCode::HEARTBEAT, OpCode::PING, OpCode::GOAWAY].contains(&opcode) {
            continue;
        }
        let mut subject = Subject::new(demanding());
        subject.receive(&Raw::request(opcode, 7).payload(vec![1; 60_000]).bytes());
        assert_eq!(subject.seen(), [refused(7, RejectReason::NotAuthenticated)], "{opcode}");
        assert_eq!(subject.session.held_bytes(), 0, "{opcode}: nothing of it is kept");
    }
    let mut subject = Subject::new(demanding());
    subject.receive(&Raw::request(OpCode::PING, 8).bytes());
    assert_eq!(subject.sent().len(), 1, "a PING is answered");
    subject.receive(&Raw::request(OpCode::HEARTBEAT, 9).bytes());
    assert_eq!(calls_of(&subject.seen()), [9]);
    assert!(!subject.session.is_authenticated());
}

/// What a client sends behind its first HEARTBEAT waits for the verdict, so that being known costs no round trip.
#[test]
fn what_comes_behind_the_heartbeat_waits_for_the_verdict() {
    let behind = [
        Raw::request(OpCode::HEARTBEAT, 1).bytes(),
        Raw::request(OpCode::APPEND, 2).bytes(),
        Raw::request(OpCode::FETCH, 3).bytes(),
    ]
    .concat();
    for accepted in [true, false] {
        let mut subject = Subject::new(demanding());
        subject.receive(&behind);
        assert_eq!(calls_of(&subject.seen()), [1], "the HEARTBEAT alone");
        assert!(!subject.session.wants_read());
        if accepted {
            subject.session.set_authenticated();
        }
        let call = CallId::from_raw(1).expect("a call id");
        subject
            .session
            .send_response(call, OpCode::HEARTBEAT, true, b"hello", &[])
            .expect("the call is in flight");
        let seen = subject.seen();
        if accepted {
            assert_eq!(calls_of(&seen), [2, 3]);
        } else {
            let not = RejectReason::NotAuthenticated;
            assert_eq!(seen, [refused(2, not), refused(3, not)]);
        }
    }
}

#[test]
fn a_heartbeat_before_it_is_known_is_short() {
    let most = Authentication::default().heartbeat;
    for (header, payload, passes) in [(most, 0, true), (most + 1, 0, false), (10, most - 9, false)] {
        let mut subject = Subject::new(demanding());
        let frame = Raw::request(OpCode::HEARTBEAT, 1)
            .header(vec![7; header as usize])
            .payload(vec![7; payload as usize]);
        subject.receive(&frame.bytes());
        let seen = subject.seen();
        if passes {
            assert_eq!(calls_of(&seen), [1]);
        } else {
            let (length, limit) = (header + payload, most);
            assert_eq!(seen, [refused(1, RejectReason::HeaderTooLarge { length, limit })]);
        }
    }
}

/// A frame with this id.
type Shape = Box<dyn Fn(u32) -> Raw>;

/// The kinds of frames that somebody may send who has not said who he is. Each is answered, refused, discarded or skipped
/// a few times, and whoever goes on is cut: nobody keeps a server busy for as long as he may take to say who he is.
#[test]
fn who_is_not_known_sends_few_frames_of_any_kind() {
    let header = Authentication::default().heartbeat as usize;
    let request = |opcode| move |call| Raw::request(opcode, call);
    let shapes: [(&str, Shape); 12] = [
        ("other requests", Box::new(request(OpCode::APPEND))),
        ("HEARTBEATs that are not believed", Box::new(request(OpCode::HEARTBEAT))),
        (
            "HEARTBEATs that are too long",
            Box::new(move |call| {
                Raw::request(OpCode::HEARTBEAT, call)
                    .header(vec![7; header])
                    .payload([1])
            }),
        ),
        (
            "HEARTBEATs without a header",
            Box::new(|call| Raw::request(OpCode::HEARTBEAT, call).header([])),
        ),
        (
            "HEARTBEATs of another format",
            Box::new(|call| Raw::request(OpCode::HEARTBEAT, call).format(2)),
        ),
        (
            "PINGs that are too long",
            Box::new(|call| Raw::request(OpCode::PING, call).payload(vec![1; 1_100])),
        ),
        (
            "ids with the top bit set",
            Box::new(|call| Raw::request(OpCode::HEARTBEAT, call | 1 << 31)),
        ),
        ("unknown operations", Box::new(request(OpCode(0x7777)))),
        (
            "answers to nothing",
            Box::new(|call| Raw::response(OpCode::HEARTBEAT, call)),
        ),
        (
            "another magic byte",
            Box::new(|call| Raw {
                // The first frame is one of the protocol, else the connection is closed at once.
                magic: if call == 1 { 23 } else { 22 },
                ..Raw::request(OpCode::APPEND, call)
            }),
        ),
        (
            "tiny frames",
            Box::new(|call| Raw::request(OpCode::APPEND, call).header([])),
        ),
        (
            "large frames",
            Box::new(|call| Raw::request(OpCode::FETCH, call).payload(vec![1; 1 << 20])),
        ),
    ];
    for (what, shape) in shapes {
        let mut subject = Subject::new(demanding());
        let mut sent = 0;
        while subject.session.close_reason().is_none() {
            sent += 1;
            assert!(sent <= 17, "{what}: {sent} frames were taken");
            subject.receive(&shape(sent).bytes());
            answer_all(&mut subject);
        }
        let bytes = subject.session.stats().bytes_in;
        assert!(bytes <= 66 << 10, "{what}: {bytes} bytes were taken");
        let reason = subject.session.close_reason();
        assert!(
            matches!(reason, Some(CloseReason::TooMuchUnauthenticated { .. })),
            "{what}: {reason:?}"
        );
        let last = subject.sent().pop().expect("a last word");
        assert_eq!(
            (last.opcode, &last.header[..]),
            (OpCode::GOAWAY, &b"who are you"[..]),
            "{what}"
        );
        assert!(subject.session.is_closed(), "{what}");
        assert_eq!(subject.session.held_bytes(), 0, "{what}");
    }
}

/// Answers everything with a refusal, as a server does that believes nobody.
fn answer_all(subject: &mut Subject) {
    for seen in subject.seen() {
        match seen {
            // The frames of these tests cannot be read with the top bit set.
            Seen::Reject { raw, .. } => subject
                .session
                .send_system_error(raw & !(1 << 31), OpCode::APPEND, b"no"),
            Seen::Request { call, opcode, .. } => {
                let call = CallId::from_raw(call).expect("a call id");
                let sent = subject.session.send_response(call, opcode, true, b"no", &[]);
                sent.expect("the call is in flight");
            }
            _ => {}
        }
    }
    subject.write();
}

/// A farewell may have a body too, which nobody waits for that is large.
#[test]
fn the_goodbye_of_who_is_not_known_is_short() {
    for (payload, is_cut) in [(1_000, false), (15 << 20, true)] {
        let mut subject = Subject::new(demanding());
        let bytes = Raw::request(OpCode::GOAWAY, 0).payload(vec![1; payload]).bytes();
        subject.receive(&bytes);
        let reason = subject.session.close_reason();
        let cut = matches!(reason, Some(CloseReason::TooMuchUnauthenticated { .. }));
        assert_eq!(cut, is_cut, "{reason:?}");
        assert!(subject.session.stats().bytes_in < 4096);
    }
}

/// PINGs are answered as often as anybody's, and count by their bytes alone.
#[test]
fn pings_before_it_is_known_are_bounded_by_their_bytes() {
    for (payload, most) in [(0, 200), (900, 80)] {
        let mut subject = Subject::new(demanding());
        let mut sent = 0;
        while subject.session.close_reason().is_none() && sent < most {
            sent += 1;
            subject.receive(&Raw::request(OpCode::PING, sent).payload(vec![1; payload]).bytes());
            subject.write();
        }
        let is_cut = subject.session.close_reason().is_some();
        assert_eq!(is_cut, payload > 0, "{sent} PINGs of {payload} bytes");
    }
}

/// What a peer sent before it became known counts for nothing afterwards.
#[test]
fn who_becomes_known_may_send_what_others_may() {
    let mut subject = Subject::new(demanding());
    for call in 1..16 {
        subject.receive(&Raw::request(OpCode::APPEND, call).bytes());
        answer_all(&mut subject);
    }
    subject.receive(&Raw::request(OpCode::HEARTBEAT, 16).bytes());
    assert_eq!(calls_of(&subject.seen()), [16]);
    subject.session.set_authenticated();
    for call in 17..100 {
        subject.receive(&Raw::request(OpCode::APPEND, call).payload(vec![1; 10_000]).bytes());
        assert_eq!(calls_of(&subject.seen()), [call]);
    }
}

/// Whatever such a peer does meanwhile, it is gone when its time is up.
#[test]
fn who_is_not_known_in_time_is_gone() {
    let within = Authentication::default().within;
    let almost = within - Duration::from_millis(1);
    type Act = fn(&mut Subject);
    let acts: [(&str, Act, bool); 4] = [
        ("says nothing", |_| {}, false),
        (
            "pings",
            |subject| subject.receive(&Raw::request(OpCode::PING, 1).bytes()),
            true,
        ),
        (
            "asks",
            |subject| subject.receive(&Raw::request(OpCode::FETCH, 1).bytes()),
            true,
        ),
        (
            "says the wrong thing",
            |subject| {
                subject.receive(&Raw::request(OpCode::HEARTBEAT, 1).bytes());
                let call = CallId::from_raw(1).expect("a call id");
                subject
                    .session
                    .send_response(call, OpCode::HEARTBEAT, true, b"no", &[])
                    .expect("the call is in flight");
            },
            true,
        ),
    ];
    for (what, act, is_told) in acts {
        let mut subject = Subject::new(demanding());
        subject.pass(Duration::from_secs(1));
        act(&mut subject);
        subject.sent();
        subject.live_through(almost - Duration::from_secs(1));
        assert!(subject.session.close_reason().is_none(), "{what}: too early");
        subject.live_through(Duration::from_millis(1));
        let reason = subject.session.close_reason();
        assert!(
            matches!(reason, Some(CloseReason::NotAuthenticated(after)) if *after == within),
            "{what}: {reason:?}"
        );
        let goodbyes: Vec<_> = subject
            .sent()
            .into_iter()
            .map(|frame| (frame.opcode, frame.header))
            .collect();
        if is_told {
            assert_eq!(goodbyes, [(OpCode::GOAWAY, "who are you".into())], "{what}");
        } else {
            assert_eq!(goodbyes, [], "{what}");
        }
        subject.live_through(Duration::from_secs(2));
        assert!(subject.session.is_closed(), "{what}");
    }
}

/// A peer that asks and takes no answer: the server stops reading, and neither answers nor frames pile up.
#[test]
fn answers_to_an_unknown_peer_do_not_pile_up() {
    let mut config = demanding();
    if let Some(demanded) = &mut config.authentication {
        demanded.frames = u16::MAX;
        demanded.bytes = u32::MAX;
    }
    let mut subject = Subject::new(config);
    let mut asked = 0;
    while subject.session.wants_read() && asked < 10_000 {
        asked += 1;
        subject.receive(&Raw::request(OpCode::APPEND, asked).bytes());
        for seen in subject.seen() {
            let Seen::Reject { raw, .. } = seen else { continue };
            subject.session.send_system_error(raw, OpCode::APPEND, &[7; 64]);
        }
    }
    assert!(asked < 100, "{asked} requests were read");
    assert!(
        subject.session.held_bytes() < 4096,
        "{} bytes",
        subject.session.held_bytes()
    );
}

/// A server that demands nothing, and a client whatever is configured, serve as ever.
#[test]
fn nothing_changes_where_nothing_is_demanded() {
    assert!(Subject::server().session.is_authenticated());
    let config = SessionConfig {
        authentication: Some(Authentication::default()),
        ..SessionConfig::client()
    };
    assert!(Subject::new(config).session.is_authenticated());
    let mut subject = Subject::server();
    subject.session.set_authenticated();
    subject.receive(&Raw::request(OpCode::APPEND, 1).bytes());
    assert_eq!(calls_of(&subject.seen()), [1]);
}

/// Two real sessions: a client that sends its call right behind its HEARTBEAT is served in the first round trip, and the
/// connection outlives the time that strangers get.
#[test]
fn a_known_client_is_served_in_the_first_round_trip() {
    let mut pair = Pair::new();
    pair.server = Session::new(demanding(), pair.now);
    pair.call(OpCode::HEARTBEAT, 1);
    pair.call(OpCode::FETCH, 2);
    pair.carry();
    assert_eq!(calls_of(&seen(&mut pair.server)), [1]);
    pair.server.set_authenticated();
    let greeted = CallId::from_raw(1).expect("a call id");
    pair.server
        .send_response(greeted, OpCode::HEARTBEAT, true, b"hello", &[])
        .expect("the call is in flight");
    assert_eq!(calls_of(&seen(&mut pair.server)), [2]);
    pair.pass(Authentication::default().within * 2);
    assert!(pair.server.close_reason().is_none());
}
