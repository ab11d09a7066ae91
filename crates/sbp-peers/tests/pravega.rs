//! The client of Pravega with a segment store over sockets, which is the server's end of the same crate: what each says is what
//! real peers say is shown by `sbp-pravega`, and `pravega_server.rs` has a real server.

mod store;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use sbp_peers::pravega::{
    ClientConfig, End, Gap, MAX_EVENT, NewEvent, Pravega, PravegaConfig, PravegaErrorKind, ReadPart, Reader, Segment,
    Start, StreamName,
};
use sbp_pravega::Reply;
use tokio::runtime::Handle;
use tokio::time::timeout;

use self::store::{TestStore, Trouble};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("it takes too long")
}

fn config() -> PravegaConfig {
    PravegaConfig {
        write_patience: Duration::from_secs(10),
        ..PravegaConfig::default()
    }
}

fn client(store: &TestStore) -> Pravega {
    Pravega::direct(&store.address, config(), Handle::current())
}

fn stream() -> StreamName {
    StreamName::parse("sc/st").expect("a name")
}

fn segment(number: i32) -> Segment {
    Segment::parse(&format!("sc/st/{number}.#epoch.0")).expect("a name")
}

fn event(content: &str, key: Option<&str>) -> NewEvent {
    NewEvent {
        content: Bytes::copy_from_slice(content.as_bytes()),
        key: key.map(str::to_owned),
    }
}

fn numbered(numbers: std::ops::Range<usize>) -> Vec<NewEvent> {
    numbers.map(|number| event(&format!("event-{number}"), None)).collect()
}

/// The next events of a reader: segment, offset and content.
async fn step(reader: &mut Reader) -> Option<Vec<(i64, i64, String)>> {
    let read = soon(reader.next_batch()).await.expect("it reads")?;
    let records = read.batch.records().expect("records");
    let events = records.map(|record| {
        let value = record.value.expect("a value");
        (
            read.segment.id.0,
            record.offset.0,
            String::from_utf8_lossy(value).into_owned(),
        )
    });
    Some(events.collect())
}

async fn read_all(reader: &mut Reader) -> Vec<(i64, i64, String)> {
    let mut all = Vec::new();
    while let Some(events) = step(reader).await {
        all.extend(events);
    }
    all.sort();
    all
}

async fn contents(client: &Pravega) -> Vec<String> {
    let name = stream();
    let reader = client.read(&name, Start::Earliest, End::Latest);
    let mut reader = soon(reader).await.expect("a reader");
    let all = read_all(&mut reader).await;
    all.into_iter().map(|(_, _, content)| content).collect()
}

#[tokio::test]
async fn events_are_written_and_read_again() {
    let store = TestStore::start();
    let client = client(&store);
    soon(client.connect()).await.expect("it answers");
    soon(client.create_stream(&stream(), 2)).await.expect("made");
    let again = soon(client.create_stream(&stream(), 2)).await.expect_err("it exists");
    assert_eq!((again.kind(), again.code()), (PravegaErrorKind::Refused, 9505));
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    // The positions of these keys are below and above a half.
    soon(writer.append(vec![event("one", Some("k1")), event("two", Some("k2"))]))
        .await
        .expect("stored");
    soon(writer.append(vec![event("three", Some("k1")), event("", Some("k1"))]))
        .await
        .expect("stored");
    soon(writer.close()).await;
    let mut reader = soon(client.read(&stream(), Start::Earliest, End::Latest))
        .await
        .expect("a reader");
    let read = |segment, offset, content: &str| (segment, offset, content.to_owned());
    assert_eq!(
        read_all(&mut reader).await,
        [
            read(0, 0, "one"),
            read(0, 11, "three"),
            read(0, 24, ""),
            read(1, 0, "two")
        ]
    );
    let part = ReadPart {
        segment: segment(0),
        start: Start::At(11),
        end: End::At(24),
    };
    let mut reader = soon(client.read_parts(&[part])).await.expect("a reader");
    assert_eq!(read_all(&mut reader).await, [read(0, 11, "three")]);
    soon(client.close()).await;
    let error = soon(client.connect()).await.expect_err("it is closed");
    assert_eq!((error.kind(), error.is_retriable()), (PravegaErrorKind::Lost, false));
}

#[tokio::test]
async fn each_event_is_stored_once_whatever_is_lost() {
    for trouble in [Trouble::StoredAndLost, Trouble::Lost, Trouble::HalfAcknowledged] {
        let store = TestStore::start();
        let client = client(&store);
        soon(client.create_stream(&stream(), 1)).await.expect("made");
        let writer = soon(client.writer(&stream())).await.expect("a writer");
        store.edit(|state| state.troubles = vec![trouble; 3]);
        for round in 0..5 {
            let events = numbered(3 * round..3 * round + 3);
            soon(writer.append(events)).await.expect("stored");
        }
        soon(writer.close()).await;
        let expected: Vec<_> = (0..15).map(|number| format!("event-{number}")).collect();
        assert_eq!(contents(&client).await, expected);
        assert_eq!(store.edit(|state| state.troubles.len()), 0, "it went wrong each time");
    }
}

#[tokio::test]
async fn what_comes_while_an_append_is_in_flight_goes_with_the_next() {
    let store = TestStore::start();
    let client = client(&store);
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    let appends = (0..200).map(|number| writer.append(numbered(number..number + 1)));
    soon(futures_of(appends.collect())).await;
    assert_eq!(contents(&client).await.len(), 200);
    let appends = store.edit(|state| state.appends);
    assert!(appends < 20, "{appends} appends for 200 events");
    // A list of more than an append takes.
    soon(writer.append(numbered(200..2_000))).await.expect("stored");
    let expected: Vec<_> = (0..2_000).map(|number| format!("event-{number}")).collect();
    assert_eq!(contents(&client).await, expected);
    soon(writer.close()).await;
}

/// All of these, side by side.
async fn futures_of<F: Future<Output = Result<(), E>>, E: std::fmt::Debug>(futures: Vec<F>) {
    let mut left: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        left.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(ended) => {
                ended.expect("stored");
                false
            }
            std::task::Poll::Pending => true,
        });
        match left.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_away_is_waited_for() {
    let store = TestStore::start();
    let client = client(&store);
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    let mut reader = soon(client.read(&stream(), Start::Earliest, End::Never))
        .await
        .expect("a reader");
    soon(writer.append(numbered(0..2))).await.expect("stored");
    assert_eq!(step(&mut reader).await.expect("events").len(), 2);
    let address = store.address.clone();
    let state = std::sync::Arc::clone(&store.state);
    drop(store);
    let state = std::mem::take(&mut *state.lock().expect("nobody panics with it"));
    let (appended, ()) = tokio::join!(soon(writer.append(numbered(2..4))), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _store = TestStore::at(&address, state);
        let events = step(&mut reader).await.expect("events");
        assert_eq!(events[0].2, "event-2");
    });
    appended.expect("stored");
}

#[tokio::test]
async fn a_writer_gives_up_in_the_end_and_says_what_it_knows() {
    let store = TestStore::start();
    let config = PravegaConfig {
        write_patience: Duration::from_millis(300),
        ..config()
    };
    let client = Pravega::direct(&store.address, config, Handle::current());
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    soon(writer.append(numbered(0..1))).await.expect("stored");
    drop(store);
    let error = soon(writer.append(numbered(1..2))).await.expect_err("it is gone");
    assert_eq!((error.kind(), error.code()), (PravegaErrorKind::Lost, 9506));
    soon(writer.close()).await;
    let after = soon(writer.append(numbered(1..2))).await.expect_err("it is closed");
    assert_eq!(after.kind(), PravegaErrorKind::Lost);
}

#[tokio::test]
async fn reads_may_end_anywhere() {
    let store = TestStore::start();
    let client = client(&store);
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    soon(writer.append(numbered(0..50))).await.expect("stored");
    let expected: Vec<_> = (0..50).map(|number| format!("event-{number}")).collect();
    for piece in [1, 3, 8, 13, 100] {
        store.edit(|state| state.piece = piece);
        assert_eq!(contents(&client).await, expected, "{piece} bytes at a time");
    }
}

#[tokio::test]
async fn a_truncated_segment_is_a_gap_and_goes_on_behind_it() {
    let store = TestStore::start();
    let client = client(&store);
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    soon(writer.append(numbered(0..3))).await.expect("stored");
    let mut reader = soon(client.read(&stream(), Start::Earliest, End::Latest))
        .await
        .expect("a reader");
    soon(client.truncate_segment(&segment(0), 30)).await.expect("truncated");
    let error = soon(reader.next_batch()).await.expect_err("they are gone");
    assert_eq!((error.kind(), error.code()), (PravegaErrorKind::OutOfRange, 9508));
    assert_eq!(error.gap(), Some(Gap { from: 0, to: 30 }));
    assert_eq!(error.place(), Some("sc/st/0.#epoch.0"));
    assert_eq!(
        step(&mut reader).await.expect("events"),
        [(0, 30, String::from("event-2"))]
    );
    assert_eq!(step(&mut reader).await, None);
    // Who begins at the beginning begins where it is now.
    let part = ReadPart {
        segment: segment(0),
        start: Start::Earliest,
        end: End::Latest,
    };
    let mut reader = soon(client.read_parts(&[part])).await.expect("a reader");
    assert_eq!(read_all(&mut reader).await.len(), 1);
}

#[tokio::test]
async fn a_sealed_stream_ends_and_takes_nothing_more() {
    let store = TestStore::start();
    let client = client(&store);
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    soon(writer.append(numbered(0..1))).await.expect("stored");
    let mut reader = soon(client.read(&stream(), Start::Earliest, End::Never))
        .await
        .expect("a reader");
    assert!(step(&mut reader).await.is_some());
    soon(client.seal_stream(&stream())).await.expect("sealed");
    assert_eq!(step(&mut reader).await, None, "it ends where it is sealed");
    let error = soon(writer.append(numbered(1..2))).await.expect_err("it is sealed");
    assert_eq!((error.kind(), error.is_certain()), (PravegaErrorKind::Refused, true));
    soon(writer.close()).await;
    // Not with an event.
    store.segment("sc/st/0.#epoch.0", |segment| segment.data.extend([0, 0, 0, 0, 0]));
    let mut reader = soon(client.read(&stream(), Start::Earliest, End::Never))
        .await
        .expect("a reader");
    assert!(step(&mut reader).await.is_some());
    let error = soon(reader.next_batch()).await.expect_err("it is cut");
    assert_eq!(
        (error.kind(), error.code(), error.offset()),
        (PravegaErrorKind::Framing, 9501, Some(15))
    );
    assert_eq!(step(&mut reader).await, None);
}

#[tokio::test]
async fn bytes_that_are_no_events_are_told_behind_those_that_are() {
    let store = TestStore::start();
    let client = client(&store);
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    soon(writer.append(numbered(0..1))).await.expect("stored");
    store.segment("sc/st/0.#epoch.0", |segment| {
        segment.data.extend(b"raw bytes of a byte stream")
    });
    let mut reader = soon(client.read(&stream(), Start::Earliest, End::Latest))
        .await
        .expect("a reader");
    assert_eq!(step(&mut reader).await.expect("events").len(), 1);
    let error = soon(reader.next_batch()).await.expect_err("no event");
    assert_eq!((error.kind(), error.offset()), (PravegaErrorKind::Framing, Some(15)));
    assert_eq!(step(&mut reader).await, None, "nothing behind them can be read");
}

#[tokio::test]
async fn what_is_not_there_or_too_large_or_odd_is_told() {
    let store = TestStore::start();
    let client = client(&store);
    let kind = |error: sbp_peers::pravega::PravegaError| (error.kind(), error.code());
    let unknown = (PravegaErrorKind::UnknownName, 9507);
    assert_eq!(kind(soon(client.writer(&stream())).await.expect_err("none")), unknown);
    let name = stream();
    let read = client.read(&name, Start::Earliest, End::Latest);
    assert_eq!(kind(soon(read).await.expect_err("none")), unknown);
    assert_eq!(kind(StreamName::parse("st").expect_err("no scope")), unknown);
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    let large = NewEvent {
        content: Bytes::from(vec![0; MAX_EVENT + 1]),
        key: None,
    };
    let error = soon(writer.append(vec![large])).await.expect_err("too large");
    assert_eq!(kind(error), (PravegaErrorKind::Limit, 9502));
    let large = NewEvent {
        content: Bytes::from(vec![7; MAX_EVENT]),
        key: None,
    };
    soon(writer.append(vec![large])).await.expect("stored");
    // A reply to something else.
    store.edit(|state| state.answer = Some(Reply::Created(String::from("x"))));
    let error = soon(client.segment_info(&segment(0))).await.expect_err("odd");
    assert_eq!(kind(error), (PravegaErrorKind::Peer, 9504));
    // A failure.
    let failure = Reply::Error {
        segment: String::from("x"),
        message: String::from("out of luck"),
        code: 7,
    };
    store.edit(|state| state.answer = Some(failure));
    let error = soon(client.segment_info(&segment(0))).await.expect_err("a failure");
    assert!(
        error.is_retriable() && error.to_string().contains("out of luck"),
        "{error}"
    );
    assert_eq!(kind(error), (PravegaErrorKind::Refused, 9505));
    assert_eq!(
        kind(soon(client.scopes()).await.expect_err("none")),
        (PravegaErrorKind::Refused, 9505)
    );
}

#[tokio::test]
async fn a_server_that_says_nothing_or_something_else_is_none() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let impatient = PravegaConfig {
        client: ClientConfig {
            greeting: Duration::from_millis(200),
            ..ClientConfig::default()
        },
        ..config()
    };
    let client = Pravega::direct(&address, impatient, Handle::current());
    let error = soon(client.connect()).await.expect_err("it says nothing");
    assert_eq!((error.kind(), error.is_certain()), (PravegaErrorKind::Lost, true));
    assert!(error.to_string().contains("Hello"), "{error}");
    soon(client.close()).await;
    drop(silent);
    let client = Pravega::direct(&address, config(), Handle::current());
    let error = soon(client.connect()).await.expect_err("nobody listens");
    assert_eq!((error.kind(), error.is_retriable()), (PravegaErrorKind::Lost, true));
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    let web = std::thread::spawn(move || {
        let (mut socket, _) = other.accept().expect("a client");
        std::io::Write::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it is written");
        // Until the client has read it and hangs up.
        let mut rest = Vec::new();
        let _ended = std::io::Read::read_to_end(&mut socket, &mut rest);
    });
    let client = Pravega::direct(&address, config(), Handle::current());
    let error = soon(client.connect()).await.expect_err("it is something else");
    assert_eq!(error.kind(), PravegaErrorKind::Peer);
    soon(client.close()).await;
    web.join().expect("it ends");
}

#[tokio::test]
async fn a_delegation_token_goes_with_every_request() {
    let store = TestStore::start();
    store.edit(|state| state.token = String::from("a token"));
    let with = |token: &str| {
        let config = PravegaConfig {
            token: token.to_owned(),
            ..config()
        };
        Pravega::direct(&store.address, config, Handle::current())
    };
    let client = with("a token");
    soon(client.create_stream(&stream(), 1)).await.expect("made");
    let writer = soon(client.writer(&stream())).await.expect("a writer");
    soon(writer.append(numbered(0..2))).await.expect("stored");
    soon(writer.close()).await;
    assert_eq!(contents(&client).await, ["event-0", "event-1"]);
    soon(client.truncate_segment(&segment(0), 0)).await.expect("truncated");
    soon(client.seal_stream(&stream())).await.expect("sealed");
    let stranger = with("another");
    let error = soon(stranger.segment_info(&segment(0))).await.expect_err("refused");
    assert_eq!((error.kind(), error.code()), (PravegaErrorKind::Refused, 9505));
    assert!(error.to_string().contains("delegation token"), "{error}");
    assert!(!error.is_retriable(), "{error}");
}
