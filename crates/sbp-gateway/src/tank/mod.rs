//! A TANK broker in front of an SBP service: what its clients produce is appended to streams, and what they consume is read
//! from them.
//!
//! To its clients it is one broker that stands alone. It acknowledges what they produce when the service has stored it.

mod carried;
mod command;
mod connection;
mod consume;
mod listener;
mod partitions;
mod produce;
mod topics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sbp_client::Client;
use sbp_tank::{Answer, Request};

use self::carried::Ends;
pub use self::listener::{TankConfig, TankError, TankServer};
use self::partitions::Topics;
use crate::appends::Appends;
use crate::catalog::Catalog;
use crate::watch::Watch;

/// What all connections share.
#[derive(Debug)]
struct Shared {
    client: Client,
    catalog: Catalog<Topics>,
    appends: Appends,
    watch: Watch,
    ends: Ends,
    /// What TANK has no room for was told.
    has_told: AtomicBool,
}

impl Shared {
    fn new(client: &Client) -> Self {
        Self {
            catalog: Catalog::new(client.clone()),
            appends: Appends::new(client.clone()),
            watch: Watch::new(client.clone()),
            ends: Ends::default(),
            client: client.clone(),
            has_told: AtomicBool::new(false),
        }
    }

    /// Answers what is asked. `None`: no answer would be true.
    async fn answer(self: Arc<Self>, request: Request) -> Option<Answer> {
        match request {
            Request::Consume {
                topics,
                wait_ms,
                min_bytes,
            } => Some(self.consume(&topics, wait_ms, min_bytes).await),
            Request::DiscoverPartitions { topic } => self.partitions(&topic).await,
            Request::CreateTopic {
                topic,
                partitions,
                config,
            } => Some(self.create(&topic, partitions, &config).await),
            Request::Status => Some(self.status().await),
            Request::DiscoverTopics => self.topics().await,
            Request::Topology => Some(Answer::Topology { is_alone: true }),
            // Those have a task of their own.
            Request::Produce(_) => None,
        }
    }

    /// Tells once that clients do not get all that records have.
    fn left_out(&self, encoded: &consume::Encoded) {
        let (keys, headers) = (encoded.keys, encoded.headers);
        if keys + headers > 0 && !self.has_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                keys,
                headers,
                "records have keys of more than 255 bytes, or headers, which clients of TANK are not sent; told once"
            );
        }
    }
}
