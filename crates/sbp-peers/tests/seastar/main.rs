//! Seastar RPC over sockets: our client with our server, with scripted peers, and our server with a client that somebody else
//! wrote.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod others;
mod own;
mod scripted;
mod service;
mod together;

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::time::timeout;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("it takes too long")
}

fn deadline() -> Instant {
    Instant::now() + LIMIT
}
