//! Streams of Pravega come into streams: with real servers, and a controller and a segment store for tests.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

#[path = "../../../sbp-peers/tests/store/controller.rs"]
mod controller;
#[path = "../../../sbp-peers/tests/store/mod.rs"]
#[allow(dead_code, reason = "what writers need of it is not used here")]
mod store;

use std::ops::Range;
use std::time::Duration;

use sbp_client::{AppendOptions, Client, ReaderOptions};
use sbp_e2e::clients::{client, whole};
use sbp_e2e::process::{Lasting, Setup};
use sbp_e2e::servers;
use sbp_e2e::wait::{LIMIT, bounded, bounded_by};
use sbp_gateway::import::{ImportError, ImportOptions, ImportReport, PravegaFrom, Progress, import_pravega};
use sbp_gateway::pravega::{PravegaConfig as ServedConfig, PravegaServer};
use sbp_peers::pravega::{End, NewEvent, Pravega, PravegaConfig, Start, StreamName};
use sbp_record::{Batch, Compression};
use tokio::sync::{mpsc, oneshot};

use controller::{TestController, put};

const S0: &str = "sc/st/0.#epoch.0";
const S1: &str = "sc/st/1.#epoch.0";

mod child {
    #[test]
    #[ignore = "the server process that tests start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}

fn options() -> ImportOptions {
    ImportOptions {
        topic: "sc/st".to_owned(),
        partitions: Vec::new(),
        stream: None,
        source: None,
        follow: false,
        skip_unfit: false,
        skip_lost: false,
        compression: Compression::NONE,
        patience: Duration::from_secs(20),
    }
}

fn from(controller: &TestController) -> PravegaFrom {
    PravegaFrom::Controller(controller.address.clone())
}

/// Imports to the end.
async fn import(client: &Client, from: &PravegaFrom, options: &ImportOptions) -> Result<ImportReport, ImportError> {
    let run = import_pravega(client, from, options, std::future::pending(), |_| ());
    bounded_by(LIMIT, run).await
}

/// How many events each segment's import brought now.
fn imported(report: &ImportReport) -> Vec<u64> {
    report.partitions.iter().map(|partition| partition.imported).collect()
}

fn events(numbers: Range<usize>) -> Vec<String> {
    numbers
        .map(|number| format!("event {number} {}", ".".repeat(number % 7)))
        .collect()
}

/// A stream as the bytes of the segment that it stands for, and where they begin. The batches have to say where they are, and
/// none may be missing between them.
async fn segment_of(client: &Client, name: &str) -> (i64, Vec<u8>) {
    let stream = client.find_stream(name, None).await.unwrap();
    let mut reader = client.reader(vec![whole(stream.stream_id)], ReaderOptions::default());
    let (mut begin, mut bytes) = (None, Vec::new());
    while let Some(fetched) = reader.next().await {
        let batch = Batch::decode(fetched.unwrap().bytes, None).unwrap();
        for (place, record) in batch.records().unwrap().enumerate() {
            let mut headers = record.headers.clone();
            let at = headers.find(|(name, _)| *name == "pravega.at");
            assert_eq!(at.is_some(), place == 0, "the first record of a batch has the header");
            if let Some((_, at)) = at {
                let at = i64::from_be_bytes(at.unwrap().try_into().unwrap());
                let begin = *begin.get_or_insert(at);
                assert_eq!(at - begin, bytes.len() as i64);
            }
            let content = record.value.unwrap();
            assert_eq!(record.key, None);
            bytes.extend_from_slice(&0_i32.to_be_bytes());
            bytes.extend_from_slice(&(content.len() as i32).to_be_bytes());
            bytes.extend_from_slice(content);
        }
    }
    (begin.unwrap_or(0), bytes)
}

/// A stream's records.
async fn values(client: &Client, name: &str) -> Vec<String> {
    let stream = client.find_stream(name, None).await.unwrap();
    let mut reader = client.reader(vec![whole(stream.stream_id)], ReaderOptions::default());
    let mut all = Vec::new();
    while let Some(fetched) = reader.next().await {
        let batch = Batch::decode(fetched.unwrap().bytes, None).unwrap();
        all.extend(
            batch
                .records()
                .unwrap()
                .map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap()),
        );
    }
    all
}

/// The same once there are so many.
async fn values_once(client: &Client, name: &str, count: usize) -> Vec<String> {
    bounded(async {
        let mut there = Vec::new();
        while there.len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if client.find_stream(name, None).await.is_ok() {
                there = values(client, name).await;
            }
        }
        there
    })
    .await
}

/// A property of a stream.
async fn property(client: &Client, name: &str, key: &str) -> Option<String> {
    let mut described = client.describe_streams(&[], &[name], None).await.unwrap();
    let stream = described.pop().unwrap().unwrap();
    let mut properties = stream.properties.iter().flatten();
    let found = properties.find(|property| property.key == key)?;
    Some(found.value.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_become_records_and_the_bytes_come_back() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    controller.create("sc/st", 2);
    put(&controller.store, S0, &events(0..3_000));
    put(&controller.store, S1, &events(0..10));
    let report = import(&client, &from(&controller), &options()).await.unwrap();
    assert_eq!(imported(&report), [3_000, 10]);
    assert_eq!(values(&client, "sc/st/0").await, events(0..3_000));
    for (name, segment) in [("sc/st/0", S0), ("sc/st/1", S1)] {
        let expected = controller.store.segment(segment, |segment| segment.data.clone());
        assert_eq!(segment_of(&client, name).await, (0, expected));
        assert_eq!(property(&client, name, "pravega").await.as_deref(), Some("segment"));
        assert_eq!(property(&client, name, "pravega.sealed").await, None);
    }
    // A second run brings what is new.
    put(&controller.store, S1, &events(10..12));
    assert_eq!(
        imported(&import(&client, &from(&controller), &options()).await.unwrap()),
        [0, 2]
    );
    let again = import(&client, &from(&controller), &options()).await.unwrap();
    assert_eq!((imported(&again), again.partitions[1].before), (vec![0, 0], 12));
    let expected = controller.store.segment(S1, |segment| segment.data.clone());
    assert_eq!(segment_of(&client, "sc/st/1").await, (0, expected));
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_scaling_has_made_follows_what_was_there() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    controller.create("sc/st", 1);
    put(&controller.store, S0, &events(0..100));
    assert_eq!(
        imported(&import(&client, &from(&controller), &options()).await.unwrap()),
        [100]
    );
    put(&controller.store, S0, &events(100..110));
    controller.scale("sc/st", &[(0.0, 0.5), (0.5, 1.0)]);
    put(&controller.store, "sc/st/1.#epoch.1", &events(0..5));
    controller.scale("sc/st", &[(0.0, 1.0)]);
    put(&controller.store, "sc/st/3.#epoch.2", &events(0..7));
    let report = import(&client, &from(&controller), &options()).await.unwrap();
    assert_eq!(imported(&report), [10, 5, 0, 7]);
    let streams: Vec<_> = report.partitions.iter().map(|part| part.stream.as_str()).collect();
    assert_eq!(streams, ["sc/st/0", "sc/st/1", "sc/st/2", "sc/st/3"]);
    assert_eq!(report.partitions[3].partition, 2 << 32 | 3);
    for (name, is_sealed) in [
        ("sc/st/0", true),
        ("sc/st/1", true),
        ("sc/st/2", true),
        ("sc/st/3", false),
    ] {
        assert_eq!(
            property(&client, name, "pravega.sealed").await.is_some(),
            is_sealed,
            "{name}"
        );
    }
    assert_eq!(
        imported(&import(&client, &from(&controller), &options()).await.unwrap()),
        [0, 0, 0, 0]
    );
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_followed_over_a_scaling() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    controller.create("sc/st", 1);
    put(&controller.store, S0, &events(0..10));
    let (stop, stopped) = oneshot::channel::<()>();
    let (follower, source, mut following) = (client.clone(), from(&controller), options());
    following.follow = true;
    let import = tokio::spawn(async move {
        let stop = async { drop(stopped.await) };
        import_pravega(&follower, &source, &following, stop, |_| ()).await
    });
    assert_eq!(values_once(&client, "sc/st/0", 10).await, events(0..10));
    put(&controller.store, S0, &events(10..20));
    assert_eq!(values_once(&client, "sc/st/0", 20).await, events(0..20));
    controller.scale("sc/st", &[(0.0, 1.0)]);
    put(&controller.store, "sc/st/1.#epoch.1", &events(0..5));
    assert_eq!(values_once(&client, "sc/st/1", 5).await, events(0..5));
    stop.send(()).unwrap();
    let report = bounded(import).await.unwrap().unwrap();
    assert_eq!(imported(&report), [20, 5]);
    assert!(property(&client, "sc/st/0", "pravega.sealed").await.is_some());
    client.close().await;
    server.shutdown().unwrap();
}

/// A client of a server of Pravega in front of the service that `client` is one of.
fn served(client: &Client) -> (PravegaServer, Pravega) {
    let server = PravegaServer::start(client, &ServedConfig::new("127.0.0.1:0")).unwrap();
    let address = server.address().to_string();
    let peer = Pravega::new(&address, PravegaConfig::default(), tokio::runtime::Handle::current()).unwrap();
    (server, peer)
}

/// The segments of `sc/st`: which they follow, and their keys.
async fn shape(peer: &Pravega) -> Vec<(i64, Vec<i64>, Option<(f64, f64)>)> {
    let segments = bounded(peer.segments(&StreamName::parse("sc/st").unwrap()))
        .await
        .unwrap();
    let each = segments.into_iter().map(|found| {
        let follows = found.follows.iter().map(|id| id.0).collect();
        (found.segment.id.0, follows, found.keys)
    });
    each.collect()
}

/// All events of `sc/st`, with the numbers of their segments.
async fn read(peer: &Pravega) -> Vec<(i64, String)> {
    read_up_to(peer, End::Latest, usize::MAX).await
}

/// The same, so many at most.
async fn read_up_to(peer: &Pravega, end: End, most: usize) -> Vec<(i64, String)> {
    let stream = StreamName::parse("sc/st").unwrap();
    let mut reader = bounded(peer.read(&stream, Start::Earliest, end)).await.unwrap();
    let mut all = Vec::new();
    while all.len() < most
        && let Some(read) = bounded(reader.next_batch()).await.unwrap()
    {
        for record in read.batch.records().unwrap() {
            let content = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            all.push((read.segment.id.0, content));
        }
    }
    all
}

fn of_segment(segment: i64, numbers: Range<usize>) -> Vec<(i64, String)> {
    events(numbers).into_iter().map(|event| (segment, event)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_scaled_is_served_as_it_was() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    let (gateway, peer) = served(&client);
    controller.create("sc/st", 1);
    put(&controller.store, S0, &events(0..100));
    controller.scale("sc/st", &[(0.0, 0.25), (0.25, 1.0)]);
    put(&controller.store, "sc/st/1.#epoch.1", &events(100..110));
    import(&client, &from(&controller), &options()).await.unwrap();
    let keys = |low, high| Some((low, high));
    let before = [
        (0, vec![], None),
        (1, vec![0], keys(0.0, 0.25)),
        (2, vec![0], keys(0.25, 1.0)),
    ];
    assert_eq!(shape(&peer).await, before);
    assert_eq!(
        read(&peer).await,
        [of_segment(0, 0..100), of_segment(1, 100..110)].concat()
    );
    // More of it, with segments that have nothing.
    controller.scale("sc/st", &[(0.0, 0.5), (0.5, 1.0)]);
    controller.scale("sc/st", &[(0.0, 1.0)]);
    put(&controller.store, "sc/st/5.#epoch.3", &events(110..120));
    import(&client, &from(&controller), &options()).await.unwrap();
    let more = [
        (3, vec![1, 2], keys(0.0, 0.5)),
        (4, vec![2], keys(0.5, 1.0)),
        (5, vec![3, 4], keys(0.0, 1.0)),
    ];
    // What the gateway knows is a second old at most.
    let mut found = bounded(async {
        loop {
            let found = shape(&peer).await;
            if found.len() == 6 {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    found.sort_by_key(|(number, ..)| *number);
    assert_eq!(found, [&before[..], &more[..]].concat());
    assert_eq!(
        read(&peer).await,
        [of_segment(0, 0..100), of_segment(1, 100..110), of_segment(5, 110..120)].concat()
    );
    // Who waits for more reads in that order too, though the fifth has two in front of it that end at different times.
    assert_eq!(read_up_to(&peer, End::Never, 120).await, read(&peer).await);
    // Those who go on here write behind that.
    let writer = bounded(peer.writer(&StreamName::parse("sc/st").unwrap()))
        .await
        .unwrap();
    let event = NewEvent {
        content: "last".into(),
        key: Some("a key".to_owned()),
    };
    bounded(writer.append(vec![event])).await.unwrap();
    assert_eq!(read(&peer).await.last(), Some(&(5, "last".to_owned())));
    bounded(writer.close()).await;
    // Until it is sealed, and deleted.
    let stream = StreamName::parse("sc/st").unwrap();
    bounded(peer.seal_stream(&stream)).await.unwrap();
    assert!(bounded(peer.current_segments(&stream)).await.unwrap().is_empty());
    assert_eq!(read(&peer).await.len(), 121);
    bounded(peer.delete_stream(&stream)).await.unwrap();
    assert!(client.find_stream("sc/st/3", None).await.is_err());
    bounded(peer.close()).await;
    gateway.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_its_first_segment_is_served() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    let (gateway, peer) = served(&client);
    controller.create("sc/st", 1);
    controller.scale("sc/st", &[(0.0, 0.5), (0.5, 1.0)]);
    controller.scale("sc/st", &[(0.0, 1.0)]);
    put(&controller.store, "sc/st/1.#epoch.1", &events(0..5));
    put(&controller.store, "sc/st/3.#epoch.2", &events(5..10));
    controller.begin_at("sc/st", 1);
    let report = import(&client, &from(&controller), &options()).await.unwrap();
    assert_eq!((imported(&report), report.notes.len()), (vec![5, 0, 5], 0));
    let found = shape(&peer).await;
    assert_eq!(
        found,
        [
            (1, vec![], Some((0.0, 0.5))),
            (2, vec![], Some((0.5, 1.0))),
            (3, vec![1, 2], Some((0.0, 1.0)))
        ]
        .map(|(number, follows, keys)| (number, follows, keys.filter(|_| number == 3)))
    );
    assert_eq!(read(&peer).await, [of_segment(1, 0..5), of_segment(3, 5..10)].concat());
    // It is not made again over what is there.
    let stream = StreamName::parse("sc/st").unwrap();
    assert!(bounded(peer.create_stream(&stream, 1)).await.is_err());
    assert_eq!(read(&peer).await.len(), 10);
    bounded(peer.close()).await;
    gateway.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_is_gone_before_its_end_was_imported_is_told() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    let (gateway, peer) = served(&client);
    controller.create("sc/st", 1);
    put(&controller.store, S0, &events(0..10));
    import(&client, &from(&controller), &options()).await.unwrap();
    put(&controller.store, S0, &events(10..20));
    controller.scale("sc/st", &[(0.0, 1.0)]);
    put(&controller.store, "sc/st/1.#epoch.1", &events(20..30));
    controller.begin_at("sc/st", 1);
    let report = import(&client, &from(&controller), &options()).await.unwrap();
    assert_eq!(imported(&report), [10]);
    let [note] = &report.notes[..] else {
        panic!("one note: {:?}", report.notes)
    };
    assert!(note.contains("stream sc/st/0 is gone"), "{note}");
    // What is left of it is read first.
    assert_eq!(
        read(&peer).await,
        [of_segment(0, 0..10), of_segment(1, 20..30)].concat()
    );
    let again = import(&client, &from(&controller), &options()).await.unwrap();
    assert_eq!((imported(&again), again.notes.len()), (vec![0], 0));
    assert_eq!(shape(&peer).await[1].1, [0]);
    bounded(peer.close()).await;
    gateway.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_were_truncated_end_an_import_or_are_counted() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    controller.create("sc/st", 1);
    let size = |numbers: Range<usize>| events(numbers).iter().map(|event| 8 + event.len()).sum::<usize>();
    put(&controller.store, S0, &events(0..100));
    // What is gone before the first run is no part of it.
    controller.store.segment(S0, |segment| segment.start = size(0..10));
    assert_eq!(
        imported(&import(&client, &from(&controller), &options()).await.unwrap()),
        [90]
    );
    let start = property(&client, "sc/st/0", "pravega.start").await.unwrap();
    assert_eq!(start, size(0..10).to_string());
    let bytes = controller
        .store
        .segment(S0, |segment| segment.data[size(0..10)..].to_vec());
    assert_eq!(segment_of(&client, "sc/st/0").await, (size(0..10) as i64, bytes));
    // What is gone between two is.
    put(&controller.store, S0, &events(100..200));
    controller.store.segment(S0, |segment| segment.start = size(0..150));
    let error = import(&client, &from(&controller), &options()).await.unwrap_err();
    let (first, last) = (size(0..100) as u64, size(0..150) as u64 - 1);
    assert!(
        matches!(&error, ImportError::Lost { from, to, .. } if (*from, *to) == (first, last)),
        "{error}"
    );
    let said = format!("bytes {first} to {last} of sc/st/0 are gone from the source");
    assert!(error.to_string().starts_with(&said), "{error}");
    let mut skipping = options();
    skipping.skip_lost = true;
    let report = import(&client, &from(&controller), &skipping).await.unwrap();
    assert_eq!(
        (imported(&report), report.partitions[0].lost),
        (vec![50], last - first + 1)
    );
    assert_eq!(report.partitions[0].left_out, 0);
    assert_eq!(
        values(&client, "sc/st/0").await,
        [events(10..100), events(150..200)].concat()
    );
    let start = property(&client, "sc/st/0", "pravega.start").await.unwrap();
    assert_eq!(start, size(0..150).to_string());
    // And the next run knows where it is.
    put(&controller.store, S0, &events(200..201));
    assert_eq!(
        imported(&import(&client, &from(&controller), &options()).await.unwrap()),
        [1]
    );
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_is_told() {
    let (server, controller) = (servers::start(None), TestController::start().await);
    let client = client(server.address());
    let error = import(&client, &from(&controller), &options())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("sc/st"), "{error}");
    let mut odd = options();
    for (name, said) in [
        ("st", "scope/stream"),
        ("2026/st", "no stream here can be called 2026/st/0"),
        ("_sbp/x", "_sbp/x/0"),
    ] {
        odd.topic = name.to_owned();
        let error = import(&client, &from(&controller), &odd).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    controller.create("sc/st", 1);
    put(&controller.store, S0, &events(0..3));
    controller
        .store
        .segment(S0, |segment| segment.data.extend_from_slice(&[9; 20]));
    let error = import(&client, &from(&controller), &options()).await.unwrap_err();
    assert!(
        matches!(&error, ImportError::Pravega(error) if error.code() == 9501),
        "{error}"
    );
    // A stream with records of others.
    controller.create("sc/other", 1);
    put(&controller.store, "sc/other/0.#epoch.0", &events(0..3));
    odd.topic = "sc/other".to_owned();
    assert_eq!(imported(&import(&client, &from(&controller), &odd).await.unwrap()), [3]);
    let other = client.find_stream("sc/other/0", None).await.unwrap().stream_id;
    client
        .append(other, b"mine".as_slice(), &AppendOptions::default())
        .await
        .unwrap();
    let error = import(&client, &from(&controller), &odd).await.unwrap_err();
    assert!(matches!(&error, ImportError::Foreign { offset: 3, .. }), "{error}");
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_outlives_the_server_and_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Lasting::start(Setup::new(dir.path()));
    let controller = TestController::start().await;
    controller.create("sc/st", 1);
    put(&controller.store, S0, &events(0..9_000));
    let client = client(server.address());
    let (progress, mut seen) = mpsc::unbounded_channel();
    let (importer, source) = (client.clone(), from(&controller));
    let run = tokio::spawn(async move {
        let mut all = options();
        all.follow = true;
        let told = |now: Progress| progress.send(now.done).unwrap();
        import_pravega(&importer, &source, &all, std::future::pending(), told).await
    });
    bounded_by(LIMIT, async { while seen.recv().await.unwrap() < 1 {} }).await;
    server.kill();
    server.restart();
    put(&controller.store, S0, &events(9_000..9_100));
    assert!(bounded_by(LIMIT, values_once(&client, "sc/st/0", 9_100)).await == events(0..9_100));
    // The task is ended amid whatever it does, and another run brings the rest, over a scaling.
    run.abort();
    put(&controller.store, S0, &events(9_100..9_200));
    controller.scale("sc/st", &[(0.0, 1.0)]);
    put(&controller.store, "sc/st/1.#epoch.1", &events(0..50));
    import(&client, &from(&controller), &options()).await.unwrap();
    server.kill();
    server.restart();
    put(&controller.store, "sc/st/1.#epoch.1", &events(50..60));
    assert_eq!(
        imported(&import(&client, &from(&controller), &options()).await.unwrap()),
        [0, 10]
    );
    assert!(
        values(&client, "sc/st/0").await == events(0..9_200),
        "not every event once and in order"
    );
    assert_eq!(values(&client, "sc/st/1").await, events(0..60));
    let expected = controller.store.segment(S0, |segment| segment.data.clone());
    assert!(segment_of(&client, "sc/st/0").await == (0, expected));
    client.close().await;
}
