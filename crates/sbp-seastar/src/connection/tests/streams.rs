//! Streams.

use super::*;
use crate::limits::STREAM_WINDOW_BYTES;

fn stream_pair(codecs: &[Codec], now: Instant) -> (Connection, Connection) {
    let config = ClientConfig {
        codecs: codecs.to_vec(),
        parent: Some(1 << 16),
        ..ClientConfig::default()
    };
    let (mut client, mut server) = (Connection::client(config, now), server(now));
    let asked = transmitted(&mut client, now);
    receive(&mut server, &asked, now);
    assert!(matches!(
        events(&mut server)[..],
        [Event::Negotiated(Negotiated {
            parent: Some(0x10000),
            ..
        })]
    ));
    server.admit(now).unwrap();
    let answered = transmitted(&mut server, now);
    receive(&mut client, &answered, now);
    assert!(matches!(events(&mut client)[..], [Event::Negotiated(_)]));
    (client, server)
}

fn message(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn messages_go_both_ways_until_each_side_has_ended() {
    for codecs in [&[][..], &[Codec::Lz4], &[Codec::Lz4Fragmented]] {
        let now = Instant::now();
        let (mut client, mut server) = stream_pair(codecs, now);
        client.message(&message("one"), now).unwrap();
        client.message(&message("two"), now).unwrap();
        client.end_stream(now).unwrap();
        assert_eq!(client.message(&message("late"), now), Err(Refused::Closed));
        client.end_stream(now).unwrap();
        let told = deliver(&mut client, &mut server, now);
        assert_eq!(
            told,
            [
                Event::Message(message("one")),
                Event::Message(message("two")),
                Event::Ended
            ]
        );
        server.message(&message("three"), now).unwrap();
        assert_eq!(
            deliver(&mut server, &mut client, now),
            [Event::Message(message("three"))]
        );
        server.end_stream(now).unwrap();
        let told = deliver(&mut server, &mut client, now);
        let reason = CloseReason::Ended;
        assert_eq!(told, [Event::Ended, Event::Closing { reason: reason.clone() }]);
        assert_eq!(events(&mut server), [Event::Closing { reason }]);
        assert!(client.is_closed() && server.is_closed());
    }
}

#[test]
fn nothing_is_said_to_a_stream_without_a_parent() {
    let now = Instant::now();
    let negotiation = features(|own| own.stream_parent = Some(99));
    let mut alone = Connection::server(ServerConfig::default(), now);
    receive(&mut alone, &negotiation, now);
    assert_eq!(violation(&events(&mut alone)), Fault::NoParent(99));
    assert!(alone.is_closed() && transmitted(&mut alone, now).is_empty());
    let mut refused = server(now);
    receive(&mut refused, &negotiation, now);
    assert!(!refused.wants_read(), "it waits for whether there is the parent");
    assert!(matches!(events(&mut refused)[..], [Event::Negotiated(_)]));
    refused.close();
    assert!(refused.is_closed() && transmitted(&mut refused, now).is_empty());
}

#[test]
fn messages_before_the_answer_are_kept() {
    let now = Instant::now();
    let mut server = server(now);
    let negotiation = features(|own| own.stream_parent = Some(1));
    receive(
        &mut server,
        &[&negotiation[..], &[2, 0, 0, 0, b'h', b'i']].concat(),
        now,
    );
    assert!(matches!(events(&mut server)[..], [Event::Negotiated(_)]));
    server.admit(now).unwrap();
    assert_eq!(events(&mut server), [Event::Message(message("hi"))]);
}

#[test]
fn a_stream_that_is_lost_without_its_end_did_not_end_in_order() {
    use sbp_wire::Reason;

    let now = Instant::now();
    let (mut client, mut server) = stream_pair(&[], now);
    server.message(&message("x"), now).unwrap();
    deliver(&mut server, &mut client, now);
    client.handle_eof(now);
    match &events(&mut client)[..] {
        [Event::Closing { reason }] => assert!(!reason.is_orderly(), "{reason}"),
        other => panic!("{other:?}"),
    }
    // A message behind the end.
    let (mut client, _) = stream_pair(&[], now);
    receive(&mut client, &[255, 255, 255, 255, 1, 0, 0, 0, 9], now);
    assert_eq!(violation(&events(&mut client)), Fault::AfterEnd);
    let (mut client, _) = stream_pair(&[], now);
    receive(&mut client, &[255; 8], now);
    assert_eq!(violation(&events(&mut client)), Fault::AfterEnd);
    let (mut client, _) = stream_pair(&[], now);
    receive(&mut client, &[254, 255, 255, 255], now);
    assert!(matches!(violation(&events(&mut client)), Fault::TooLong { .. }));
}

#[test]
fn who_does_not_take_messages_is_sent_no_more() {
    let now = Instant::now();
    let (mut client, mut server) = stream_pair(&[], now);
    assert_eq!(client.message(&Bytes::new(), now), Err(Refused::Empty));
    let large = Bytes::from(vec![7; STREAM_WINDOW_BYTES / 2]);
    client.message(&large, now).unwrap();
    assert!(!client.is_full());
    client.message(&large, now).unwrap();
    assert!(client.is_full(), "the sender waits");
    let told = deliver(&mut client, &mut server, now);
    assert_eq!(told.len(), 2);
    assert!(!client.is_full());
    assert_eq!(events(&mut client), [Event::Room]);
    assert!(!server.wants_read(), "the receiver does not read");
    server.took(large.len());
    assert!(server.wants_read());
    server.took(large.len());
    // Many small ones.
    for _ in 0..70 {
        client.message(&message("x"), now).unwrap();
    }
    let mut taken = deliver(&mut client, &mut server, now).len();
    assert_eq!(taken, 50);
    assert!(!server.wants_read());
    while taken < 70 {
        server.took(1);
        taken += events(&mut server).len();
    }
    assert_eq!(taken, 70);
}
