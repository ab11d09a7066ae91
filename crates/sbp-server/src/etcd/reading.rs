//! Everything in the store as of one moment.

use std::sync::Arc;

use bytes::Bytes;
use sbp_etcd::{Client, KeyValue, PageRequest};

use super::keys::Keys;
use super::records::changes_of;
use crate::placement::{Change, PlacementState, ServerRecord};

/// How many keys are asked for at once.
const PAGE: u32 = 1_000;

/// What a new leader begins with.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) state: PlacementState,
    /// What the counter has.
    pub(super) count: Option<Bytes>,
}

/// Reads everything. The first page is of a moment at which the caller leads already, and all others are of the same one, so
/// that nobody writes any more what is not in them.
pub(super) async fn read_all(client: &Client, keys: &Keys) -> Result<Read, String> {
    let mut read = Read {
        state: PlacementState::default(),
        count: None,
    };
    let count = keys.count();
    // Deletions come before what they delete: in the order of the keys a buried stream is read before its records, of which
    // there are none.
    read_below(client, keys.all(), |found| {
        if found.key == count {
            read.count = Some(found.value.clone());
        }
        for change in changes_of(keys, found)? {
            read.state.install(change);
        }
        Ok(())
    })
    .await?;
    Ok(read)
}

/// Reads the records of range servers.
pub(super) async fn read_servers(client: &Client, keys: &Keys) -> Result<Vec<ServerRecord>, String> {
    let mut servers = Vec::new();
    read_below(client, keys.servers(), |found| {
        for change in changes_of(keys, found)? {
            if let Change::PutServer(server) = change {
                servers.push(Arc::unwrap_or_clone(server));
            }
        }
        Ok(())
    })
    .await?;
    Ok(servers)
}

/// Reads all keys that begin with `prefix`, in their order, as of one moment.
async fn read_below(
    client: &Client,
    prefix: Bytes,
    mut take: impl FnMut(&KeyValue) -> Result<(), String>,
) -> Result<(), String> {
    let mut request = PageRequest {
        prefix,
        after: None,
        limit: PAGE,
        revision: None,
    };
    loop {
        let page = client.page(&request).await.map_err(|error| error.to_string())?;
        for found in &page.keys {
            take(found)?;
        }
        request.after = page.keys.last().map(|found| found.key.clone());
        request.revision.get_or_insert(page.revision);
        if !page.more || request.after.is_none() {
            return Ok(());
        }
    }
}
