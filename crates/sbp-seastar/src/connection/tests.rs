//! What a connection does with what is not in the vectors of real peers.

use bytes::BufMut;
use proptest::prelude::*;
use sbp_wire::Endpoint;
use sbp_wire::testing::{events, every_split, receive, transmitted};

use super::*;
use crate::event::{Call, CallFailure, Negotiated};
use crate::exception::Exception;
use crate::fault::narrow;
use crate::limits::{MAX_FRAME, MAX_NEGOTIATION};

mod streams;
mod time;

const SECOND: Duration = Duration::from_secs(1);

fn client(codecs: &[Codec], now: Instant) -> Connection {
    let config = ClientConfig {
        codecs: codecs.to_vec(),
        ..ClientConfig::default()
    };
    Connection::client(config, now)
}

fn server(now: Instant) -> Connection {
    server_with(ServerConfig::default(), now)
}

fn server_with(config: ServerConfig, now: Instant) -> Connection {
    let config = ServerConfig {
        connection_id: Some(1 << 16),
        ..config
    };
    Connection::server(config, now)
}

/// Has two ends negotiate.
fn negotiate(client: &mut Connection, server: &mut Connection, now: Instant) {
    let asked = transmitted(client, now);
    receive(server, &asked, now);
    assert!(matches!(events(server)[..], [Event::Negotiated(_)]));
    let answered = transmitted(server, now);
    receive(client, &answered, now);
    assert!(matches!(events(client)[..], [Event::Negotiated(_)]));
}

fn pair(codecs: &[Codec], now: Instant) -> (Connection, Connection) {
    let (mut client, mut server) = (client(codecs, now), server(now));
    negotiate(&mut client, &mut server, now);
    (client, server)
}

/// Brings what one end has written to the other.
fn deliver(from: &mut Connection, to: &mut Connection, now: Instant) -> Vec<Event> {
    let bytes = transmitted(from, now);
    receive(to, &bytes, now);
    events(to)
}

fn features(build: impl FnOnce(&mut Features)) -> Vec<u8> {
    let mut features = Features::default();
    build(&mut features);
    features.encode()
}

/// A request of a client that has not asked to say how much time is left.
fn request(verb: u64, id: i64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64_le(verb);
    bytes.put_i64_le(id);
    bytes.put_u32_le(narrow(payload.len()));
    bytes.put_slice(payload);
    bytes
}

fn response(id: i64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_i64_le(id);
    bytes.put_u32_le(narrow(payload.len()));
    bytes.put_slice(payload);
    bytes
}

fn envelope(codec: Codec, frames: &[u8]) -> Vec<u8> {
    let compressed = codec.compress(frames);
    [&narrow(compressed.len()).to_le_bytes()[..], &compressed].concat()
}

/// What comes of bytes at an end, in every way in which they may arrive; calls are answered with what they brought.
fn played(new: impl Fn(Instant) -> Connection, bytes: &[u8]) -> (Vec<Event>, Vec<u8>, bool) {
    let now = Instant::now();
    every_split(bytes, |pieces| {
        let mut end = new(now);
        let mut told = Vec::new();
        for piece in pieces {
            receive(&mut end, piece, now);
            while let Some(event) = end.poll_event() {
                if let Event::Called { call, payload, .. } = &event {
                    let _ = end.reply(*call, Ok(payload), now);
                }
                told.push(event);
            }
        }
        (told, transmitted(&mut end, now), end.is_closed())
    })
}

/// What a server is told by bytes behind a negotiation.
fn asked(build: impl FnOnce(&mut Features), bytes: &[u8]) -> Vec<Event> {
    let all = [features(build), bytes.to_vec()].concat();
    let (mut told, ..) = played(server, &all);
    assert!(matches!(told.remove(0), Event::Negotiated(_)));
    told
}

/// What a client with one call under way is told by a server's bytes, its negotiation included.
fn heard(codecs: &[Codec], bytes: &[u8]) -> Vec<Event> {
    let waits = |now: Instant| {
        let mut client = client(codecs, now);
        client.negotiate_by = None;
        client.call(1, &Bytes::new(), now + SECOND, 7, now).unwrap();
        client.negotiate_by = Some((now + SECOND, SECOND));
        client
    };
    played(waits, bytes).0
}

fn violation(events: &[Event]) -> Fault {
    match events.last() {
        Some(Event::Closing {
            reason: CloseReason::Violation(fault),
        }) => *fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_and_replies_cross() {
    for codecs in [&[][..], &[Codec::Lz4], &[Codec::Lz4Fragmented]] {
        let now = Instant::now();
        let (mut client, mut server) = pair(codecs, now);
        let payloads: Vec<_> = [0, 1, 5_000, 100_000]
            .map(|length| {
                Bytes::from(
                    (0..length)
                        .map(|place: usize| (place * place % 251) as u8)
                        .collect::<Vec<_>>(),
                )
            })
            .into();
        for (user, payload) in payloads.iter().enumerate() {
            client.call(7, payload, now + SECOND, user as u64, now).unwrap();
        }
        let mut called = deliver(&mut client, &mut server, now);
        assert_eq!(called.len(), payloads.len());
        // Replies overtake each other.
        called.reverse();
        for event in called {
            match event {
                Event::Called {
                    call,
                    verb: 7,
                    payload,
                    due: Some(_),
                } => server.reply(call, Ok(&payload), now).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        let replied = deliver(&mut server, &mut client, now);
        let expected = (0..payloads.len()).rev().map(|user| Event::Replied {
            user: user as u64,
            reply: Ok(payloads[user].clone()),
            handler: Some(Duration::ZERO),
        });
        assert_eq!(replied, expected.collect::<Vec<_>>());
        assert_eq!((client.own_calls(), server.peer_calls()), (0, 0));
    }
}

#[test]
fn who_has_agreed_on_nothing_says_neither_timeouts_nor_durations() {
    let bytes = [features(|_| {}), request(9, 1, b"abc")].concat();
    let (told, said, _) = played(server, &bytes);
    assert!(
        matches!(
            &told[..],
            [Event::Negotiated(_), Event::Called { verb: 9, due: None, .. }]
        ),
        "{told:?}"
    );
    let answer = features(|own| own.connection_id = Some(1 << 16));
    assert_eq!(said, [answer, response(1, b"abc")].concat());
    let told = heard(&[], &[features(|_| {}), response(1, b"xy")].concat());
    let reply = Ok(Bytes::from_static(b"xy"));
    assert_eq!(
        told[1..],
        [Event::Replied {
            user: 7,
            reply,
            handler: None
        }]
    );
}

#[test]
fn something_else_than_seastar_rpc_is_not_answered() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"SSTARRPD", b"X", &[0; 100]] {
        let (told, said, is_closed) = played(server, bytes);
        assert_eq!(violation(&told), Fault::Magic);
        assert!(said.is_empty() && is_closed);
    }
    let mut long = b"SSTARRPC".to_vec();
    long.put_u32_le(narrow(MAX_NEGOTIATION + 1));
    let (told, said, _) = played(server, &long);
    assert!(matches!(
        violation(&told),
        Fault::TooLong {
            what: "a negotiation",
            ..
        }
    ));
    assert!(said.is_empty());
    // A record that is cut.
    let mut cut = b"SSTARRPC".to_vec();
    cut.put_u32_le(9);
    cut.put_slice(&[0, 0, 0, 0, 9, 0, 0, 0, b'L']);
    let (told, said, _) = played(server, &cut);
    assert_eq!(violation(&told), Fault::Cut { missing: 8 });
    assert!(said.is_empty());
}

#[test]
fn frames_over_the_limit_close() {
    for length in [MAX_FRAME + 1, usize::try_from(u32::MAX).unwrap()] {
        let mut bytes = request(1, 1, b"");
        bytes.truncate(16);
        bytes.put_u32_le(narrow(length));
        assert!(matches!(
            violation(&asked(|_| {}, &bytes)),
            Fault::TooLong { what: "a frame", .. }
        ));
        let mut bytes = response(1, b"");
        bytes.truncate(8);
        bytes.put_u32_le(narrow(length));
        let told = heard(&[], &[features(|_| {}), bytes].concat());
        assert!(matches!(violation(&told), Fault::TooLong { what: "a frame", .. }));
        assert!(matches!(
            told[1],
            Event::CallFailed {
                user: 7,
                bytes_sent: true,
                ..
            }
        ));
    }
    let lz4 = |own: &mut Features| own.offer(&[Codec::Lz4]);
    let told = asked(lz4, &u32::MAX.to_le_bytes());
    assert!(matches!(
        violation(&told),
        Fault::TooLong {
            what: "a compressed frame",
            ..
        }
    ));
}

#[test]
fn a_request_over_the_servers_memory_is_answered_and_the_connection_goes_on() {
    let small = |now| {
        let config = ServerConfig {
            request_bytes: 1_000,
            ..ServerConfig::default()
        };
        server_with(config, now)
    };
    let requests = [request(1, 1, &[7; 1_001]), request(2, 2, b"x")].concat();
    for codec in [None, Some(Codec::Lz4)] {
        let negotiation = features(|own| own.offer(codec.as_slice()));
        let requests = match codec {
            None => requests.clone(),
            Some(codec) => [
                envelope(codec, &request(1, 1, &[7; 1_001])),
                envelope(codec, &request(2, 2, b"x")),
            ]
            .concat(),
        };
        let (told, said, _) = played(small, &[negotiation, requests].concat());
        assert!(
            matches!(&told[..], [Event::Negotiated(_), Event::Called { verb: 2, .. }]),
            "{told:?}"
        );
        let mut client = client(codec.as_slice(), Instant::now());
        client.own.handler_duration = false;
        let now = Instant::now();
        client.negotiate_by = None;
        client.call(1, &Bytes::new(), now + SECOND, 1, now).unwrap();
        client.call(1, &Bytes::new(), now + SECOND, 2, now).unwrap();
        receive(&mut client, &said, now);
        let heard = events(&mut client);
        match &heard[1..] {
            [
                Event::Replied {
                    user: 1,
                    reply: Err(Exception::User(text)),
                    ..
                },
                Event::Replied {
                    user: 2, reply: Ok(_), ..
                },
            ] => {
                assert_eq!(
                    &text[..],
                    b"the request has 1001 bytes, and the server has memory for 1000"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ids_that_cannot_be_close() {
    for id in [0, -1, i64::MIN] {
        assert_eq!(violation(&asked(|_| {}, &request(1, id, b""))), Fault::Id(id));
    }
    // One that is still under way; once it was answered, nobody remembers it.
    let now = Instant::now();
    let mut server = server(now);
    receive(&mut server, &[features(|_| {}), request(1, 5, b"")].concat(), now);
    let call = match &events(&mut server)[..] {
        [_, Event::Called { call, .. }] => *call,
        other => panic!("{other:?}"),
    };
    let stale = Call { number: 9, ..call };
    assert_eq!(server.reply(stale, Ok(&Bytes::new()), now), Err(Refused::UnknownCall));
    server.reply(call, Ok(&Bytes::new()), now).unwrap();
    assert_eq!(server.reply(call, Ok(&Bytes::new()), now), Err(Refused::UnknownCall));
    receive(&mut server, &request(1, 5, b""), now);
    assert!(matches!(events(&mut server)[..], [Event::Called { .. }]));
    receive(&mut server, &request(1, 5, b""), now);
    assert_eq!(violation(&events(&mut server)), Fault::Id(5));
}

#[test]
fn responses_to_nobody_are_counted() {
    let now = Instant::now();
    let mut client = client(&[], now);
    receive(&mut client, &features(|_| {}), now);
    let exception = Exception::user("x").encode().unwrap();
    let bytes: Vec<_> = [
        response(0, b""),
        response(9, b"x"),
        response(-9, &exception),
        response(i64::MAX, b""),
    ]
    .concat();
    receive(&mut client, &bytes, now);
    assert!(matches!(events(&mut client)[..], [Event::Negotiated(_)]));
    assert_eq!(client.stats().unknown_responses, 4);
    receive(&mut client, &response(i64::MIN, b""), now);
    assert_eq!(violation(&events(&mut client)), Fault::Cut { missing: 4 });
}

#[test]
fn exceptions_of_unknown_types_are_told_and_cut_ones_close() {
    let generic = [7, 0, 0, 0, 2, 0, 0, 0, 1, 2];
    let told = heard(&[], &[features(|_| {}), response(-1, &generic)].concat());
    let reply = Err(Exception::Other { kind: 7 });
    assert_eq!(
        told[1..],
        [Event::Replied {
            user: 7,
            reply,
            handler: None
        }]
    );
    let told = heard(&[], &[features(|_| {}), response(-1, &generic[..9])].concat());
    assert_eq!(violation(&told), Fault::Cut { missing: 1 });
    assert!(told.contains(&Event::CallFailed {
        user: 7,
        failure: CallFailure::ConnectionClosed,
        bytes_sent: true,
    }));
}

#[test]
fn an_envelope_has_exactly_one_frame_or_nothing() {
    for codec in Codec::ALL {
        let offer = |own: &mut Features| own.offer(&[codec]);
        let one = request(1, 1, b"abc");
        let nothing = [&[0; 4][..], &envelope(codec, &[]), &envelope(codec, &one)].concat();
        let told = asked(offer, &nothing);
        assert!(matches!(&told[..], [Event::Called { verb: 1, .. }]), "{told:?}");
        let two = [one.clone(), request(1, 2, b"")].concat();
        let told = asked(offer, &envelope(codec, &two));
        assert_eq!(violation(&told), Fault::LeftOver(20));
        assert_eq!(told.len(), 1, "not even the first of two frames is taken");
        assert_eq!(
            violation(&asked(offer, &envelope(codec, &one[..22]))),
            Fault::Cut { missing: 1 }
        );
        assert_eq!(
            violation(&asked(offer, &envelope(codec, &one[..9]))),
            Fault::Cut { missing: 11 }
        );
        let damaged = asked(offer, &[3, 0, 0, 0, 9, 9, 9]);
        assert!(matches!(violation(&damaged), Fault::Cut { missing: 1 }), "{damaged:?}");
        let damaged = asked(offer, &[6, 0, 0, 0, 9, 0, 0, 0x80, 0xff, 9]);
        assert!(
            matches!(violation(&damaged), Fault::Compression(_) | Fault::TooLong { .. }),
            "{damaged:?}"
        );
    }
}

#[test]
fn a_server_may_choose_only_what_it_was_offered() {
    for chosen in ["LZ4_FRAGMENTED", "ZSTD", ""] {
        let answer = features(|own| own.compress = Some(Bytes::from_static(chosen.as_bytes())));
        assert_eq!(violation(&heard(&[Codec::Lz4], &answer)), Fault::Codec, "{chosen}");
        assert_eq!(violation(&heard(&[], &answer)), Fault::Codec);
    }
    // One that knows none of those offered leaves it out.
    let (told, said, _) = played(
        server,
        &features(|own| own.compress = Some(Bytes::from_static(b"ZSTD"))),
    );
    assert!(matches!(&told[..], [Event::Negotiated(Negotiated { codec: None, .. })]));
    assert_eq!(said, features(|own| own.connection_id = Some(1 << 16)));
    let told = heard(&[Codec::Lz4], &features(|_| {}));
    assert!(matches!(told[0], Event::Negotiated(Negotiated { codec: None, .. })));
}

#[test]
fn frames_before_the_answer_are_kept() {
    let bytes = [
        features(|own| own.isolation = Some(Bytes::new())),
        request(1, 1, b"a"),
        request(2, 2, b"b"),
    ];
    let (told, said, _) = played(server, &bytes.concat());
    assert_eq!(told.len(), 3);
    let answer = features(|own| {
        own.connection_id = Some(1 << 16);
        own.isolation = Some(Bytes::new());
    });
    assert_eq!(said, [answer, response(1, b"a"), response(2, b"b")].concat());
}

#[test]
fn memory_is_not_set_aside_for_what_is_claimed() {
    let now = Instant::now();
    let mut server = server(now);
    let mut claim = request(1, 1, b"");
    claim.truncate(16);
    claim.put_u32_le(narrow(MAX_FRAME));
    receive(&mut server, &[features(|_| {}), claim].concat(), now);
    assert!(server.recv_buffer().get_ref().capacity() < 64 * 1024);
    assert!(server.held_bytes() < 1_000);
}

#[test]
fn a_server_at_its_limits_reads_on_when_calls_are_over() {
    let now = Instant::now();
    let config = ServerConfig {
        calls: 2,
        ..ServerConfig::default()
    };
    let mut server = server_with(config, now);
    let requests: Vec<_> = (1..=5).flat_map(|id| request(1, id, b"")).collect();
    receive(&mut server, &[features(|_| {}), requests].concat(), now);
    let mut ids = Vec::new();
    let mut most = 0;
    let mut open: Vec<Call> = Vec::new();
    loop {
        for event in events(&mut server) {
            if let Event::Called { call, .. } = event {
                ids.push(call.id);
                open.push(call);
            }
        }
        most = most.max(server.peer_calls());
        let Some(call) = open.pop() else { break };
        assert!(!server.wants_read() || server.peer_calls() < 2);
        server.forget(call);
    }
    assert_eq!((ids, most), (vec![1, 2, 3, 4, 5], 2));
    assert!(server.wants_read());
}

#[test]
fn calls_without_a_reply_end_when_they_are_written() {
    let now = Instant::now();
    let (mut client, mut server) = pair(&[], now);
    client.send(4, &Bytes::from_static(b"fire"), 1, now).unwrap();
    client.send(4, &Bytes::from_static(b"again"), 2, now).unwrap();
    assert_eq!((events(&mut client), client.own_calls()), (vec![], 2));
    let called = deliver(&mut client, &mut server, now);
    assert!(matches!(
        &called[..],
        [Event::Called { verb: 4, due: None, .. }, Event::Called { .. }]
    ));
    assert_eq!(events(&mut client), [Event::Sent { user: 1 }, Event::Sent { user: 2 }]);
    // One that was not written fails, and says that it was not.
    client.send(4, &Bytes::new(), 3, now).unwrap();
    client.handle_eof(now);
    let failed = Event::CallFailed {
        user: 3,
        failure: CallFailure::ConnectionClosed,
        bytes_sent: false,
    };
    let reason = CloseReason::Peer { is_idle: false };
    assert_eq!(events(&mut client), [failed, Event::Closing { reason }]);
    assert_eq!(client.send(4, &Bytes::new(), 3, now), Err(Refused::Closed));
}

#[test]
fn what_does_not_fit_or_is_not_for_this_connection_is_refused() {
    let now = Instant::now();
    let mut early = client(&[], now);
    assert_eq!(early.call(1, &Bytes::new(), now, 1, now), Err(Refused::OtherKind));
    let (mut client, mut server) = pair(&[], now);
    let long = Bytes::from(vec![0; MAX_FRAME + 1]);
    assert!(matches!(client.call(1, &long, now, 1, now), Err(Refused::Unfit(_))));
    assert_eq!(client.message(&Bytes::from_static(b"x"), now), Err(Refused::OtherKind));
    assert_eq!(client.end_stream(now), Err(Refused::OtherKind));
    assert_eq!(server.admit(now), Err(Refused::OtherKind));
    assert_eq!(server.send(1, &Bytes::new(), 1, now), Err(Refused::OtherKind));
    assert_eq!((client.own_calls(), client.transmit_len()), (0, 0));
}

proptest! {
    #[test]
    fn any_bytes_are_judged_however_they_come(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        step in 1..40_usize,
        codec in 0..3_usize,
        is_client: bool,
    ) {
        let codecs = [None, Some(Codec::Lz4), Some(Codec::Lz4Fragmented)][codec];
        let play = |step: usize| {
            let now = Instant::now();
            let mut end = match is_client {
                true => client(codecs.as_slice(), now),
                false => server(now),
            };
            receive(&mut end, &features(|own| own.offer(codecs.as_slice())), now);
            let mut told = Vec::new();
            for piece in bytes.chunks(step.max(1)) {
                receive(&mut end, piece, now);
                told.extend(events(&mut end));
            }
            told
        };
        prop_assert_eq!(play(step), play(bytes.len()));
    }
}
