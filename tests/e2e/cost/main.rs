//! What it costs that a server asks who its clients are, and that it is watched: a HEARTBEAT has a token more, and a call
//! costs what it did.
//!
//! A process of its own, because every allocation in it counts, those of the server's threads among them.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::alloc::System;
use std::time::Duration;

use sbp_client::{AppendOptions, Client, ClientStats};
use sbp_e2e::access::{Names, client_as};
use sbp_e2e::batches::records;
use sbp_e2e::clients::{client, stream_ids};
use sbp_e2e::servers::{quick_anywhere, quick_config};
use sbp_e2e::wait::bounded;
use sbp_server::{Monitor, Scrape, Server, ServerConfig};
use sbp_types::Histogram;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::sync::Mutex;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CALLS: u32 = 2_000;

/// One test at a time: each would count the allocations of the others.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What a client's calls took, in this whole process.
#[derive(Debug)]
struct Cost {
    /// Calls until the connection was there and had served its first one.
    connected: ClientStats,
    /// Allocations, of client and server.
    allocations: u64,
    calls: u64,
    writes: u64,
    reads: u64,
    wakeups: u64,
}

/// Whether two counts differ by no more than what comes now and then, as timers and the log's own work do.
fn as_many(one: u64, other: u64) -> bool {
    one.abs_diff(other) * 50 < u64::from(CALLS)
}

/// Appends one by one, so that no two calls share a system call by chance.
async fn cost_of(client: &Client) -> Cost {
    let stream = stream_ids(client, &["s"]).await[0];
    let connected = client.stats();
    let append = || async {
        let options = AppendOptions::default();
        bounded(client.append(stream, records(["x"]), &options)).await.unwrap();
    };
    for _ in 0..CALLS / 4 {
        append().await;
    }
    let before = client.stats();
    let region = Region::new(ALLOCATOR);
    for _ in 0..CALLS {
        append().await;
    }
    let allocations = region.change().allocations;
    let after = client.stats();
    Cost {
        connected,
        allocations: allocations as u64,
        calls: after.calls - before.calls,
        writes: after.writes - before.writes,
        reads: after.reads - before.reads,
        wakeups: after.wakeups - before.wakeups,
    }
}

#[tokio::test]
async fn who_somebody_is_costs_nothing_with_each_call() {
    let _alone = ALONE.lock().await;
    let open = {
        let server = quick_anywhere();
        cost_of(&client(server.address())).await
    };
    let names = Names::default();
    // As many grants as a name may well have; the one that counts is the last.
    let token = names.add(
        "job",
        &["read:a/*", "read:b/*", "write:c", "admin:*", "read:s", "write:s"],
    );
    let known = {
        let server = names.serve();
        cost_of(&client_as(&server, &token)).await
    };
    assert_eq!(known.connected.calls, open.connected.calls, "no round trip more");
    assert_eq!(known.connected.connections, open.connected.connections);
    assert_eq!((known.calls, known.writes), (open.calls, open.writes));
    assert!(
        as_many(known.allocations, open.allocations),
        "{known:?}, without {open:?}"
    );
}

/// The number behind the name of a metric.
fn metric(monitor: &Monitor, name: &str) -> f64 {
    let text: String = Scrape::new(monitor.clone(), false).collect();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn being_watched_costs_nothing_with_each_call() {
    let _alone = ALONE.lock().await;
    let alone = {
        let server = quick_anywhere();
        cost_of(&client(server.address())).await
    };
    let monitor = Monitor::default();
    let watched = {
        let config = ServerConfig {
            monitor: monitor.clone(),
            ..quick_config(None, "127.0.0.1:0")
        };
        let server = Server::start(config).unwrap();
        let client = client(server.address());
        let cost = cost_of(&client).await;
        let appends = f64::from(CALLS + CALLS / 4);
        assert!((metric(&monitor, "sbp_append_seconds_count") - appends).abs() < f64::EPSILON);
        assert!((metric(&monitor, "sbp_append_batches_total") - appends).abs() < f64::EPSILON);
        assert_eq!(client.metrics().append.count(), u64::from(CALLS + CALLS / 4));
        cost
    };
    assert_eq!((watched.calls, watched.writes), (alone.calls, alone.writes));
    let counts = |cost: &Cost| [cost.allocations, cost.reads, cost.wakeups];
    let same = counts(&watched).into_iter().zip(counts(&alone));
    assert!(
        same.into_iter().all(|(one, other)| as_many(one, other)),
        "{watched:?}, without {alone:?}"
    );
}

#[tokio::test]
async fn a_duration_is_counted_without_an_allocation() {
    let _alone = ALONE.lock().await;
    let histogram = Histogram::default();
    let region = Region::new(ALLOCATOR);
    for micros in 0..100_000 {
        histogram.observe(Duration::from_micros(micros), 1);
    }
    let (counted, allocations) = (histogram.snapshot().count(), region.change().allocations);
    assert_eq!(counted, 100_000);
    // Threads of servers that have just ended may still run.
    assert!(allocations < 100, "{allocations}");
}
