//! What it costs that a server asks who its clients are: a HEARTBEAT has a token more, and a call costs what it did.
//!
//! A process of its own, because every allocation in it counts, those of the server's threads among them.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::alloc::System;

use sbp_client::{AppendOptions, Client, ClientStats};
use sbp_e2e::access::{Names, client_as};
use sbp_e2e::batches::records;
use sbp_e2e::clients::{client, stream_ids};
use sbp_e2e::servers::quick_anywhere;
use sbp_e2e::wait::bounded;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CALLS: u32 = 2_000;

/// What a client's calls took, in this whole process.
#[derive(Debug)]
struct Cost {
    /// Calls until the connection was there and had served its first one.
    connected: ClientStats,
    /// Allocations, of client and server.
    allocations: usize,
    calls: u64,
    writes: u64,
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
        allocations,
        calls: after.calls - before.calls,
        writes: after.writes - before.writes,
    }
}

#[tokio::test]
async fn who_somebody_is_costs_nothing_with_each_call() {
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
    // Timers and the log's own work come now and then.
    let difference = known.allocations.abs_diff(open.allocations);
    assert!(
        difference * 50 < CALLS as usize,
        "{} allocations, {} without",
        known.allocations,
        open.allocations
    );
}
