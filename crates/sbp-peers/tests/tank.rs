//! The client of TANK brokers with a broker that somebody else could have written: a program in Python, over sockets.

#[path = "../../../tests/tank/scripted.rs"]
mod scripted;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use sbp_peers::tank::{Broker, End, ReadOptions, Reader, Start, TankErrorKind};
use sbp_tank::{Message, PartitionBounds, TopicSummary, encode_bundle, encode_sparse_bundle};
use tokio::time::timeout;

use self::scripted::Scripted;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("it takes too long")
}

fn message<'a>(sequence: u64, key: Option<&'a [u8]>, content: &'a [u8]) -> Message<'a> {
    Message {
        sequence,
        time_ms: 1_700_000_000_123,
        key,
        content,
    }
}

fn bundle(contents: &[&[u8]]) -> Bytes {
    let messages: Vec<_> = contents.iter().map(|content| message(0, None, content)).collect();
    encode_bundle(&messages).expect("a bundle")
}

/// A message as it was read: its partition, number, key and content.
type Read = (u16, u64, Option<Vec<u8>>, Vec<u8>);

fn read(partition: u16, sequence: u64, content: &[u8]) -> Read {
    (partition, sequence, None, content.to_vec())
}

/// The next messages of a reader, at least so many.
async fn take(reader: &mut Reader, least: usize) -> Vec<Read> {
    let mut all = Vec::new();
    while all.len() < least {
        let Some(bundle) = soon(reader.next()).await.expect("it reads") else {
            break;
        };
        let mut add = |message: Message<'_>| {
            assert_eq!(message.time_ms, 1_700_000_000_123);
            let key = message.key.map(<[u8]>::to_vec);
            all.push((bundle.partition, message.sequence, key, message.content.to_vec()));
        };
        bundle.for_each(&mut add).expect("messages");
    }
    all
}

fn options(start: Start, end: End) -> ReadOptions {
    ReadOptions {
        partitions: Vec::new(),
        start,
        end,
    }
}

async fn read_all(broker: &Broker, topic: &str, start: Start, end: End) -> Vec<Read> {
    let mut reader = soon(broker.read(topic, &options(start, end))).await.expect("a reader");
    let mut all = take(&mut reader, usize::MAX).await;
    all.sort_by_key(|(partition, sequence, ..)| (*partition, *sequence));
    all
}

#[tokio::test]
async fn messages_are_produced_and_read_again() {
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    soon(broker.create_topic("orders", 2)).await.expect("made");
    let again = soon(broker.create_topic("orders", 2)).await.expect_err("it exists");
    assert_eq!((again.kind(), again.code()), (TankErrorKind::Refused, 9305));
    soon(broker.produce("orders", 0, bundle(&[b"a", b"b"])))
        .await
        .expect("stored");
    let keyed = encode_bundle(&[message(0, Some(b"key"), b"c")]).expect("a bundle");
    soon(broker.produce("orders", 0, keyed)).await.expect("stored");
    let large = vec![7; 300_000];
    soon(broker.produce("orders", 1, bundle(&[&large])))
        .await
        .expect("stored");
    let summary = TopicSummary {
        name: String::from("orders"),
        is_enabled: true,
        partitions: 2,
    };
    assert_eq!(soon(broker.topics()).await, Ok(vec![summary]));
    let bounds = |first, high_water| Some(PartitionBounds { first, high_water });
    assert_eq!(
        soon(broker.partitions("orders")).await,
        Ok(vec![bounds(1, 3), bounds(1, 1)])
    );
    let third = (0, 3, Some(b"key".to_vec()), b"c".to_vec());
    let all = [read(0, 1, b"a"), read(0, 2, b"b"), third.clone(), read(1, 1, &large)];
    assert_eq!(read_all(&broker, "orders", Start::Earliest, End::Latest).await, all);
    // From amid a bundle, and up to amid one.
    assert_eq!(
        read_all(&broker, "orders", Start::At(2), End::Latest).await,
        [read(0, 2, b"b"), third]
    );
    assert_eq!(
        read_all(&broker, "orders", Start::Earliest, End::At(2)).await,
        [read(0, 1, b"a"), read(1, 1, &large)]
    );
    assert_eq!(read_all(&broker, "orders", Start::Latest, End::Latest).await, []);
    soon(broker.close()).await;
    let closed = soon(broker.topics()).await.expect_err("closed");
    assert_eq!(closed.kind(), TankErrorKind::Lost);
}

#[tokio::test]
async fn a_reader_waits_for_what_comes() {
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    soon(broker.create_topic("t", 1)).await.expect("made");
    let mut reader = soon(broker.read("t", &options(Start::Latest, End::Never)))
        .await
        .expect("a reader");
    for number in 1..4_u8 {
        let (read_now, stored) = tokio::join!(take(&mut reader, 1), soon(broker.produce("t", 0, bundle(&[&[number]]))));
        stored.expect("stored");
        assert_eq!(read_now, [read(0, u64::from(number), &[number])]);
    }
}

#[tokio::test]
async fn bundles_that_are_cut_are_asked_for_again() {
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    soon(broker.create_topic("t", 1)).await.expect("made");
    // More than a first request asks for, and bytes that Snappy makes no shorter.
    let noise: Vec<u8> = (0..6_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0] ^ n.to_le_bytes()[1])
        .collect();
    let long: Vec<_> = noise
        .chunks(1_000)
        .flat_map(|piece| piece.iter().rev().copied())
        .collect();
    for content in [&b"short"[..], &long, b"last"] {
        soon(broker.produce("t", 0, bundle(&[content]))).await.expect("stored");
    }
    let all = read_all(&broker, "t", Start::Earliest, End::Latest).await;
    assert!(all == [read(0, 1, b"short"), read(0, 2, &long), read(0, 3, b"last")]);
}

#[tokio::test]
async fn numbers_may_have_gaps() {
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    soon(broker.create_topic("t", 1)).await.expect("made");
    let sparse = encode_sparse_bundle(&[
        message(10, None, b"a"),
        message(13, None, b"b"),
        message(20, None, b"c"),
    ]);
    soon(broker.produce("t", 0, sparse.expect("a bundle")))
        .await
        .expect("stored");
    soon(broker.produce("t", 0, bundle(&[b"d"]))).await.expect("stored");
    let all = [
        read(0, 10, b"a"),
        read(0, 13, b"b"),
        read(0, 20, b"c"),
        read(0, 21, b"d"),
    ];
    assert_eq!(read_all(&broker, "t", Start::Earliest, End::Latest).await, all);
    assert_eq!(read_all(&broker, "t", Start::At(11), End::At(21)).await, all[1..3]);
}

#[tokio::test]
async fn what_there_is_not_is_told() {
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    soon(broker.create_topic("t", 1)).await.expect("made");
    soon(broker.produce("t", 0, bundle(&[b"a"]))).await.expect("stored");
    for (topic, partition) in [("none", 0), ("t", 7)] {
        let error = soon(broker.produce(topic, partition, bundle(&[b"x"])))
            .await
            .expect_err("nowhere");
        assert_eq!(
            (error.kind(), error.is_certain()),
            (TankErrorKind::UnknownName, true),
            "{error}"
        );
    }
    let mut some = options(Start::Earliest, End::Latest);
    some.partitions = vec![7];
    let error = soon(broker.read("t", &some)).await.expect_err("no such partition");
    assert_eq!(error.kind(), TankErrorKind::UnknownName, "{error}");
    let mut beyond = soon(broker.read("t", &options(Start::At(9), End::At(20))))
        .await
        .expect("a reader");
    let error = soon(beyond.next()).await.expect_err("beyond the end");
    assert_eq!((error.kind(), error.code()), (TankErrorKind::OutOfRange, 9308));
    assert!(
        error
            .to_string()
            .contains("message 9 is not there: the first is 1, the last 1"),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_the_broker_closed_is_made_again() {
    let scripted = Scripted::start(&["--idle", "0.2"]);
    let broker = scripted.client();
    soon(broker.create_topic("t", 1)).await.expect("made");
    let mut connected = broker.watch_connected();
    for number in 1..4_u8 {
        // The broker closes it after a while without a request.
        soon(connected.wait_for(|connected| !connected))
            .await
            .expect("the broker is there");
        soon(broker.produce("t", 0, bundle(&[&[number]])))
            .await
            .expect("stored");
    }
    let all = read_all(&broker, "t", Start::Earliest, End::Latest).await;
    assert_eq!(all, [read(0, 1, &[1]), read(0, 2, &[2]), read(0, 3, &[3])]);
}

#[tokio::test]
async fn a_broker_that_is_gone_is_told_and_one_that_is_back_is_used() {
    let mut scripted = Scripted::start(&[]);
    let broker = scripted.client();
    soon(broker.create_topic("t", 1)).await.expect("made");
    scripted.stop();
    let error = soon(broker.topics()).await.expect_err("it is gone");
    assert_eq!((error.kind(), error.code()), (TankErrorKind::Lost, 9306), "{error}");
    let error = soon(broker.produce("t", 0, bundle(&[b"x"])))
        .await
        .expect_err("it is gone");
    assert!(error.is_certain(), "nothing was sent: {error}");
    let _again = Scripted::start(&["--port", &scripted.port]);
    // Attempts that have just failed are followed by a pause.
    soon(broker.create_topic("t", 1)).await.expect("it is empty");
}

#[tokio::test]
async fn a_peer_that_does_not_greet_is_no_broker() {
    let scripted = Scripted::start(&["--silent"]);
    let broker = scripted.client();
    let error = soon(broker.topics()).await.expect_err("no greeting");
    assert_eq!(error.kind(), TankErrorKind::Lost);
    assert!(error.to_string().contains("did not greet within 2s"), "{error}");
}

#[tokio::test]
async fn messages_are_found_by_their_time() {
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    soon(broker.create_topic("timed", 2)).await.expect("made");
    // Bundles of several sizes, several messages of one time, and numbers that compaction has left out.
    let mut all = Vec::new();
    let mut number = 1;
    for (place, count) in [1_u64, 7, 40, 2, 1, 300, 3].into_iter().enumerate() {
        let messages: Vec<_> = (0..count)
            .map(|within| {
                let of = number + within;
                let message = message(of, None, b"m");
                Message {
                    time_ms: 1_000 + of / 3 * 10,
                    ..message
                }
            })
            .collect();
        let bundle = encode_sparse_bundle(&messages).expect("a bundle");
        soon(broker.produce("timed", 1, bundle)).await.expect("produced");
        all.extend(messages.iter().map(|message| (message.sequence, message.time_ms)));
        number += count + 50 * u64::try_from(place % 2).expect("small");
    }
    let end = all.last().expect("some").0 + 1;
    for time in (980..all.last().expect("some").1 + 20).step_by(3) {
        let expected = all
            .iter()
            .find(|(_, at)| *at >= time)
            .map_or(end, |(number, _)| *number);
        let mut reader = soon(broker.read("timed", &options(Start::Time(time), End::Latest)))
            .await
            .expect("a reader");
        let mut first = None;
        if let Some(bundle) = soon(reader.next()).await.expect("it reads") {
            bundle
                .for_each(|message| {
                    first.get_or_insert(message.sequence);
                })
                .expect("messages");
        }
        assert_eq!(first, (expected < end).then_some(expected), "from {time} ms");
    }
    // Where there is none yet, the next one is.
    let mut reader = soon(broker.read("timed", &options(Start::Time(u64::MAX), End::Never)))
        .await
        .expect("a reader");
    soon(broker.produce("timed", 0, bundle(&[b"new"])))
        .await
        .expect("produced");
    assert_eq!(take(&mut reader, 1).await, [read(0, 1, b"new")]);
}
