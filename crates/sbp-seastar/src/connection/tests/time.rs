//! What happens when time passes.

use super::*;

#[test]
fn a_call_without_a_reply_fails_at_its_deadline() {
    let now = Instant::now();
    let (mut client, mut server) = pair(&[], now);
    client.call(1, &Bytes::new(), now + 5 * SECOND, 1, now).unwrap();
    client.call(1, &Bytes::new(), now + SECOND, 2, now).unwrap();
    let called = deliver(&mut client, &mut server, now);
    assert_eq!(client.poll_timeout(), Some(now + SECOND));
    client.handle_timeout(now + SECOND);
    let failed = Event::CallFailed {
        user: 2,
        failure: CallFailure::DeadlineExceeded,
        bytes_sent: true,
    };
    assert_eq!(events(&mut client), [failed]);
    assert_eq!(client.own_calls(), 1);
    // What comes too late is nobody's; and the server does not even send it, once the client has stopped waiting.
    let [
        Event::Called {
            call: first,
            due: Some(due),
            ..
        },
        Event::Called { call: late, .. },
    ] = called[..]
    else {
        panic!("{called:?}");
    };
    assert_eq!(due, now + 5 * SECOND);
    server.reply(late, Ok(&Bytes::new()), now + SECOND).unwrap();
    server.reply(first, Ok(&Bytes::new()), now + 6 * SECOND).unwrap();
    assert_eq!((server.stats().late_replies, server.peer_calls()), (1, 0));
    assert_eq!(deliver(&mut server, &mut client, now + SECOND), []);
    assert_eq!(client.stats().unknown_responses, 1);
}

#[test]
fn timeouts_are_what_is_left_and_never_nothing_nor_more_than_a_day() {
    let now = Instant::now();
    for (left, said) in [
        (Duration::ZERO, 1),
        (Duration::from_micros(10), 1),
        (SECOND, 1_000),
        (Duration::from_secs(1_000_000), 24 * 3_600 * 1_000),
    ] {
        let (mut client, _) = pair(&[], now);
        client.call(1, &Bytes::new(), now + left, 1, now).unwrap();
        let bytes = transmitted(&mut client, now);
        assert_eq!(bytes[..8], u64::to_le_bytes(said), "{left:?}");
    }
}

#[test]
fn handlers_are_measured() {
    let now = Instant::now();
    let (mut client, mut server) = pair(&[], now);
    for user in 1..=2 {
        client.call(1, &Bytes::new(), now + 90_000 * SECOND, user, now).unwrap();
    }
    let called = deliver(&mut client, &mut server, now);
    let [Event::Called { call: one, .. }, Event::Called { call: two, .. }] = called[..] else {
        panic!("{called:?}");
    };
    server.reply(one, Ok(&Bytes::new()), now + SECOND).unwrap();
    // More microseconds than there is room for.
    server.reply(two, Ok(&Bytes::new()), now + 5_000 * SECOND).unwrap();
    let durations: Vec<_> = deliver(&mut server, &mut client, now + 5_000 * SECOND)
        .into_iter()
        .map(|event| match event {
            Event::Replied { handler, .. } => handler,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(durations, [Some(SECOND), None]);
}

#[test]
fn who_does_not_negotiate_is_not_waited_for() {
    let now = Instant::now();
    for mut end in [client(&[], now), server(now)] {
        transmitted(&mut end, now);
        receive(&mut end, b"SSTAR", now);
        // A server also watches how fast it comes.
        let due = end.poll_timeout().unwrap();
        assert!(due <= now + NEGOTIATION);
        end.handle_timeout(due);
        assert!(matches!(
            events(&mut end)[..],
            [Event::Closing {
                reason: CloseReason::NotNegotiated(_) | CloseReason::TooSlow { .. }
            }]
        ));
    }
    let mut silent = server(now);
    assert_eq!(silent.poll_timeout(), Some(now + NEGOTIATION));
    silent.handle_timeout(now + NEGOTIATION);
    let reason = CloseReason::NotNegotiated(NEGOTIATION);
    assert_eq!(events(&mut silent), [Event::Closing { reason }]);
}

#[test]
fn who_has_nothing_to_say_may_be_silent_and_who_sends_slowly_may_not() {
    let now = Instant::now();
    let (mut client, mut server) = pair(&[], now);
    assert_eq!((client.poll_timeout(), server.poll_timeout()), (None, None));
    client.handle_timeout(now + 100_000 * SECOND);
    server.handle_timeout(now + 100_000 * SECOND);
    assert_eq!((events(&mut client), events(&mut server)), (vec![], vec![]));
    let now = now + 100_000 * SECOND;
    receive(&mut server, &[1, 2, 3], now);
    let due = server.poll_timeout().unwrap();
    server.handle_timeout(due);
    assert!(matches!(
        events(&mut server)[..],
        [Event::Closing {
            reason: CloseReason::TooSlow { .. }
        }]
    ));
}

#[test]
fn a_peer_that_takes_no_bytes_is_gone() {
    let now = Instant::now();
    let (mut client, _) = pair(&[], now);
    client.send(1, &Bytes::from_static(b"x"), 1, now).unwrap();
    let due = client.poll_timeout().unwrap();
    client.handle_timeout(due);
    let reason = CloseReason::Stalled(Patience::default().stall);
    match &events(&mut client)[..] {
        [
            Event::CallFailed { bytes_sent: false, .. },
            Event::Closing { reason: told },
        ] => assert_eq!(*told, reason),
        other => panic!("{other:?}"),
    }
}
