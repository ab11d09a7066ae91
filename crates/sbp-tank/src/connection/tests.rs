//! What a connection does with what is not in the vectors of real peers.

use bytes::Bytes;
use sbp_wire::testing::{events, every_split, receive, transmitted};
use sbp_wire::{Endpoint, WriteQueue};

use super::*;
use crate::answer::{ConsumedTopic, Consumption, Discovered, PartitionBounds};
use crate::bundle::{Message, encode_bundle};
use crate::event::{CallFailure, Violation};
use crate::limits::{MAX_ANSWER, MAX_BUNDLE, MAX_HEADER, MAX_REQUEST};
use crate::outcome::{PartitionState, Produced};
use crate::request::{CONSUME, ConsumedFrom, Produce, ProducedTo, Topic};

mod time;

const GREETING: [u8; 5] = [3, 0, 0, 0, 0];

fn topics<T>(name: &str, partitions: Vec<T>) -> Vec<Topic<T>> {
    vec![Topic {
        name: name.to_owned(),
        partitions,
    }]
}

fn consume(partitions: &[u16]) -> Request {
    let from = partitions.iter().map(|partition| ConsumedFrom {
        partition: *partition,
        sequence: 1,
        fetch_size: 1 << 20,
    });
    Request::Consume {
        topics: topics("t", from.collect()),
        wait_ms: 1_000,
        min_bytes: 1,
    }
}

fn produce() -> Request {
    let to = |partition| ProducedTo {
        partition,
        first: 0,
        bundle: bundle(b"x"),
    };
    Request::Produce(Produce {
        topics: topics("t", vec![to(0), to(1)]),
        is_numbered: false,
        acks: 0,
        ack_timeout_ms: 0,
    })
}

fn bundle(content: &[u8]) -> Bytes {
    let message = Message {
        sequence: 0,
        time_ms: 1,
        key: None,
        content,
    };
    encode_bundle(&[message]).unwrap()
}

/// A bundle behind its length.
fn framed(bundle: &Bytes) -> Bytes {
    let length = u8::try_from(bundle.len()).ok().filter(|length| *length < 128).unwrap();
    [&[length][..], bundle].concat().into()
}

fn frame(message: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&[message][..], &length, payload].concat()
}

/// A frame that claims so many bytes.
fn claim(message: u8, length: usize) -> Vec<u8> {
    [&[message][..], &u32::try_from(length).unwrap().to_le_bytes()].concat()
}

fn client(now: Instant) -> Connection {
    let mut client = Connection::client(ClientConfig::default(), now);
    receive(&mut client, &GREETING, now);
    assert_eq!(events(&mut client), [Event::Greeted]);
    client
}

/// An answer to request `id` with a state and a chunk for each of its partitions.
fn consumed(id: u32, partitions: Vec<Consumption>) -> Vec<u8> {
    let answer = Answer::Consumed(vec![ConsumedTopic {
        name: String::from("t"),
        partitions,
    }]);
    written(&answer, id)
}

/// The answer to request `id` as a frame.
fn written(answer: &Answer, id: u32) -> Vec<u8> {
    let (message, frame) = answer.collect(id).unwrap();
    let mut queue = WriteQueue::new();
    queue_frame(message, frame, &mut queue);
    let mut slices = [std::io::IoSlice::new(&[]); 8];
    let count = queue.slices(&mut slices);
    slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
}

fn data(partition: u16, bundles: Vec<Bytes>) -> Consumption {
    let state = PartitionState::Data {
        base: Some(1),
        high_water: 9,
        length: 0,
    };
    Consumption {
        partition,
        state,
        bundles,
    }
}

/// What a client that has sent `request` is told of `bytes`, however they are cut, and whether it is still open.
fn told(request: &Request, bytes: &[u8]) -> (Vec<Event>, bool) {
    every_split(bytes, |pieces| {
        let now = Instant::now();
        let mut client = client(now);
        client.send(request, 7, now).unwrap();
        transmitted(&mut client, now);
        let mut told = Vec::new();
        for piece in pieces {
            receive(&mut client, piece, now);
            told.extend(events(&mut client));
        }
        (told, client.core.is_open())
    })
}

#[test]
fn the_last_bundle_of_each_partition_may_be_cut_anywhere() {
    let whole = framed(&bundle(b"whole"));
    let long = framed(&bundle(&[7; 60]));
    for cut in 1..long.len() {
        let first = data(0, vec![whole.clone(), long.slice(..cut)]);
        let second = data(1, vec![whole.clone()]);
        let (told, is_open) = told(&consume(&[0, 1]), &consumed(1, vec![first, second]));
        assert!(is_open, "cut at {cut}");
        let [
            Event::Consumed { user: 7, partitions },
            Event::Bundle { place: 0, .. },
            Event::CutBundle {
                user: 7,
                place: 0,
                length,
            },
            Event::Bundle { place: 1, bundle, .. },
            Event::ConsumeEnded { user: 7 },
        ] = told.as_slice()
        else {
            panic!("cut at {cut}: {told:?}")
        };
        assert_eq!(partitions.len(), 2);
        assert_eq!(*length, long.len());
        assert_eq!(bundle[..], whole[1..]);
    }
}

#[test]
fn a_bundle_whose_length_is_cut_has_none() {
    // Lengths of 128 and more have two bytes, and one is there.
    let (told, is_open) = told(
        &consume(&[0]),
        &consumed(1, vec![data(0, vec![Bytes::from_static(&[0x80])])]),
    );
    assert!(is_open);
    let cut = Event::CutBundle {
        user: 7,
        place: 0,
        length: 0,
    };
    assert_eq!(told[1..], [cut, Event::ConsumeEnded { user: 7 }]);
}

#[test]
fn partitions_that_cannot_be_read_stand_beside_those_that_can() {
    let unavailable = |partition, state| Consumption {
        partition,
        state,
        bundles: Vec::new(),
    };
    let other = PartitionState::OtherLeader(std::net::SocketAddrV4::new([10, 0, 0, 7].into(), 11_011));
    let states = [
        PartitionState::UnknownPartition,
        PartitionState::Unavailable,
        PartitionState::NoLeader,
        other,
        PartitionState::OutOfBounds {
            high_water: 9,
            first_available: 3,
        },
    ];
    let mut partitions: Vec<_> = (1..)
        .zip(states)
        .map(|(partition, state)| unavailable(partition, state))
        .collect();
    partitions.insert(2, data(8, vec![framed(&bundle(b"here"))]));
    let (told, _) = told(&consume(&[1, 2, 8, 3, 4, 5]), &consumed(1, partitions));
    let [
        Event::Consumed { partitions, .. },
        Event::Bundle { place: 2, .. },
        Event::ConsumeEnded { .. },
    ] = told.as_slice()
    else {
        panic!("{told:?}")
    };
    let found: Vec<_> = partitions.iter().map(|partition| partition.state).collect();
    assert_eq!([&found[..2], &found[3..]].concat(), states);
}

#[test]
fn an_unknown_topic_has_no_partition() {
    let answer = Answer::Consumed(vec![ConsumedTopic {
        name: String::from("t"),
        partitions: Vec::new(),
    }]);
    let (told, is_open) = told(&consume(&[0, 1]), &written(&answer, 1));
    assert!(is_open);
    let Event::Consumed { partitions, .. } = &told[0] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (partitions[0].partition, partitions[0].state),
        (None, PartitionState::UnknownTopic)
    );
}

#[test]
fn codes_are_told_apart() {
    let cases: [(&[u8], [Produced; 2]); 6] = [
        (&[0, 0], [Produced::Done; 2]),
        (&[0xff], [Produced::UnknownTopic; 2]),
        (&[0xfe], [Produced::Unavailable; 2]),
        (&[1, 2], [Produced::UnknownPartition, Produced::Refused]),
        (&[10, 0x63], [Produced::Number, Produced::Other(0x63)]),
        (
            &[0xfc, 10, 0, 0, 7, 0x03, 0x2b, 0xfd],
            [
                Produced::OtherLeader(std::net::SocketAddrV4::new([10, 0, 0, 7].into(), 11_011)),
                Produced::NoLeader,
            ],
        ),
    ];
    for (codes, expected) in cases {
        let bytes = frame(1, &[&1_u32.to_le_bytes()[..], codes].concat());
        let answer = Answer::Produced(vec![expected.to_vec()]);
        assert_eq!(
            told(&produce(), &bytes),
            (vec![Event::Answered { user: 7, answer }], true),
            "{codes:02x?}"
        );
    }
}

#[test]
fn who_serves_a_partition_is_told() {
    let partitions = vec![
        Discovered::Here(PartitionBounds {
            first: 3,
            high_water: 9,
        }),
        Discovered::OtherLeader(std::net::SocketAddrV4::new([10, 0, 0, 7].into(), 11_011)),
        Discovered::Unavailable,
    ];
    let topic = String::from("t");
    let answer = Answer::Partitions {
        topic: topic.clone(),
        partitions,
    };
    let mut bytes = written(&answer, 1);
    let told_of = |bytes: &[u8]| told(&Request::DiscoverPartitions { topic: topic.clone() }, bytes);
    let expected = (vec![Event::Answered { user: 7, answer }], true);
    assert_eq!(told_of(&bytes), expected);
    // Whether the broker cannot read it or nobody leads it is the same.
    assert_eq!(bytes.pop(), Some(0xfb));
    bytes.push(0xfd);
    assert_eq!(told_of(&bytes), expected);
}

/// Why a client that has sent `request` closes on `bytes`.
fn violation(request: &Request, bytes: &[u8]) -> Violation {
    let (told, is_open) = told(request, bytes);
    assert!(!is_open, "{told:?}");
    match told.last() {
        Some(Event::Closing {
            reason: CloseReason::Violation(violation),
        }) => *violation,
        _ => panic!("{told:?}"),
    }
}

fn content(message: u8, fault: Fault) -> Violation {
    Violation::Content { message, fault }
}

fn too_long(what: &'static str, length: usize, limit: usize) -> Fault {
    Fault::TooLong {
        what,
        length: length as u64,
        limit: limit as u64,
    }
}

#[test]
fn a_broker_that_breaks_the_protocol_is_left() {
    let id = 1_u32.to_le_bytes();
    let header = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
    let one = [&id[..], &[1, 1, b't', 1, 0, 0, 0]].concat();
    let chunk_of = |length: u32| {
        let head = [&one[..], &[0; 8], &[0; 8], &length.to_le_bytes()].concat();
        [&header(head.len())[..], &head].concat()
    };
    let huge = {
        let mut answer = chunk_of(6);
        answer.extend([0xff, 0xff, 0xff, 0x7f, 0, 0]);
        frame(CONSUME, &answer)
    };
    let cases: Vec<(&str, Vec<u8>, Violation)> = vec![
        ("message 0", claim(0, 0), Violation::Message(0)),
        ("message 4, of brokers", claim(4, 0), Violation::Message(4)),
        ("message 5, of clients", claim(5, 0), Violation::Message(5)),
        ("message 13", claim(13, 0), Violation::Message(13)),
        ("a Ping with content", claim(3, 1), content(3, too_long("it", 1, 0))),
        (
            "too long an answer",
            claim(1, MAX_ANSWER + 1),
            content(1, too_long("it", MAX_ANSWER + 1, MAX_ANSWER)),
        ),
        (
            "too long a header",
            [&claim(CONSUME, MAX_ANSWER)[..], &header(MAX_HEADER + 1)].concat(),
            content(CONSUME, too_long("its header", MAX_HEADER + 1, MAX_HEADER)),
        ),
        (
            "a header over the frame",
            frame(CONSUME, &header(9)),
            content(CONSUME, Fault::Cut { missing: 9 }),
        ),
        (
            "no header",
            frame(CONSUME, &[0; 3]),
            content(CONSUME, Fault::Cut { missing: 1 }),
        ),
        (
            "no header, and another frame behind it",
            [frame(CONSUME, &[0; 1]), frame(PING, &[])].concat(),
            content(CONSUME, Fault::Cut { missing: 3 }),
        ),
        (
            "no topic",
            frame(CONSUME, &[&header(5)[..], &id, &[0]].concat()),
            content(CONSUME, Fault::Nothing),
        ),
        (
            "fewer bytes of bundles than stated",
            frame(CONSUME, &chunk_of(3)),
            content(CONSUME, Fault::Cut { missing: 3 }),
        ),
        (
            "more bytes of bundles than stated",
            frame(CONSUME, &[&chunk_of(0)[..], &[0; 3]].concat()),
            content(CONSUME, Fault::LeftOver(3)),
        ),
        (
            "too long a bundle",
            huge,
            content(CONSUME, too_long("a bundle", 0x0fff_ffff, MAX_BUNDLE)),
        ),
        (
            "a code that there is not",
            frame(
                CONSUME,
                &[&header(12)[..], &id, &[1, 1, b't', 1, 0, 0, 0x55, 0]].concat(),
            ),
            content(CONSUME, Fault::Code(0x55)),
        ),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(violation(&consume(&[0]), &bytes), expected, "{name}");
    }
    let cut = frame(1, &[&id[..], &[0]].concat());
    assert_eq!(violation(&produce(), &cut), content(1, Fault::Cut { missing: 1 }));
    let more = frame(1, &[&id[..], &[0, 0, 0]].concat());
    assert_eq!(violation(&produce(), &more), content(1, Fault::LeftOver(1)));
    let other = frame(7, &[&id[..], &[1, b't', 0]].concat());
    assert_eq!(
        violation(&produce(), &other),
        Violation::OtherAnswer { message: 7, id: 1 }
    );
}

#[test]
fn a_client_that_breaks_the_protocol_is_left() {
    let head = [&[0, 0][..], &9_u32.to_le_bytes(), &[0]].concat();
    let producing = |topics: &[u8]| frame(1, &[&head[..], &[0, 0, 0, 0, 0], topics].concat());
    let cases: Vec<(&str, Vec<u8>, Violation)> = vec![
        ("message 4", claim(4, 2), Violation::Message(4)),
        ("message 8", claim(8, 2), Violation::Message(8)),
        ("message 9", claim(9, 2), Violation::Message(9)),
        ("message 13", claim(13, 2), Violation::Message(13)),
        (
            "too long a request",
            claim(1, MAX_REQUEST + 1),
            content(1, too_long("it", MAX_REQUEST + 1, MAX_REQUEST)),
        ),
        ("no topic", producing(&[0]), content(1, Fault::Nothing)),
        ("no partition", producing(&[1, 1, b't', 0]), content(1, Fault::Nothing)),
        (
            "a bundle that is cut",
            producing(&[1, 1, b't', 1, 0, 0, 3, 4, 2]),
            content(1, Fault::Cut { missing: 1 }),
        ),
        (
            "too long a bundle",
            producing(&[1, 1, b't', 1, 0, 0, 0xff, 0xff, 0xff, 0x7f]),
            content(1, too_long("a bundle", 0x0fff_ffff, MAX_BUNDLE)),
        ),
        (
            "a name that is no text",
            frame(6, &[&9_u32.to_le_bytes()[..], &[1, 0xff]].concat()),
            content(6, Fault::Name),
        ),
        (
            "more than a request",
            frame(10, &[&9_u32.to_le_bytes()[..], &[0]].concat()),
            content(10, Fault::LeftOver(1)),
        ),
    ];
    for (name, bytes, expected) in cases {
        let told = every_split(&bytes, |pieces| {
            let now = Instant::now();
            let mut server = Connection::server(ServerConfig::default(), now);
            for piece in pieces {
                receive(&mut server, piece, now);
            }
            events(&mut server)
        });
        let reason = CloseReason::Violation(expected);
        assert_eq!(told, [Event::Closing { reason }], "{name}");
    }
}

#[test]
fn no_memory_is_set_aside_for_what_is_only_claimed() {
    let now = Instant::now();
    let mut server = Connection::server(ServerConfig::default(), now);
    receive(&mut server, &claim(1, MAX_REQUEST), now);
    let mut room = 0;
    for _ in 0..3 {
        room = room.max(bytes::BufMut::remaining_mut(&server.recv_buffer()));
    }
    assert!(room <= 64 * 1024, "{room} bytes for a claim");
    assert!(server.held_bytes() < 1_000);
}

#[test]
fn a_client_waits_for_the_greeting_and_no_longer() {
    let start = Instant::now();
    let mut client = Connection::client(ClientConfig::default(), start);
    let by = start + Duration::from_secs(2);
    assert_eq!(client.poll_timeout(), Some(by));
    client.handle_timeout(by - Duration::from_millis(1));
    assert!(client.core.is_open());
    client.handle_timeout(by);
    let reason = CloseReason::NotGreeted(Duration::from_secs(2));
    assert_eq!(events(&mut client), [Event::Closing { reason }]);
    assert!(client.is_closed());
    // One that is greeted waits for nothing more.
    let mut greeted = self::client(start);
    assert_eq!(greeted.poll_timeout(), None);
    receive(&mut greeted, &GREETING, start);
    assert_eq!(events(&mut greeted), [], "later Pings are nothing new");
}

#[test]
fn a_request_runs_out_of_time_and_its_late_answer_is_nobodys() {
    let start = Instant::now();
    let mut client = client(start);
    client.send(&produce(), 1, start).unwrap();
    client.send(&consume(&[0]), 2, start).unwrap();
    let at = |seconds| start + Duration::from_secs(seconds);
    // A second of waiting, and ten.
    assert_eq!(client.poll_timeout(), Some(at(11)));
    transmitted(&mut client, start);
    client.handle_timeout(at(11));
    let late = |user| Event::CallFailed {
        user,
        failure: CallFailure::DeadlineExceeded,
        bytes_sent: true,
    };
    assert_eq!(events(&mut client), [late(2)]);
    assert_eq!(client.poll_timeout(), Some(at(32)));
    let bytes = consumed(2, vec![data(0, vec![framed(&bundle(b"late"))])]);
    receive(&mut client, &bytes, at(12));
    assert_eq!(events(&mut client), []);
    assert_eq!(client.stats().unknown_answers, 1);
    client.handle_timeout(at(32));
    assert_eq!(events(&mut client), [late(1)]);
    receive(&mut client, &frame(1, &[1, 0, 0, 0, 0, 0]), at(33));
    assert_eq!(client.stats().unknown_answers, 2);
    assert!(client.core.is_open());
}

#[test]
fn a_long_answer_has_time_for_each_bundle() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut client = client(start);
    client.send(&consume(&[0]), 1, start).unwrap();
    transmitted(&mut client, start);
    let bundles = vec![framed(&bundle(b"one")), framed(&bundle(b"two"))];
    let length = bundles[1].len();
    let bytes = consumed(1, vec![data(0, bundles)]);
    let (head, tail) = bytes.split_at(bytes.len() - length);
    receive(&mut client, head, at(9));
    assert_eq!(events(&mut client).len(), 2);
    client.handle_timeout(at(18));
    assert_eq!(client.own_calls(), 1, "nine seconds after the first bundle");
    // The rest comes too late: the request is over, and the connection goes on.
    client.handle_timeout(at(19));
    assert!(matches!(events(&mut client)[..], [Event::CallFailed { user: 1, .. }]));
    receive(&mut client, tail, at(20));
    assert_eq!(events(&mut client), []);
    assert!(client.core.is_open() && !client.is_mid_frame());
}

#[test]
fn an_idle_connection_ends_in_order_and_another_does_not() {
    use sbp_wire::Reason;
    let now = Instant::now();
    let mut idle = client(now);
    idle.handle_eof(now);
    assert!(idle.close_reason().unwrap().is_orderly());
    let mut waiting = client(now);
    waiting.send(&produce(), 3, now).unwrap();
    transmitted(&mut waiting, now);
    waiting.handle_eof(now);
    let failed = Event::CallFailed {
        user: 3,
        failure: CallFailure::ConnectionClosed,
        bytes_sent: true,
    };
    let reason = CloseReason::Peer { is_idle: false };
    assert!(!reason.is_orderly());
    assert_eq!(events(&mut waiting), [failed, Event::Closing { reason }]);
    let mut amid = client(now);
    receive(&mut amid, &GREETING[..3], now);
    amid.handle_eof(now);
    assert!(!amid.close_reason().unwrap().is_orderly());
}

#[test]
fn requests_that_never_left_are_told_apart() {
    let now = Instant::now();
    let mut client = client(now);
    client.send(&produce(), 1, now).unwrap();
    client.send(&produce(), 2, now).unwrap();
    let mut slices = [std::io::IoSlice::new(&[]); 2];
    client.transmit(&mut slices);
    client.handle_written(1, now);
    client.handle_transport_error(std::io::ErrorKind::ConnectionReset.into(), now);
    let sent: Vec<_> = events(&mut client)
        .into_iter()
        .filter_map(|event| match event {
            Event::CallFailed { user, bytes_sent, .. } => Some((user, bytes_sent)),
            _ => None,
        })
        .collect();
    assert_eq!(sent, [(1, true), (2, false)]);
    assert_eq!(client.send(&produce(), 4, now), Err(Refused::Closed));
}

#[test]
fn a_peer_that_takes_nothing_is_left() {
    let start = Instant::now();
    let mut client = client(start);
    client.send(&produce(), 1, start).unwrap();
    client.handle_timeout(start + Patience::default().stall);
    let stalled = |event: &Event| {
        matches!(
            event,
            Event::Closing {
                reason: CloseReason::Stalled(_)
            }
        )
    };
    assert!(events(&mut client).iter().any(stalled));
}

#[test]
fn a_broker_pings_when_it_has_had_nothing_to_say() {
    let start = Instant::now();
    let mut server = Connection::server(ServerConfig::default(), start);
    assert_eq!(transmitted(&mut server, start), GREETING);
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(server.poll_timeout(), Some(at(10)));
    server.handle_timeout(at(10));
    assert_eq!(transmitted(&mut server, at(10)), GREETING);
    assert_eq!(server.poll_timeout(), Some(at(20)));
    // Its client may ping too, and a request that comes first is served.
    receive(&mut server, &GREETING, at(11));
    assert_eq!((events(&mut server), server.stats().pings), (vec![], 1));
}

#[test]
fn a_broker_stops_reading_at_its_limits_and_goes_on_behind_them() {
    let now = Instant::now();
    let config = ServerConfig {
        calls: 2,
        ..ServerConfig::default()
    };
    let mut server = Connection::server(config, now);
    let status = frame(10, &[1, 0, 0, 0]);
    // In one read, so that more arrives than is taken.
    receive(&mut server, &status.repeat(5), now);
    let asked = events(&mut server);
    assert_eq!(asked.len(), 2);
    assert!(!server.wants_read());
    let Event::Request { call, .. } = asked[0] else {
        panic!("{asked:?}")
    };
    let answer = Answer::Status {
        topics: 0,
        partitions: 0,
        version: 400,
    };
    server.answer(call, &answer, now).unwrap();
    assert_eq!(events(&mut server).len(), 1);
    assert_eq!(server.answer(call, &answer, now), Err(Refused::UnknownCall));
    assert_eq!(server.peer_calls(), 2);
}
