//! Streams with several copies: a placement driver and three range servers.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use sbp_client::{AppendOptions, Client, Position, ReadFrom, ReaderOptions, Span, TailOptions};
use sbp_e2e::admin::{Admin, bounds, created, range_id, seal, try_seal};
use sbp_e2e::clients::{client, client_with, contents, records_of, whole};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::config;
use sbp_e2e::wait::{bounded, until};
use sbp_messages::{ErrorCode, FetchResponse, Message, Range, RangeId, SealKind, Stream};
use sbp_server::{Roles, Server, ServerConfig};
use sbp_types::{Offset, ServerId, StreamId};

/// A placement driver with three range servers, by id.
struct Cluster {
    directory: tempfile::TempDir,
    placement: Server,
    servers: Vec<Option<Server>>,
    addresses: Vec<String>,
    silence: Duration,
}

fn range_server(directory: &Path, listen: &str, placement: &Server, silence: Duration) -> Server {
    Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![placement.address().to_owned()],
        },
        listen: listen.to_owned(),
        report_interval: Duration::from_millis(100),
        replica_silence: silence,
        shutdown_grace: Duration::from_secs(10),
        ..config(Some(directory))
    })
    .unwrap()
}

impl Cluster {
    /// Nobody is missed, however long it is away.
    fn start() -> Self {
        Self::with_silence(Duration::from_hours(1))
    }

    /// Range servers that miss each other after so long.
    fn with_silence(silence: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let placement = Server::start(ServerConfig {
            roles: Roles::PlacementDriver,
            ..config(Some(&directory.path().join("placement")))
        })
        .unwrap();
        let start = |index: usize| {
            let directory = directory.path().join(index.to_string());
            range_server(&directory, "127.0.0.1:0", &placement, silence)
        };
        let servers: Vec<_> = (1..=3).map(start).map(Some).collect();
        let addresses = servers
            .iter()
            .flatten()
            .map(|server| server.address().to_owned())
            .collect();
        Self {
            directory,
            placement,
            servers,
            addresses,
            silence,
        }
    }

    /// A stream whose range has so many copies, of which so many acknowledge.
    fn create(&self, name: &str, replicas: i8, acks: i8) -> (StreamId, Range) {
        let mut peer = Peer::connect(&self.placement);
        until("as many range servers", || {
            let stream = Stream {
                name: name.to_owned(),
                replica_nums: replicas,
                ack_count: acks,
                ..Stream::default()
            };
            match created(&mut peer, vec![stream]).remove(0) {
                (stream, Some(range), ErrorCode::NONE) if range.servers.len() == usize::try_from(replicas).unwrap() => {
                    Some((stream.stream_id, range))
                }
                (.., code) => {
                    assert_eq!(code, ErrorCode::PD_NO_AVAILABLE_RS);
                    None
                }
            }
        })
    }

    fn index(server: ServerId) -> usize {
        usize::try_from(server.0).unwrap() - 1
    }

    fn peer(&self, server: ServerId) -> Peer {
        Peer::connect(self.servers[Self::index(server)].as_ref().expect("it runs"))
    }

    fn stop(&mut self, server: ServerId) {
        let stopped = self.servers[Self::index(server)].take().expect("it runs");
        stopped.shutdown().unwrap();
    }

    fn start_again(&mut self, server: ServerId) {
        let index = Self::index(server);
        let directory = self.directory.path().join((index + 1).to_string());
        let server = range_server(&directory, &self.addresses[index], &self.placement, self.silence);
        self.servers[index] = Some(server);
    }
}

/// The servers of a range, the primary first.
fn servers(range: &Range) -> Vec<ServerId> {
    let mut servers: Vec<_> = range.servers.iter().collect();
    servers.sort_by_key(|server| !server.is_primary);
    let ids = servers.iter().filter_map(|server| server.range_server.as_ref());
    ids.map(|server| server.server_id).collect()
}

/// Where a server finds the confirmed end of a stream.
fn watermark(peer: &mut Peer, stream: StreamId) -> i64 {
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    response.fetch_responses[0].high_watermark.map_or(-1, |offset| offset.0)
}

#[test]
fn every_server_of_a_range_has_what_was_acknowledged_and_serves_it() {
    let cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    let servers = servers(&range);
    let mut primary = cluster.peer(servers[0]);
    for number in 0..50_i64 {
        assert_eq!(primary.store(stream, format!("record {number}").as_bytes()), number);
    }
    let expected = primary.fetch_all(stream, 0);
    assert_eq!(expected.len(), 50);
    for follower in &servers[1..] {
        let mut follower = cluster.peer(*follower);
        until("all of it", || (watermark(&mut follower, stream) == 50).then_some(()));
        assert_eq!(follower.fetch_all(stream, 0), expected);
        let refused = follower.append(stream, b"elsewhere");
        assert_eq!(refused.status.code, ErrorCode::RANGE_NOT_FOUND);
    }
    let described = Peer::connect(&cluster.placement).describe_range(stream, 0).unwrap();
    assert_eq!((bounds(&described), described.servers.len()), ((0, 0, -1, 50), 3));
}

#[test]
fn appends_go_on_without_a_follower_which_catches_up_when_it_is_back() {
    let mut cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    let servers = servers(&range);
    let mut primary = cluster.peer(servers[0]);
    primary.store(stream, b"before");
    cluster.stop(servers[1]);
    // More than the primary keeps in memory for followers, so that the rest comes from its log.
    let body = vec![7; 64 << 10];
    for number in 1..400 {
        assert_eq!(primary.store(stream, &body), number);
    }
    cluster.start_again(servers[1]);
    let mut late = cluster.peer(servers[1]);
    until("what it missed", || (watermark(&mut late, stream) == 400).then_some(()));
    cluster.stop(servers[2]);
    assert_eq!(primary.store(stream, b"with the one that was away"), 400);
    until("the last one", || (watermark(&mut late, stream) == 401).then_some(()));
}

#[test]
fn without_enough_followers_appends_wait_until_one_is_back() {
    let mut cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    let servers = servers(&range);
    let mut primary = cluster.peer(servers[0]);
    primary.store(stream, b"before");
    cluster.stop(servers[1]);
    cluster.stop(servers[2]);
    let mut waiting = cluster.peer(servers[0]);
    let batch = sbp_e2e::batches::raw_batch(b"waits");
    let call = waiting.send(&sbp_e2e::peer::append_request(&[(stream, batch.len())]), &batch);
    assert_eq!(watermark(&mut primary, stream), 1, "nobody sees what is not confirmed");
    cluster.start_again(servers[2]);
    let frame = waiting.answer(call);
    assert!(!frame.header.is_empty());
    until("the record", || (watermark(&mut primary, stream) == 2).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_appends_and_reads_a_stream_with_copies_as_any_other() {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let (stream, _) = cluster.create("orders", 3, 2);
    let client = client(cluster.placement.address());
    for number in 0..20 {
        let body = format!("record {number}");
        client
            .append(stream, Bytes::from(body), &AppendOptions::default())
            .await
            .unwrap();
    }
    let mut reader = client.reader(vec![whole(stream)], ReaderOptions::default());
    let mut records = Vec::new();
    while let Some(batch) = reader.next().await {
        records.extend(records_of(&batch.unwrap()));
    }
    assert_eq!(records.len(), 20);
    drop(client);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_spread_over_the_copies_where_that_is_asked_for() {
    let mut cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let (stream, range) = cluster.create("orders", 3, 2);
    let spread =
        |cluster: &Cluster| client_with(cluster.placement.address(), |config| config.read_from = ReadFrom::Any);
    let append = async |client: &Client, number: usize| {
        let body = Bytes::from(number.to_string());
        client.append(stream, body, &AppendOptions::default()).await.unwrap();
    };
    let expected = |count: usize| -> Vec<_> {
        let numbered = (0..count).map(|number| (Offset(number as i64), number.to_string()));
        numbered.collect()
    };
    let fetched = |cluster: &Cluster, server| {
        let server = cluster.servers[Cluster::index(server)].as_ref();
        server.unwrap().stats().bytes_fetched
    };
    // By the primary alone, where nothing is asked for.
    let plain = client(cluster.placement.address());
    append(&plain, 0).await;
    assert_eq!(bounded(contents(&plain, stream)).await, expected(1));
    let all = servers(&range);
    assert!(fetched(&cluster, all[0]) > 0);
    assert_eq!(all[1..].iter().map(|&server| fetched(&cluster, server)).sum::<u64>(), 0);
    let followed = spread(&cluster);
    let begin = [(stream, Position::Earliest)];
    let tail = followed.tail(&begin, TailOptions::default());
    let mut tail = bounded(tail).await.unwrap();
    // Each client begins with a server that chance has chosen. What was acknowledged a moment ago is read at each of them.
    let mut count = 1;
    while all.iter().any(|&server| fetched(&cluster, server) == 0) {
        assert!(count < 500, "some server is never read from");
        let client = spread(&cluster);
        for _ in 0..5 {
            append(&client, count).await;
            count += 1;
            // Up to an end that nobody has to be asked for: a follower may not know yet that it is confirmed.
            let span = Span {
                end: Offset(count as i64),
                ..whole(stream)
            };
            let mut reader = client.reader(vec![span], ReaderOptions::default());
            let mut read = 0;
            while let Some(batch) = bounded(reader.next()).await {
                read += records_of(&batch.unwrap()).len();
            }
            assert_eq!(read, count);
        }
        client.close().await;
    }
    // A follower that is gone is done without.
    let stopping = tokio::task::spawn_blocking(move || {
        cluster.stop(all[1]);
        cluster
    });
    let cluster = stopping.await.unwrap();
    for _ in 0..5 {
        let client = spread(&cluster);
        append(&client, count).await;
        count += 1;
        assert_eq!(bounded(contents(&client, stream)).await, expected(count));
        client.close().await;
    }
    let mut told = Vec::new();
    while told.len() < count {
        let batch = bounded(tail.next()).await.unwrap().unwrap();
        told.extend(
            records_of(&batch)
                .into_iter()
                .map(|(offset, value)| (offset, String::from_utf8(value).unwrap())),
        );
    }
    assert_eq!(told, expected(count));
    drop((tail, followed, plain));
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

/// Appends until the stream takes it, wherever its primary is by now; the server that it is.
fn append_somewhere(cluster: &Cluster, stream: StreamId, body: &[u8]) -> ServerId {
    until("a primary", || {
        let listed = Peer::connect(&cluster.placement).ranges(stream);
        let primary = servers(listed.last()?)[0];
        cluster.servers[Cluster::index(primary)].as_ref()?;
        let result = cluster.peer(primary).append(stream, body);
        if result.status.is_success() {
            return Some(primary);
        }
        assert!(
            [ErrorCode::RANGE_NOT_FOUND, ErrorCode::RANGE_ALREADY_SEALED].contains(&result.status.code),
            "{}",
            result.status
        );
        None
    })
}

/// All records of a stream, from whatever servers have them.
fn all_records(cluster: &Cluster, stream: StreamId) -> Vec<Vec<u8>> {
    let ranges = Peer::connect(&cluster.placement).ranges(stream);
    let mut found = Vec::new();
    for range in &ranges {
        let from = i64::try_from(found.len()).unwrap();
        if range.end().is_some_and(|end| end.0 == from) {
            continue;
        }
        let holder = servers(range)
            .into_iter()
            .find(|server| cluster.servers[Cluster::index(*server)].is_some());
        let mut peer = cluster.peer(holder.expect("a server of the range"));
        found.extend(peer.fetch_all(stream, from).into_iter().map(|(_, body)| body.to_vec()));
    }
    found
}

#[test]
fn another_server_takes_over_when_the_primary_is_gone() {
    let mut cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    let first = servers(&range)[0];
    let mut expected = Vec::new();
    let mut primary = cluster.peer(first);
    for number in 0..30_i64 {
        let body = format!("record {number}").into_bytes();
        assert_eq!(primary.store(stream, &body), number);
        expected.push(body);
    }
    drop(primary);
    cluster.stop(first);
    let second = append_somewhere(&cluster, stream, b"behind the takeover");
    expected.push(b"behind the takeover".to_vec());
    assert_ne!(second, first);
    assert_eq!(all_records(&cluster, stream), expected);
    // The first one is back, and appends nothing to what it was the primary of.
    cluster.start_again(first);
    let refused = cluster.peer(first).append(stream, b"elsewhere").status.code;
    assert!(
        [ErrorCode::RANGE_NOT_FOUND, ErrorCode::RANGE_ALREADY_SEALED].contains(&refused),
        "{refused}"
    );
    let third = append_somewhere(&cluster, stream, b"once more");
    assert_eq!(third, second);
    expected.push(b"once more".to_vec());
    assert_eq!(all_records(&cluster, stream), expected);
}

#[test]
fn a_primary_that_was_restarted_appends_to_the_next_range_only() {
    let mut cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    let first = servers(&range)[0];
    cluster.peer(first).store(stream, b"before");
    cluster.stop(first);
    cluster.start_again(first);
    append_somewhere(&cluster, stream, b"after");
    let ranges = Peer::connect(&cluster.placement).ranges(stream);
    assert!(ranges.len() > 1, "the range was sealed");
    assert_eq!(bounds(&ranges[0]), (0, 0, 1, 1));
    assert_eq!(all_records(&cluster, stream), [b"before".to_vec(), b"after".to_vec()]);
}

#[test]
fn a_primary_that_is_ended_has_its_ranges_go_on_elsewhere_before_it_lets_its_clients_go() {
    let mut cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    let all = servers(&range);
    assert!(cluster.peer(all[0]).append(stream, b"before").status.is_success());
    // It does not end while this connection is open, which does not mind that it is asked to go away.
    let mut lingering = cluster.peer(all[0]);
    lingering.send(&fetch_request(60_000, 1, &[from(stream, 1)]), b"");
    let ended = cluster.servers[Cluster::index(all[0])].take().unwrap();
    let ending = std::thread::spawn(move || ended.shutdown());
    let next = until("the next range", || {
        let ranges = Peer::connect(&cluster.placement).ranges(stream);
        (ranges.len() > 1).then(|| servers(&ranges[1])[0])
    });
    assert_ne!(next, all[0]);
    assert_eq!(append_somewhere(&cluster, stream, b"after"), next);
    let has_ended = ending.is_finished();
    drop(lingering);
    ending.join().unwrap().unwrap();
    assert!(!has_ended, "the others took over when it was gone, and not before");
    assert_eq!(all_records(&cluster, stream), [b"before".to_vec(), b"after".to_vec()]);
}

#[test]
fn a_seal_opens_the_next_range_on_servers_that_have_everything() {
    let cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    let first = servers(&range)[0];
    cluster.peer(first).store(stream, b"before");
    let mut admin = Peer::connect(&cluster.placement);
    let refused = try_seal(&mut admin, stream, 0, SealKind::RANGE_SERVER).unwrap_err();
    assert_eq!(refused, ErrorCode::UNSUPPORTED_OPERATION);
    let next = seal(&mut admin, stream, 0, SealKind::PLACEMENT_DRIVER);
    assert_eq!((next.range_index.0, next.start_offset.0), (1, 1));
    append_somewhere(&cluster, stream, b"after");
    assert_eq!(all_records(&cluster, stream), [b"before".to_vec(), b"after".to_vec()]);
}

#[test]
fn a_follower_that_is_missed_is_left_out_of_the_next_range() {
    let mut cluster = Cluster::with_silence(Duration::from_millis(500));
    let (stream, range) = cluster.create("orders", 3, 2);
    let servers = servers(&range);
    cluster.peer(servers[0]).store(stream, b"before");
    cluster.stop(servers[2]);
    let next = until("the next range", || {
        let ranges = Peer::connect(&cluster.placement).ranges(stream);
        ranges.into_iter().find(|range| range.range_index.0 == 1)
    });
    assert!(!self::servers(&next).contains(&servers[2]));
    append_somewhere(&cluster, stream, b"after");
    assert_eq!(all_records(&cluster, stream), [b"before".to_vec(), b"after".to_vec()]);
}

#[test]
fn a_primary_that_hears_no_follower_takes_no_new_appends_and_sends_those_who_wait_away() {
    let mut cluster = Cluster::with_silence(Duration::from_millis(500));
    let (stream, range) = cluster.create("orders", 3, 2);
    let servers = servers(&range);
    let mut primary = cluster.peer(servers[0]);
    primary.store(stream, b"before");
    let mut tail = cluster.peer(servers[0]);
    let waits = tail.send(&fetch_request(60_000, 1, &[from(stream, 1)]), b"");
    cluster.stop(servers[1]);
    cluster.stop(servers[2]);
    let frame = tail.answer(waits);
    let response = FetchResponse::decode(&frame.header).unwrap();
    assert_eq!(response.fetch_responses[0].status.code, ErrorCode::RANGE_NOT_FOUND);
    assert_eq!(
        primary.append(stream, b"nobody else has it").status.code,
        ErrorCode::RANGE_NOT_FOUND
    );
}

#[test]
fn nobody_but_the_placement_driver_fences_a_range_with_several_copies() {
    let cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    for server in servers(&range) {
        let mut stranger = cluster.peer(server);
        let refused = try_seal(&mut stranger, stream, 0, SealKind::RANGE_SERVER).unwrap_err();
        assert_eq!(refused, ErrorCode::UNSUPPORTED_OPERATION, "server {server}");
    }
    let mut primary = cluster.peer(servers(&range)[0]);
    assert_eq!(primary.store(stream, b"it goes on"), 0);
    assert_eq!(Peer::connect(&cluster.placement).ranges(stream).len(), 1);
}

#[test]
fn a_seal_that_finds_another_end_than_was_asked_for_stands_and_is_refused() {
    let cluster = Cluster::start();
    let (stream, range) = cluster.create("orders", 3, 2);
    cluster.peer(servers(&range)[0]).store(stream, b"before");
    let other_end = RangeId {
        end_offset: Some(Offset(7)),
        ..range_id(stream, 0)
    };
    let mut admin = Peer::connect(&cluster.placement);
    let refused = admin.seal(other_end, SealKind::PLACEMENT_DRIVER).status.code;
    assert_eq!(refused, ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS);
    let ranges = admin.ranges(stream);
    assert_eq!(
        ranges.iter().map(bounds).collect::<Vec<_>>(),
        [(0, 0, 1, 1), (1, 1, -1, 1)]
    );
    append_somewhere(&cluster, stream, b"after");
    assert_eq!(all_records(&cluster, stream), [b"before".to_vec(), b"after".to_vec()]);
}
