//! A Pravega server in front of an SBP service: what its clients append is appended to streams, and what they read is read from
//! them.
//!
//! A segment `scope/stream/I.#epoch.0` is the stream `scope/stream/I`. Each event is acknowledged when the service has stored it,
//! and stored once, by whatever gateway: the service itself tells a writer's repeats.

mod ahead;
mod answer;
mod append;
mod attributes;
mod catalog;
mod command;
mod connection;
mod controller;
mod failed;
mod lineage;
mod listener;
mod names;
mod pacing;
pub(crate) mod properties;
mod read;
mod segment;
mod segments;
mod table;

use std::sync::Arc;

use sbp_client::{Client, ClientError};
use sbp_grpc::Status;

use self::append::Appending;
use self::attributes::Attributes;
use self::catalog::Catalog;
use self::failed::Failed;
pub use self::listener::{PravegaConfig, PravegaError, PravegaServer};
pub(crate) use self::segment::{AT, Place};
use self::segments::Segments;
use self::table::Tables;
use crate::watch::Watch;

/// What all connections share.
#[derive(Debug)]
struct Shared {
    client: Client,
    catalog: Arc<Catalog>,
    segments: Arc<Segments>,
    appending: Appending,
    tables: Tables,
    attributes: Attributes,
    watch: Watch,
}

impl Shared {
    fn new(client: &Client) -> Self {
        let catalog = Arc::new(Catalog::new(client.clone()));
        let segments = Arc::new(Segments::new(client.clone()));
        Self {
            appending: Appending::new(client.clone(), Arc::clone(&catalog), Arc::clone(&segments)),
            catalog,
            segments,
            tables: Tables::new(client.clone()),
            attributes: Attributes::new(client.clone()),
            watch: Watch::new(client.clone()),
            client: client.clone(),
        }
    }
}

impl controller::Store for Shared {
    async fn truncate(&self, segment: &str, offset: i64) -> Result<bool, Status> {
        self.truncate_at(segment, offset).await.map_err(|failed| match failed {
            Failed::Client(error) => Status::unavailable(error.to_string()),
            Failed::Told(why) => Status::out_of_range(why),
            Failed::Nonsense(why) => Status::invalid_argument(why),
        })
    }

    async fn empty(&self, segment: &str) -> Result<bool, Status> {
        let failed = |error: ClientError| Status::unavailable(error.to_string());
        let Some(held) = self.catalog.segment_now(segment).await.map_err(failed)? else {
            return Ok(false);
        };
        let tail = self.segments.end(held.id(), None).await.map_err(failed)?;
        controller::Store::truncate(self, segment, tail.end.length).await
    }
}
