//! The client of Pravega with a real server: `tests/pravega/server.py` starts one, and runs these.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sbp_grpc::Channel;
use sbp_peers::pravega::{End, NewEvent, Pravega, PravegaConfig, PravegaErrorKind, Reader, Start, StreamName};
use sbp_pravega::controller::StreamInfo;
use sbp_transport::{Descriptors, LinkSettings};
use tokio::runtime::Handle;
use tokio::time::timeout;

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(120), future)
        .await
        .expect("it takes too long")
}

fn client() -> Pravega {
    let address = std::env::var("SBP_PRAVEGA").expect("SBP_PRAVEGA says where a controller is");
    Pravega::new(&address, PravegaConfig::default(), Handle::current()).expect("an address")
}

/// A scope that nobody has used.
fn scope(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    format!("{name}{}", now.as_nanos())
}

fn events(numbers: std::ops::Range<usize>) -> Vec<NewEvent> {
    let event = |number: usize| NewEvent {
        content: Bytes::from(format!("event-{number}")),
        key: Some(format!("key-{}", number % 50)),
    };
    numbers.map(event).collect()
}

async fn read_all(reader: &mut Reader) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(read) = soon(reader.next_batch()).await.expect("it reads") {
        for record in read.batch.records().expect("records") {
            all.push(String::from_utf8_lossy(record.value.expect("a value")).into_owned());
        }
    }
    all
}

/// Each event once, and those of one key in their order.
fn check(all: &[String], count: usize) {
    let numbers: Vec<usize> = all
        .iter()
        .map(|event| event["event-".len()..].parse().expect("a number"))
        .collect();
    for key in 0..50 {
        let of_key: Vec<_> = numbers.iter().copied().filter(|number| number % 50 == key).collect();
        let expected: Vec<_> = (0..count).filter(|number| number % 50 == key).collect();
        assert_eq!(of_key, expected, "key {key}");
    }
    assert_eq!(numbers.len(), count);
}

#[tokio::test]
#[ignore = "needs a server: make test-long"]
async fn events_are_written_and_read_through_the_controller() {
    let client = client();
    soon(client.connect()).await.expect("it answers");
    let scope = scope("rw");
    soon(client.create_scope(&scope)).await.expect("made");
    let again = soon(client.create_scope(&scope)).await.expect_err("it exists");
    assert_eq!(again.kind(), PravegaErrorKind::Refused);
    let stream = StreamName::parse(&format!("{scope}/st")).expect("a name");
    let none = soon(client.read(&stream, Start::Earliest, End::Latest))
        .await
        .expect_err("none");
    assert_eq!(none.kind(), PravegaErrorKind::UnknownName, "{none}");
    soon(client.create_stream(&stream, 2)).await.expect("made");
    assert!(soon(client.scopes()).await.expect("scopes").contains(&scope));
    assert!(soon(client.streams(&scope)).await.expect("streams").contains(&stream));
    let writer = soon(client.writer(&stream)).await.expect("a writer");
    soon(writer.append(events(0..3_000))).await.expect("stored");
    for number in 3_000..3_020 {
        soon(writer.append(events(number..number + 1))).await.expect("stored");
    }
    let large = NewEvent {
        content: Bytes::from(vec![b'x'; 8 << 20]),
        key: None,
    };
    soon(writer.append(vec![large])).await.expect("stored");
    let mut reader = soon(client.read(&stream, Start::Earliest, End::Latest))
        .await
        .expect("a reader");
    let mut all = read_all(&mut reader).await;
    assert_eq!(all.iter().filter(|event| event.len() == 8 << 20).count(), 1);
    all.retain(|event| event.len() < 100);
    check(&all, 3_020);
    // Behind the end, what comes then.
    let mut tail = soon(client.read(&stream, Start::Latest, End::Never))
        .await
        .expect("a reader");
    let (read, appended) = tokio::join!(soon(tail.next_batch()), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        soon(writer.append(events(7..8))).await
    });
    appended.expect("stored");
    let read = read.expect("it reads").expect("an event");
    let first = read.batch.records().expect("records").next().expect("an event");
    assert_eq!(first.value, Some(&b"event-7"[..]));
    // A stream that is sealed ends, and takes nothing more.
    soon(client.seal_stream(&stream)).await.expect("sealed");
    assert!(read_all(&mut tail).await.is_empty());
    let error = soon(writer.append(events(0..1))).await.expect_err("sealed");
    assert_eq!(
        (error.kind(), error.is_certain()),
        (PravegaErrorKind::Refused, true),
        "{error}"
    );
    soon(writer.close()).await;
    soon(client.delete_stream(&stream)).await.expect("deleted");
    soon(client.close()).await;
}

#[tokio::test]
#[ignore = "needs a server: make test-long"]
async fn a_truncated_segment_is_a_gap() {
    let client = client();
    let scope = scope("trunc");
    let stream = StreamName::parse(&format!("{scope}/st")).expect("a name");
    soon(client.create_scope(&scope)).await.expect("made");
    soon(client.create_stream(&stream, 1)).await.expect("made");
    let writer = soon(client.writer(&stream)).await.expect("a writer");
    soon(writer.append(events(0..10))).await.expect("stored");
    let mut reader = soon(client.read(&stream, Start::Earliest, End::Latest))
        .await
        .expect("a reader");
    let segment = soon(client.current_segments(&stream))
        .await
        .expect("segments")
        .remove(0)
        .segment;
    // Two events of 15 bytes.
    soon(client.truncate_segment(&segment, 30)).await.expect("truncated");
    assert_eq!(soon(client.segment_info(&segment)).await.expect("told").start, Some(30));
    let error = soon(reader.next_batch()).await.expect_err("they are gone");
    assert_eq!(error.gap().map(|gap| (gap.from, gap.to)), Some((0, 30)), "{error}");
    assert_eq!(read_all(&mut reader).await.len(), 8);
    soon(client.close()).await;
}

/// What is asked to replace segments of a stream by others.
#[derive(Clone, PartialEq, prost::Message)]
struct Scale {
    #[prost(message, optional, tag = "1")]
    stream: Option<StreamInfo>,
    #[prost(int64, repeated, tag = "2")]
    sealed: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    ranges: Vec<KeyRange>,
    #[prost(int64, tag = "4")]
    time: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyRange {
    #[prost(double, tag = "1")]
    low: f64,
    #[prost(double, tag = "2")]
    high: f64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Scaled {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Replaces all segments of a stream by two or by one, and waits until that is done.
async fn scale(client: &Pravega, stream: &StreamName, cuts: &[f64]) {
    let settings = LinkSettings {
        timeout: Duration::from_secs(10),
        tls: None,
        sockets: Descriptors::new(4),
    };
    let channel = Channel::new(client.address(), settings, None).expect("an address");
    let before = soon(client.current_segments(stream)).await.expect("segments");
    let ranges = cuts.windows(2).map(|two| KeyRange {
        low: two[0],
        high: two[1],
    });
    let request = Scale {
        stream: Some(StreamInfo {
            scope: stream.scope.clone(),
            stream: stream.stream.clone(),
        }),
        sealed: before.iter().map(|owned| owned.segment.id.0).collect(),
        ranges: ranges.collect(),
        time: 1,
    };
    let path = sbp_grpc::path("/io.pravega.controller.stream.api.grpc.v1.ControllerService/scale");
    let scaled: Scaled = soon(channel.call(path, request, Duration::from_secs(60)))
        .await
        .expect("an answer");
    assert_eq!(scaled.status, 0, "it has begun");
    let wanted = cuts.len() - 1;
    let done = async {
        loop {
            let now = client.current_segments(stream).await.expect("segments");
            if now.len() == wanted && now[0].segment.id != before[0].segment.id {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon(done).await;
}

#[tokio::test]
#[ignore = "needs a server: make test-long"]
async fn a_stream_that_scales_loses_nothing_and_keeps_the_order_of_each_key() {
    let client = client();
    let scope = scope("scale");
    let stream = StreamName::parse(&format!("{scope}/st")).expect("a name");
    soon(client.create_scope(&scope)).await.expect("made");
    soon(client.create_stream(&stream, 1)).await.expect("made");
    let writer = soon(client.writer(&stream)).await.expect("a writer");
    let mut tail = soon(client.read(&stream, Start::Earliest, End::Never))
        .await
        .expect("a reader");
    // Written meanwhile: one after the other, so that the segments are sealed under them.
    let write = async {
        for round in 0..400 {
            soon(writer.append(events(10 * round..10 * round + 10)))
                .await
                .expect("stored");
        }
    };
    let scale = async {
        scale(&client, &stream, &[0.0, 0.5, 1.0]).await;
        scale(&client, &stream, &[0.0, 1.0]).await;
    };
    tokio::join!(write, scale);
    soon(writer.append(events(4_000..4_010))).await.expect("stored");
    soon(writer.close()).await;
    soon(client.seal_stream(&stream)).await.expect("sealed");
    check(&read_all(&mut tail).await, 4_010);
    let mut reader = soon(client.read(&stream, Start::Earliest, End::Latest))
        .await
        .expect("a reader");
    check(&read_all(&mut reader).await, 4_010);
    soon(client.close()).await;
}

/// Events that another client has written: `tests/pravega/server.py` has the package `pravega` write them.
#[tokio::test]
#[ignore = "needs a server: make test-long"]
async fn events_of_another_client_are_read() {
    let client = client();
    let stream = StreamName::parse("wheel/st").expect("a name");
    let mut reader = soon(client.read(&stream, Start::Earliest, End::Latest))
        .await
        .expect("a reader");
    let all = read_all(&mut reader).await;
    let mut numbers: Vec<usize> = all
        .iter()
        .map(|event| event["event-".len()..].parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    soon(client.close()).await;
}
