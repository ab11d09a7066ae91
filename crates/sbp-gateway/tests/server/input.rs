//! Bytes that no client sends.

use sbp_e2e::clients::{client, contents, stream_ids};
use sbp_e2e::servers;
use sbp_tank::MAX_REQUEST;

use super::raw::{Raw, frame, name};
use super::{bundle, tank};

fn varint(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

/// A Produce with these bundles for partitions 0 and so on of a topic.
fn produce(topic: &str, bundles: &[&[u8]]) -> Vec<u8> {
    let mut payload = head();
    payload.extend(
        [
            &[1, 0, 0, 0, 0, 1][..],
            &name(topic),
            &[u8::try_from(bundles.len()).unwrap()],
        ]
        .concat(),
    );
    for (partition, bundle) in bundles.iter().enumerate() {
        payload.extend(u16::try_from(partition).unwrap().to_le_bytes());
        payload.extend(varint(u32::try_from(bundle.len()).unwrap()));
        payload.extend(*bundle);
    }
    frame(1, &payload)
}

/// Version, id and client of a request.
fn head() -> Vec<u8> {
    [&2_u16.to_le_bytes()[..], &5_u32.to_le_bytes(), &name("raw")].concat()
}

/// A head that claims so many bytes.
fn claim(message: u8, length: usize) -> Vec<u8> {
    [&[message][..], &u32::try_from(length).unwrap().to_le_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_ends_its_connection_and_no_other() {
    let server = servers::start(None);
    let client = client(server.address());
    let tank = tank(&client);
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    for message in [1, 2, 5, 6, 7, 10, 11, 12] {
        cases.push((format!("{message}, too long"), claim(message, MAX_REQUEST + 1)));
        cases.push((format!("{message}, far too long"), claim(message, u32::MAX as usize)));
        cases.push((format!("{message}, empty"), frame(message, &[])));
    }
    for message in [0, 4, 8, 9, 13, 14, 127, 128, 255] {
        cases.push((format!("unknown {message}, empty"), frame(message, &[])));
        cases.push((format!("unknown {message}, with content"), frame(message, &[0; 20])));
    }
    cases.push(("a ping with content".to_owned(), frame(3, &[0])));
    for (what, topics) in [
        ("no topics", &[0][..]),
        ("a topic without partitions", &[1, 1, b't', 0][..]),
    ] {
        let to_produce = [&head()[..], &[1, 0, 0, 0, 0], topics].concat();
        let to_consume = [&head()[..], &[0; 12], topics].concat();
        for (message, payload) in [(1, &to_produce), (5, &to_produce), (2, &to_consume)] {
            cases.push((format!("{what} of {message}"), frame(message, payload)));
        }
    }
    let longer = [produce("t", &[b"x"]), vec![0]].concat();
    let length = longer.len() - 5;
    let longer = [claim(1, length), longer[5..].to_vec()].concat();
    cases.push(("more than it says".to_owned(), longer));
    let mut other = Raw::connect(tank.address()).await;
    for (what, bytes) in cases {
        // In front of it is what is served, and behind it what is not looked at any more.
        let mut bad = Raw::connect(tank.address()).await;
        bad.is_served().await;
        bad.send(&[&bytes[..], &frame(10, &[1, 0, 0, 0])].concat()).await;
        bad.is_closed(&what).await;
        other.is_served().await;
    }
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

/// Flags, and messages that are said to be compressed.
fn compressed(count: u8, stored: &[u8]) -> Vec<u8> {
    [&[1 | (count << 2)][..], stored].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_that_lie_are_refused_and_the_others_of_a_request_are_stored() {
    let server = servers::start(None);
    let client = client(server.address());
    let ids = stream_ids(&client, &["t/0", "t/1", "t/2"]).await;
    let tank = tank(&client);
    // A literal of one byte behind the length that it is said to have.
    let claims = |length: u32| compressed(1, &[&varint(length)[..], b"\0x"].concat());
    let counts = |count: u32, body: &[u8]| [&[0][..], &varint(count), body].concat();
    // Two messages of two bytes each: no key, the time of the one before, no content.
    let messages: [u8; 4] = [2, 0, 2, 0];
    let lies: Vec<(&str, Vec<u8>)> = vec![
        ("Snappy claims more than a bundle may have", claims((64 << 20) + 1)),
        ("Snappy claims all that it can", claims(u32::MAX)),
        ("Snappy claims more than can come of so few bytes", claims(60 << 20)),
        ("Snappy claims more than comes", claims(40)),
        ("Snappy claims less than comes", claims(0)),
        ("Snappy has no length", compressed(1, &[0xff, 0xff])),
        ("Snappy has nothing", compressed(1, &[])),
        ("messages beyond half of the bytes", counts(3, &messages)),
        ("very many messages", counts(u32::MAX, &messages)),
        ("no messages", counts(0, &messages)),
        (
            "messages beyond half of the decompressed bytes",
            compressed(3, &[4, 3 << 2, 2, 0, 2, 0]),
        ),
        ("a count that does not end", vec![0, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("a codec that there is not", [&[2 | (1 << 2)][..], &messages].concat()),
        ("a bit that is never set", [&[0x80 | (2 << 2)][..], &messages].concat()),
        ("nothing", Vec::new()),
    ];
    let good = bundle(&["good"]);
    let mut raw = Raw::connect(tank.address()).await;
    let expected = lies.len();
    for (what, lie) in lies {
        raw.send(&produce("t", &[&good, &lie, &good, &good])).await;
        let (message, answer) = raw.answer().await;
        // Stored, refused, stored, and a partition that there is not.
        assert_eq!((message, &answer[..]), (1, &[5, 0, 0, 0, 0, 2, 0, 1][..]), "{what}");
    }
    for (id, count) in [(ids[0], expected), (ids[1], 0), (ids[2], expected)] {
        let stored = contents(&client, id).await;
        assert_eq!(stored.len(), count);
        assert!(stored.iter().all(|(_, value)| value == "good"));
    }
    // What is like those and tells the truth is stored.
    let (plain, packed) = (counts(2, &messages), compressed(2, &[4, 3 << 2, 2, 0, 2, 0]));
    raw.send(&produce("t", &[&plain, &packed])).await;
    assert_eq!(raw.answer().await, (1, vec![5, 0, 0, 0, 0, 0]));
    assert_eq!(contents(&client, ids[1]).await.len(), 2);
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
