//! A client that is given a placement driver alone finds the range servers, and what moves on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use sbp_client::codes;
use sbp_client::{
    AppendOptions, Client, ErrorKind, FetchEntry, FetchOptions, Gap, OnGap, Position, ReaderOptions, Span, TailEvent,
    TailOptions, WriterOptions,
};
use sbp_e2e::clients::{self, stream_ids};
use sbp_e2e::servers::{quick_anywhere, quick_config};
use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_messages::{ErrorCode, RangeId, SealKind, Stream};
use sbp_server::{Roles, Server, ServerConfig};
use sbp_types::{Offset, StreamId};

const STREAMS: usize = 8;

fn server(dir: &Path, listen: &str, roles: Roles) -> Server {
    Server::start(ServerConfig {
        roles,
        ..quick_config(Some(dir), listen)
    })
    .unwrap()
}

/// A placement driver and two range servers.
struct Cluster {
    _directories: Vec<tempfile::TempDir>,
    _driver: Server,
    address: String,
    range_servers: Vec<Server>,
}

impl Cluster {
    fn start() -> Self {
        let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let driver = server(directories[0].path(), "127.0.0.1:0", Roles::PlacementDriver);
        let address = driver.address().to_owned();
        let range_servers = directories[1..]
            .iter()
            .map(|dir| {
                let placement_driver = vec![address.clone()];
                server(dir.path(), "127.0.0.1:0", Roles::RangeServer { placement_driver })
            })
            .collect();
        Self {
            _directories: directories,
            _driver: driver,
            address,
            range_servers,
        }
    }
}

async fn streams(client: &Client) -> Vec<StreamId> {
    let mut ids = Vec::new();
    // One at a time, so that each is placed with the others in sight.
    for number in 0..STREAMS {
        ids.extend(stream_ids(client, &[&format!("stream/{number}")]).await);
    }
    ids
}

async fn wait_for_both(client: &Client) {
    loop {
        // Created where no server holds anything yet; the rest of the test uses others.
        let created = client.create_streams(vec![Stream::default(); 4], None).await.unwrap();
        let ids: Vec<_> = created
            .into_iter()
            .filter_map(Result::ok)
            .map(|stream| stream.stream_id)
            .collect();
        let mut servers = BTreeSet::new();
        for id in &ids {
            let ranges = client.list_ranges(*id, None).await.unwrap();
            servers.extend(
                ranges
                    .iter()
                    .filter_map(|range| range.primary())
                    .map(|one| one.server_id),
            );
        }
        client.delete_streams(&ids, None).await.unwrap();
        if servers.len() == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_finds_the_server_that_has_the_stream() {
    let cluster = Cluster::start();
    let client = clients::client(&cluster.address);
    bounded_by(LIMIT, async {
        wait_for_both(&client).await;
        let streams = streams(&client).await;
        let options = AppendOptions::default();
        // Nothing is known yet, then everything is.
        for round in 0..2 {
            let batches = streams.iter().map(|&stream| (stream, vec![1].into())).collect();
            let acks = client.append_all(batches, &options).await.unwrap().all().unwrap();
            assert_eq!(acks.len(), STREAMS);
            assert!(
                acks.iter().all(|ack| ack.base_offset == Some(Offset(round))),
                "{acks:?}"
            );
        }
        for &stream in &streams {
            let writer = client.writer(stream, WriterOptions::default());
            let appends: Vec<_> = (0..10).map(|_| writer.append(vec![2])).collect();
            for append in appends {
                append.await.unwrap();
            }
        }
        // A client that knows nothing reads before it writes.
        let other = clients::client(&cluster.address);
        let positions = other.positions(&streams, None).await.unwrap();
        for found in positions {
            let found = found.unwrap();
            assert_eq!((found.earliest, found.latest), (Offset(0), Offset(12)));
        }
        let third = clients::client(&cluster.address);
        let spans: Vec<_> = streams
            .iter()
            .map(|&stream| Span {
                stream,
                start: Offset(0),
                end: Offset(12),
            })
            .collect();
        let mut reader = third.reader(spans, ReaderOptions::default());
        let mut records = 0;
        while let Some(batch) = reader.next().await {
            records += batch.unwrap().len();
        }
        assert_eq!(records, 12 * STREAMS as u64);
        // One FETCH goes to the server of its stream once that is known.
        for &stream in &streams {
            let entry = FetchEntry {
                stream,
                from: Position::At(Offset(0)),
                end: None,
                batch_max_bytes: 1 << 20,
            };
            let fetched = third.fetch_one(entry, FetchOptions::default()).await.unwrap();
            assert_eq!((fetched.next_offset, fetched.stream), (Offset(12), stream));
        }
        for client in [client, other, third] {
            client.close().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_follows_through_seals_trims_and_a_restart_of_one_server() {
    let mut cluster = Cluster::start();
    let client = clients::client(&cluster.address);
    bounded_by(LIMIT, async {
        wait_for_both(&client).await;
        let streams = streams(&client).await;
        let from: Vec<_> = streams.iter().map(|&stream| (stream, Position::Earliest)).collect();
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        let writers: Vec<_> = streams
            .iter()
            .map(|&stream| client.writer(stream, WriterOptions::default()))
            .collect();
        let mut next: BTreeMap<StreamId, Offset> = streams.iter().map(|&stream| (stream, Offset(0))).collect();
        for round in 0..6_i64 {
            let appends: Vec<_> = writers.iter().map(|writer| writer.append(vec![0; 10])).collect();
            for append in appends {
                assert_eq!(append.await.unwrap().base_offset, Some(Offset(round)));
            }
            for _ in &streams {
                let batch = tail.next().await.unwrap().unwrap();
                let place = next.get_mut(&batch.stream).unwrap();
                assert_eq!(batch.from, *place, "{} goes on where it was", batch.stream);
                *place = batch.to;
            }
            if round == 3 {
                let listen = cluster.range_servers[0].address().to_owned();
                cluster.range_servers[0].shutdown().unwrap();
                let placement_driver = vec![cluster.address.clone()];
                let dir = cluster._directories[1].path();
                cluster.range_servers[0] = server(dir, &listen, Roles::RangeServer { placement_driver });
                continue;
            }
            let open: Vec<_> = streams
                .iter()
                .map(|&stream_id| RangeId {
                    stream_id,
                    ..RangeId::default()
                })
                .collect();
            let sealed = client
                .seal_ranges(&open, SealKind::PLACEMENT_DRIVER, None)
                .await
                .unwrap();
            for range in sealed {
                assert_eq!(range.unwrap().start_offset, Offset(round + 1));
            }
            let read: Vec<_> = next.iter().map(|(&stream, &offset)| (stream, offset)).collect();
            for range in client.trim_streams(&read, None).await.unwrap() {
                assert_eq!(range.unwrap().start_offset, Offset(round + 1));
            }
        }
        client.close().await;
    })
    .await;
}

/// A range server that is not told where to listen comes back under another address, and says so to its placement driver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_come_back_under_other_addresses_are_found() {
    let mut cluster = Cluster::start();
    let client = clients::client(&cluster.address);
    bounded_by(LIMIT, async {
        wait_for_both(&client).await;
        let streams = streams(&client).await;
        let from: Vec<_> = streams.iter().map(|&stream| (stream, Position::Earliest)).collect();
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        let writers: Vec<_> = streams
            .iter()
            .map(|&stream| client.writer(stream, WriterOptions::default()))
            .collect();
        for round in 0..3 {
            for (&stream, writer) in streams.iter().zip(&writers) {
                writer.append(vec![0; 10]).await.unwrap();
                client.append(stream, vec![1], &AppendOptions::default()).await.unwrap();
            }
            let mut records = 0;
            while records < 2 * u64::try_from(streams.len()).unwrap() {
                records += tail.next().await.unwrap().unwrap().len();
            }
            let read = client.positions(&streams, None).await.unwrap();
            for positions in read {
                assert_eq!(positions.unwrap().latest, Offset(2 * (round + 1)));
            }
            for (number, server_was) in cluster.range_servers.iter_mut().enumerate() {
                let placement_driver = vec![cluster.address.clone()];
                server_was.shutdown().unwrap();
                let dir = cluster._directories[1 + number].path();
                *server_was = server(dir, "127.0.0.1:0", Roles::RangeServer { placement_driver });
            }
        }
        client.close().await;
    })
    .await;
}

/// What an append says whose range server is away, to those who know where the stream is and to those who do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_range_server_is_away_names_it_and_can_be_tried_again() {
    let cluster = Cluster::start();
    let client = clients::client(&cluster.address);
    bounded_by(LIMIT, async {
        wait_for_both(&client).await;
        let streams = streams(&client).await;
        let options = AppendOptions {
            timeout: Some(Duration::from_millis(1_500)),
            ..AppendOptions::default()
        };
        let away = cluster.range_servers[0].address().to_owned();
        let mut on_it = Vec::new();
        for &stream in &streams {
            let ranges = client.list_ranges(stream, None).await.unwrap();
            if ranges[0].primary().unwrap().advertise_addr == away {
                on_it.push(stream);
            }
        }
        client.append(on_it[0], vec![1], &options).await.unwrap();
        cluster.range_servers[0].shutdown().unwrap();
        let new = clients::client(&cluster.address);
        for client in [&client, &new, &new] {
            let error = client.append(on_it[0], vec![2], &options).await.unwrap_err();
            assert!(error.is_retriable() && !error.is_indeterminate(), "{error}");
            assert!(error.is_timeout() || error.kind() == ErrorKind::Unreachable, "{error}");
            assert!(error.to_string().contains(&away), "{error} does not name {away}");
            assert_eq!(error.stream(), Some(on_it[0]), "{error}");
        }
        for client in [client, new] {
            client.close().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_trimmed_before_it_was_read_is_reported_exactly() {
    let server = quick_anywhere();
    let client = clients::client(server.address());
    bounded_by(LIMIT, async {
        let stream = streams(&client).await[0];
        for _ in 0..10 {
            client.append(stream, vec![1], &AppendOptions::default()).await.unwrap();
        }
        let trimmed = client.trim_streams(&[(stream, Offset(7))], None).await.unwrap();
        assert_eq!(trimmed[0].as_ref().unwrap().start_offset, Offset(7));
        let from = [(stream, Position::At(Offset(2)))];
        let gap = Gap {
            stream,
            from: Offset(2),
            to: Offset(7),
        };
        let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();
        let error = tail.next().await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Incomplete, codes::DATA_LOSS));
        assert_eq!(error.gap(), Some(gap));
        let options = TailOptions {
            on_gap: OnGap::Report,
            ..TailOptions::default()
        };
        let mut tail = client.tail(&from, options).await.unwrap();
        let TailEvent::Gap(found) = tail.next_event().await.unwrap().unwrap() else {
            panic!("the gap comes first")
        };
        assert_eq!(found, gap);
        let TailEvent::Batch(batch) = tail.next_event().await.unwrap().unwrap() else {
            panic!("there is one gap")
        };
        assert_eq!(batch.from, Offset(7));
        // Deleted under the tail.
        client.delete_streams(&[stream], None).await.unwrap();
        let error = loop {
            if let Err(error) = tail.next_event().await.unwrap() {
                break error;
            }
        };
        assert_eq!((error.code(), error.stream()), (ErrorCode::NOT_FOUND, Some(stream)));
        // What is with one server that has both halves costs no question.
        let before = client.stats().calls;
        let other = streams(&client).await[1];
        let created = client.stats().calls;
        client.append(other, vec![1], &AppendOptions::default()).await.unwrap();
        assert_eq!((created - before, client.stats().calls - created), (STREAMS as u64, 1));
        client.close().await;
    })
    .await;
}
