//! The range server in the process of its placement driver. It is called directly, and its ranges are stored in the
//! same transactions.

use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_replication::Term;
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId, StreamId};

use crate::meta::{MetadataChange, MetadataError, MetadataStore};
use crate::placement::{AbandonedEnd, Change, CommitError, PlacementStore, RangeServer, RangeServers};
use crate::range::{self, FencedEnd, HeldRange, StreamFacts};
use crate::refusal::{Done, Refusal};

/// The range server in the same process. What it is told is durable already: see [`SharedStore`].
#[derive(Clone, Debug)]
pub(crate) struct LocalRangeServer {
    pub(crate) id: ServerId,
    pub(crate) ranges: Arc<range::RangeServer>,
}

impl RangeServer for LocalRangeServer {
    fn seal(&self, key: RangeKey, _: Epoch, _: Option<Offset>, done: Done<Offset>) {
        self.ranges.seal(key, done);
    }

    fn fence(&self, key: RangeKey, _: Epoch, done: Done<FencedEnd>) {
        done(Err(no_copies(key)));
    }

    fn write_back(&self, key: RangeKey, _: Epoch, _: &[ServerId], _: Position, done: Done<()>) {
        done(Err(no_copies(key)));
    }

    fn abandon_seal(&self, key: RangeKey, end: AbandonedEnd) {
        match end {
            AbandonedEnd::NotStored => self.ranges.unseal(key),
            AbandonedEnd::Unknown => {
                // The range stays closed for appends. Appends must not wait for a next range, and those that do are
                // judged again.
                self.ranges.hub.set_knows_all(false);
                self.ranges.answered(key.stream);
            }
        }
    }

    fn publish_end(&self, key: RangeKey, end: Offset) {
        self.ranges.publish_seal(key, end);
    }

    fn sync(&self, stream: StreamId, facts: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>) {
        self.ranges.install(stream, facts, &ranges);
        done(Ok(()));
    }

    fn trim(&self, stream: StreamId, start: Offset, done: Done<()>) {
        self.ranges.trim(stream, start);
        done(Ok(()));
    }

    /// What it has is gone when the placement driver may forget the stream.
    fn delete(&self, streams: Vec<StreamId>, done: Done<bool>) {
        for stream in streams {
            self.ranges.delete(stream);
        }
        done(Ok(false));
    }

    /// It has no copies.
    fn let_go(&self, _: StreamId, ranges: Vec<HeldRange>, done: Done<Vec<RangeKey>>) {
        done(Ok(ranges.iter().map(|range| range.key).collect()));
    }

    fn is_refused(&self, done: Done<bool>) {
        done(Ok(false));
    }

    fn answers(&self, done: Done<bool>) {
        done(Ok(true));
    }

    fn next_offsets(&self, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>) {
        let ends = {
            let ranges = self.ranges.hub.ranges.lock();
            keys.iter().map(|key| ranges.table.next_offset(*key)).collect()
        };
        done(Ok(ends));
    }
}

/// Ranges with several copies are placed on range servers in processes of their own.
fn no_copies(key: RangeKey) -> Refusal {
    let message = format!("range {key} has several copies, and none of them is in the placement driver's process");
    Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message)
}

/// The range server in the same process, and those in other processes.
#[derive(Debug)]
pub(crate) struct LocalAndOthers {
    local: Arc<LocalRangeServer>,
    others: Arc<dyn RangeServers>,
}

impl LocalAndOthers {
    pub(crate) fn new(local: LocalRangeServer, others: Arc<dyn RangeServers>) -> Self {
        Self {
            local: Arc::new(local),
            others,
        }
    }
}

impl RangeServers for LocalAndOthers {
    fn lead_in(&self, term: Term) {
        self.others.lead_in(term);
    }

    fn locate(&self, server: ServerId, address: &str) {
        self.local.ranges.addresses.note(server, address);
        self.others.locate(server, address);
    }

    fn server(&self, server: ServerId) -> Option<Arc<dyn RangeServer>> {
        if server == self.local.id {
            return Some(Arc::clone(&self.local) as _);
        }
        self.others.server(server)
    }

    fn may_forget(&self, stream: StreamId) -> bool {
        self.local.ranges.may_forget(stream) && self.others.may_forget(stream)
    }
}

/// The metadata of a placement driver, in the store of its directory. The range server of the same process, if there is
/// one, has its ranges in the same store, so both change in one transaction.
#[derive(Debug)]
pub(crate) struct SharedStore {
    pub(crate) store: Box<dyn MetadataStore>,
    pub(crate) local: Option<LocalRangeServer>,
}

impl PlacementStore for SharedStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError> {
        let held = changes.iter().filter_map(|change| self.held(change));
        let placement = changes.iter().cloned().map(MetadataChange::Placement);
        let durable: Vec<_> = placement.chain(held).collect();
        self.store.commit(&durable).map_err(|error| match error {
            MetadataError::DiskFull => CommitError::DiskFull,
            error => CommitError::Failed(error.to_string()),
        })?;
        if let Some(local) = &self.local
            && changes.iter().any(|change| is_elsewhere(change, local.id))
        {
            local.ranges.hub.share();
        }
        Ok(())
    }
}

impl SharedStore {
    /// The change of the local range server's record that belongs to a change of the placement driver's.
    fn held(&self, change: &Change) -> Option<MetadataChange> {
        let local = self.local.as_ref()?;
        match change {
            Change::PutRange(range) if range.servers.contains(&local.id) => Some(MetadataChange::Hold(range.held())),
            _ => None,
        }
    }
}

/// Whether a change concerns a range that is not on this server.
fn is_elsewhere(change: &Change, server: ServerId) -> bool {
    matches!(change, Change::PutRange(range) if !range.servers.contains(&server))
}

#[cfg(test)]
mod tests;
