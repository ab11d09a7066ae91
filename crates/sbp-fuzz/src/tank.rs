//! Both ends of a TANK connection: bytes in any pieces have one outcome.

use std::time::Instant;

use bytes::{BufMut, Bytes};
use sbp_tank::{
    Answer, ClientConfig, Connection, ConsumedFrom, Event, Produce, ProducedTo, Request, ServerConfig, Topic,
};
use sbp_wire::Endpoint;

/// What real peers said, and what each side of it says first.
const VECTORS: [&str; 9] = [
    include_str!("../../sbp-tank/tests/vectors/greeting.hex"),
    include_str!("../../sbp-tank/tests/vectors/create.hex"),
    include_str!("../../sbp-tank/tests/vectors/discover.hex"),
    include_str!("../../sbp-tank/tests/vectors/partitions.hex"),
    include_str!("../../sbp-tank/tests/vectors/produce.hex"),
    include_str!("../../sbp-tank/tests/vectors/produce-key.hex"),
    include_str!("../../sbp-tank/tests/vectors/consume.hex"),
    include_str!("../../sbp-tank/tests/vectors/sparse.hex"),
    include_str!("../../sbp-tank/tests/vectors/faults.hex"),
];

/// The first byte says who reads, and in pieces of how many bytes.
pub fn run(data: &[u8]) {
    let Some((&way, bytes)) = data.split_first() else {
        return;
    };
    let is_client = way & 1 == 1;
    let whole = play(is_client, bytes, usize::MAX);
    let step = (usize::from(way >> 1) + 1).max(bytes.len() / 512);
    assert_eq!(
        play(is_client, bytes, step),
        whole,
        "the pieces that bytes come in change what happens"
    );
}

/// What real peers said, as each side reads it.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, line) in VECTORS.iter().flat_map(|text| text.lines()).enumerate() {
        let Some((side, digits)) = line.split_once(' ') else {
            continue;
        };
        let way = u8::try_from(number).unwrap_or_default().wrapping_mul(14);
        let way = way & !1 | u8::from(side == "<");
        seeds.push([&[way], bytes(digits).as_slice()].concat());
    }
    seeds
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).filter_map(|place| digits.get(2 * place..2 * place + 2));
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// What happens when the bytes come in pieces of `step`. What is told is within what came.
fn play(is_client: bool, bytes: &[u8], step: usize) -> Vec<Event> {
    let now = Instant::now();
    let mut end = match is_client {
        true => client(now),
        false => Connection::server(ServerConfig::default(), now),
    };
    let mut told = Vec::new();
    for piece in bytes.chunks(step.min(bytes.len()).max(1)) {
        let mut left = piece;
        while !left.is_empty() {
            if !end.wants_read() {
                // At a limit it goes on once what it has told is answered; else it is closed.
                drain(&mut end, &mut told, now);
                if !end.wants_read() {
                    break;
                }
            }
            let mut buffer = end.recv_buffer();
            assert!(buffer.remaining_mut() > 0, "a buffer always has room");
            let (head, tail) = left.split_at(left.len().min(buffer.remaining_mut()));
            buffer.put_slice(head);
            end.handle_received(head.len(), now);
            left = tail;
        }
        drain(&mut end, &mut told, now);
        // Answers are longer than the shortest requests.
        assert!(
            end.held_bytes() <= 2 * bytes.len() + 64 * 1024,
            "more is held than came"
        );
    }
    let of_bundles: usize = told
        .iter()
        .map(|event| match event {
            Event::Bundle { bundle, .. } => bundle.len(),
            _ => 0,
        })
        .sum();
    assert!(of_bundles <= bytes.len(), "more was read than there is");
    told
}

/// Takes what there is to tell, and answers requests with something.
fn drain(end: &mut Connection, told: &mut Vec<Event>, now: Instant) {
    while let Some(event) = end.poll_event() {
        if let Event::Request { call, .. } = &event {
            let _ = end.answer(*call, &Answer::Topics(Vec::new()), now);
        }
        told.push(event);
    }
}

/// A client that has asked for everything there is, with ids from 1 on.
fn client(now: Instant) -> Connection {
    let mut client = Connection::client(ClientConfig::default(), now);
    let name = || String::from("demo");
    let from = |partition| ConsumedFrom {
        partition,
        sequence: 1,
        fetch_size: 1_000,
    };
    let to = |partition| ProducedTo {
        partition,
        first: 0,
        bundle: Bytes::from_static(&[4, 2, 0]),
    };
    let requests = [
        Request::Consume {
            topics: vec![Topic {
                name: name(),
                partitions: vec![from(0), from(1)],
            }],
            wait_ms: 0,
            min_bytes: 0,
        },
        Request::Produce(Produce {
            topics: vec![Topic {
                name: name(),
                partitions: vec![to(0), to(1)],
            }],
            is_numbered: false,
            acks: 0,
            ack_timeout_ms: 0,
        }),
        Request::DiscoverTopics,
        Request::DiscoverPartitions { topic: name() },
        Request::Status,
        Request::Topology,
    ];
    for (user, request) in (0..).zip(&requests) {
        client.send(request, user, now).expect("it fits");
    }
    client
}
