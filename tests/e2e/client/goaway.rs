//! A server that is shut down and started again and again under load: it says that it goes away, finishes what it
//! started, and nobody who uses it notices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sbp_client::{AppendOptions, Client, Position, Tail, TailOptions, WriterOptions};
use sbp_e2e::clients::{client_with, records_of, stream_ids};
use sbp_e2e::servers::quick_config;
use sbp_e2e::wait::bounded_by;
use sbp_server::{Server, ServerConfig};
use sbp_types::{Offset, StreamId};
use tokio::task::JoinHandle;

const RESTARTS: usize = 100;
/// Appends of one writer that are on their way together.
const TOGETHER: u64 = 8;
const LIMIT: Duration = Duration::from_secs(300);

fn server_at(dir: &Path, listen: &str) -> Server {
    Server::start(ServerConfig {
        segment_bytes: Some(4 << 20),
        shutdown_grace: ServerConfig::default().shutdown_grace,
        ..quick_config(Some(dir), listen)
    })
    .unwrap()
}

fn client(address: &str) -> Client {
    client_with(address, |config| {
        config.timeout = Duration::from_secs(60);
        config.retry.backoff_min = Duration::from_millis(2);
        config.retry.backoff_max = Duration::from_millis(20);
    })
}

/// What all users of the server share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    /// Appends that were acknowledged.
    acknowledged: AtomicU64,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Acquire)
    }
}

/// Appends records numbered from 0, some at a time, each acknowledged once at the place of its number.
async fn append_plainly(client: Client, stream: StreamId, load: Arc<Load>) -> u64 {
    let options = AppendOptions::default();
    let mut next = 0;
    while load.goes_on() {
        let appends: Vec<_> = (next..next + TOGETHER)
            .map(|number| {
                let client = client.clone();
                let record = number.to_be_bytes().to_vec();
                async move { client.append(stream, record, &options).await }
            })
            .collect();
        // Polled in their order, so submitted in it.
        let mut set = tokio::task::JoinSet::new();
        for (place, append) in appends.into_iter().enumerate() {
            set.spawn(async move { (place, append.await) });
            tokio::task::yield_now().await;
        }
        while let Some(done) = set.join_next().await {
            let (_, outcome) = done.unwrap();
            let ack = outcome.expect("an append failed");
            assert!(!ack.duplicate);
            load.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        next += TOGETHER;
    }
    next
}

/// The same through a writer, which also keeps the order.
async fn append_by_writer(client: Client, stream: StreamId, load: Arc<Load>) -> u64 {
    let writer = client.writer(stream, WriterOptions::default());
    let mut next = 0_u64;
    while load.goes_on() {
        let appends: Vec<_> = (next..next + TOGETHER)
            .map(|number| writer.append(number.to_be_bytes().to_vec()))
            .collect();
        for (append, number) in appends.into_iter().zip(next..) {
            let ack = append.await.expect("an append of a writer failed");
            assert!(!ack.duplicate, "the server had it already");
            assert_eq!(u64::try_from(ack.base_offset.unwrap().0).unwrap(), number);
            load.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        next += TOGETHER;
    }
    next
}

/// Follows all streams until it is told how long they are and has read that much. Returns the numbers of each.
fn follow(mut tail: Tail, goal: Arc<AtomicU64>) -> JoinHandle<Vec<(StreamId, Offset, u64)>> {
    tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < usize::try_from(goal.load(Ordering::Acquire)).unwrap() {
            // The goal may be told while nothing more comes.
            let next = tokio::time::timeout(Duration::from_millis(100), tail.next_many()).await;
            let Ok(batches) = next else { continue };
            for fetched in batches.unwrap().expect("a tail failed") {
                for (offset, value) in records_of(&fetched) {
                    let number = u64::from_be_bytes(value.try_into().unwrap());
                    seen.push((fetched.stream, offset, number));
                }
            }
        }
        seen
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_restarts_fail_nothing_repeat_nothing_and_leave_nothing_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = server_at(dir.path(), "127.0.0.1:0");
    let listen = server.address().to_owned();
    let client = client(&listen);
    let streams = stream_ids(&client, &[""; 4]).await;
    let from: Vec<_> = streams.iter().map(|&stream| (stream, Position::Earliest)).collect();
    let goal = Arc::new(AtomicU64::new(u64::MAX));
    let mut tails = Vec::new();
    for _ in 0..2 {
        let tail = client.tail(&from, TailOptions::default()).await.unwrap();
        tails.push(follow(tail, Arc::clone(&goal)));
    }
    let load = Arc::new(Load::default());
    let plain = streams[..2]
        .iter()
        .map(|&stream| tokio::spawn(append_plainly(client.clone(), stream, Arc::clone(&load))));
    let by_writer = streams[2..]
        .iter()
        .map(|&stream| tokio::spawn(append_by_writer(client.clone(), stream, Arc::clone(&load))));
    let writers: Vec<_> = plain.chain(by_writer).collect();
    let restarts = async {
        for round in 0..RESTARTS {
            // Under load: something was acknowledged since the last restart.
            let before = load.acknowledged.load(Ordering::Relaxed);
            while load.acknowledged.load(Ordering::Relaxed) < before + 20 {
                assert!(
                    !writers.iter().any(JoinHandle::is_finished),
                    "a writer ended in round {round}"
                );
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            server.shutdown().unwrap();
            server = server_at(dir.path(), &listen);
        }
    };
    bounded_by(LIMIT, restarts).await;
    load.stop.store(true, Ordering::Release);
    let mut lengths = Vec::new();
    for writer in writers {
        lengths.push(writer.await.unwrap());
    }
    let total: u64 = lengths.iter().sum();
    goal.store(total, Ordering::Release);
    for tail in tails {
        let seen = bounded_by(LIMIT, tail).await.unwrap();
        for (place, (&stream, &length)) in streams.iter().zip(&lengths).enumerate() {
            let of_stream: Vec<_> = seen.iter().filter(|(of, ..)| *of == stream).collect();
            let offsets: Vec<_> = of_stream
                .iter()
                .map(|(_, offset, _)| u64::try_from(offset.0).unwrap())
                .collect();
            assert_eq!(
                offsets,
                (0..length).collect::<Vec<_>>(),
                "{stream} is read without gap and in order"
            );
            let mut numbers: Vec<_> = of_stream.iter().map(|(.., number)| *number).collect();
            if place < 2 {
                // Appends that were on their way together may have gone different ways.
                numbers.sort_unstable();
            }
            assert_eq!(
                numbers,
                (0..length).collect::<Vec<_>>(),
                "{stream} has each record once"
            );
        }
    }
    println!(
        "{RESTARTS} restarts, {total} appends, {} connections",
        client.stats().connections
    );
    client.close().await;
    server.shutdown().unwrap();
}
