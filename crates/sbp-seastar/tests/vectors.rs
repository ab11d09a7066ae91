//! Bytes of real peers: decoded, encoded to the same bytes, and the same however they are cut.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_seastar::{ClientConfig, Codec, Connection, Event, Exception, Negotiated, ServerConfig, Signature, Value};
use sbp_wire::Endpoint;
use sbp_wire::testing::{events, every_split, receive, transmitted};

/// What one side said.
struct Step {
    is_clients: bool,
    bytes: Vec<u8>,
}

fn steps(name: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    let text = std::fs::read_to_string(path).expect("a file of vectors");
    let lines = text.lines().map(|line| {
        let (side, bytes) = line.split_once(' ').expect("a side and bytes");
        Step {
            is_clients: side == ">",
            bytes: hex::decode(bytes).expect("hexadecimal"),
        }
    });
    lines.collect()
}

/// What one side said after it had negotiated, and with what it did.
fn side(name: &str, is_clients: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut all = steps(name).into_iter().filter(|step| step.is_clients == is_clients);
    let negotiation = all.next().expect("a negotiation").bytes;
    (negotiation, all.map(|step| step.bytes).collect())
}

/// The server that all of them talked to: its first connection has this id.
const FIRST: u64 = 1 << 16;

fn server(id: u64, now: Instant) -> Connection {
    let config = ServerConfig {
        connection_id: Some(id),
        ..ServerConfig::default()
    };
    Connection::server(config, now)
}

fn client(codecs: &[Codec], parent: Option<u64>, now: Instant) -> Connection {
    let config = ClientConfig {
        codecs: codecs.to_vec(),
        isolation: Some(Bytes::from_static(b"ck1")),
        parent,
        ..ClientConfig::default()
    };
    Connection::client(config, now)
}

/// What a server is asked by a client's bytes, in every way in which they may arrive, and what it says of itself.
fn asked(name: &str) -> (Vec<u8>, Vec<(u64, Bytes)>) {
    let (negotiation, frames) = side(name, true);
    every_split(&[negotiation, frames.concat()].concat(), |pieces| {
        let now = Instant::now();
        let mut server = server(FIRST, now);
        let mut asked = Vec::new();
        for piece in pieces {
            receive(&mut server, piece, now);
            for event in events(&mut server) {
                match event {
                    Event::Called { verb, payload, due, .. } => {
                        // The client of the crate alone says a timeout.
                        assert_eq!(due.is_some(), name == "crate-lz4.hex");
                        asked.push((verb, payload));
                    }
                    Event::Negotiated(negotiated) => assert_eq!(negotiated.connection_id, Some(FIRST)),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(!server.is_mid_frame(), "nothing is left over");
        (transmitted(&mut server, now), asked)
    })
}

/// What a client that has sent calls with these ids learns from the server's bytes, in every way in which they may arrive.
fn heard(name: &str, codecs: &[Codec], ids: u64) -> (Negotiated, Vec<Event>) {
    let (negotiation, frames) = side(name, false);
    let (mut said, mut negotiated) = (Vec::new(), None);
    let heard = every_split(&frames.concat(), |pieces| {
        let now = Instant::now();
        let mut client = client(codecs, None, now);
        said = transmitted(&mut client, now);
        receive(&mut client, &negotiation, now);
        match events(&mut client).remove(0) {
            Event::Negotiated(told) => negotiated = Some(told),
            other => panic!("{other:?}"),
        }
        for id in 1..=ids {
            let deadline = now + Duration::from_secs(9);
            client.call(1, &Bytes::new(), deadline, id, now).expect("sent");
        }
        let mut heard = Vec::new();
        for piece in pieces {
            receive(&mut client, piece, now);
            heard.extend(events(&mut client));
        }
        assert!(!client.is_mid_frame(), "nothing is left over");
        assert_eq!(client.stats().unknown_responses, 0);
        heard
    });
    let (theirs, _) = side(name, true);
    // That of the crate has another cookie, and asks for less.
    if name != "crate-lz4.hex" {
        assert_eq!(said, theirs, "we negotiate as the real client does");
    }
    (negotiated.expect("negotiated"), heard)
}

fn text(text: &str) -> Bytes {
    let signature: Signature = "str".parse().expect("a signature");
    let bytes = signature.encode(&[Value::Str(text.to_owned())]).expect("it fits");
    bytes.into()
}

fn replied(user: u64, text_of: &str, micros: Option<u64>) -> Event {
    Event::Replied {
        user,
        reply: Ok(text(text_of)),
        handler: micros.map(Duration::from_micros),
    }
}

fn boom(user: u64) -> Event {
    Event::Replied {
        user,
        reply: Err(Exception::user("boom")),
        handler: Some(Duration::ZERO),
    }
}

#[test]
fn calls_are_those_of_the_real_client() {
    let (said, asked) = asked("calls.hex");
    assert_eq!(said, side("calls.hex", false).0, "we negotiate as the real server does");
    assert_eq!(asked, [(1, text("hello")), (2, Bytes::new()), (4, text("fire"))]);
    let (negotiated, heard) = heard("calls.hex", &[], 4);
    assert_eq!(
        negotiated,
        Negotiated {
            connection_id: Some(FIRST),
            parent: None,
            isolation: Some(Bytes::from_static(b"ck1")),
            codec: None,
        }
    );
    assert_eq!(heard, [replied(1, "hello", Some(0)), boom(3)]);
}

#[test]
fn replies_are_those_of_the_real_server() {
    let (negotiation, theirs) = side("calls.hex", true);
    let now = Instant::now();
    let mut server = server(FIRST, now);
    receive(&mut server, &negotiation, now);
    transmitted(&mut server, now);
    receive(&mut server, &theirs.concat(), now);
    for event in events(&mut server) {
        match event {
            Event::Called {
                call, verb, payload, ..
            } => match verb {
                1 => server.reply(call, Ok(&payload), now).expect("queued"),
                2 => server.reply(call, Err(&Exception::user("boom")), now).expect("queued"),
                _ => server.forget(call),
            },
            Event::Negotiated(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(transmitted(&mut server, now), side("calls.hex", false).1.concat());
    assert_eq!(server.peer_calls(), 0);
}

#[test]
fn an_unknown_verb_is_an_exception_without_a_duration() {
    let (_, asked) = asked("unknown-verb.hex");
    assert_eq!(asked, [(99, Bytes::new())]);
    let (_, heard) = heard("unknown-verb.hex", &[], 4);
    let reply = Err(Exception::UnknownVerb(99));
    assert_eq!(
        heard,
        [Event::Replied {
            user: 4,
            reply,
            handler: None
        }]
    );
}

#[test]
fn compressed_frames_are_read_in_both_forms() {
    let (said, asked_lz4) = asked("lz4.hex");
    assert_eq!(said, side("lz4.hex", false).0);
    assert_eq!(asked_lz4, [(1, text("hello"))]);
    let (negotiated, heard_lz4) = heard("lz4.hex", &[Codec::Lz4], 4);
    assert_eq!(negotiated.codec, Some(Codec::Lz4));
    let [Event::Replied { reply: Ok(first), .. }, second] = &heard_lz4[..] else {
        panic!("{heard_lz4:?}");
    };
    assert_eq!(*first, text("hello"));
    assert!(
        matches!(second, Event::Replied { user: 3, reply: Err(exception), .. } if *exception == Exception::user("boom"))
    );

    let (said, asked_fragmented) = asked("fragmented.hex");
    assert_eq!(said, side("fragmented.hex", false).0);
    assert_eq!(asked_fragmented, [(1, text("hello"))]);
    let (negotiated, _) = heard("fragmented.hex", &[Codec::Lz4Fragmented, Codec::Lz4], 0);
    assert_eq!(negotiated.codec, Some(Codec::Lz4Fragmented));

    let (said, asked_crate) = asked("crate-lz4.hex");
    assert_eq!(said, side("crate-lz4.hex", false).0);
    assert_eq!(asked_crate, [(1, text("hello"))]);
    let (_, heard_crate) = heard("crate-lz4.hex", &[Codec::Lz4], 9);
    let [
        Event::Replied {
            user: 1,
            reply,
            handler: Some(_),
        },
    ] = &heard_crate[..]
    else {
        panic!("{heard_crate:?}");
    };
    assert_eq!(*reply, Ok(text("hello")));
}

#[test]
fn a_second_connection_becomes_a_stream() {
    let now = Instant::now();
    let (theirs, _) = side("stream.hex", true);
    let mut ours = client(&[], Some(FIRST), now);
    assert_eq!(transmitted(&mut ours, now), theirs);
    let (answer, _) = side("stream.hex", false);
    let told = every_split(&theirs, |pieces| {
        let mut stream = server(2 << 16, now);
        let mut told = Vec::new();
        for piece in pieces {
            receive(&mut stream, piece, now);
            told.extend(events(&mut stream));
        }
        assert_eq!(stream.transmit_len(), 0, "nothing is said before the parent is found");
        stream.admit(now).expect("it waits for that");
        assert_eq!(transmitted(&mut stream, now), answer);
        told
    });
    let negotiated = |connection_id, parent| {
        Event::Negotiated(Negotiated {
            connection_id: Some(connection_id),
            parent: Some(parent),
            isolation: Some(Bytes::from_static(b"ck1")),
            codec: None,
        })
    };
    assert_eq!(told, [negotiated(2 << 16, FIRST)]);
    receive(&mut ours, &answer, now);
    assert_eq!(events(&mut ours), [negotiated(2 << 16, FIRST)]);

    let verb = &steps("stream-verb.hex")[0].bytes;
    let (negotiation, _) = side("calls.hex", true);
    let mut first = server(FIRST, now);
    receive(&mut first, &[&negotiation, &verb[..]].concat(), now);
    let signature: Signature = "i32 stream".parse().expect("a signature");
    match &events(&mut first)[..] {
        [Event::Negotiated(_), Event::Called { verb: 5, payload, .. }] => {
            let values = signature.decode(payload).expect("values");
            assert_eq!(values, [Value::Signed(42), Value::Unsigned(2 << 16)]);
        }
        other => panic!("{other:?}"),
    }
}
