//! Placement drivers and the store that they share.

use std::sync::Arc;

use sbp_replication::{ReplicatedRange, SealJob};
use sbp_types::{Position, ServerId};
use smallvec::SmallVec;

/// What is stored of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RangeRecord {
    pub(crate) range: Arc<ReplicatedRange>,
    pub(crate) end: Option<Position>,
    /// Who has everything up to the end.
    pub(crate) complete: SmallVec<[ServerId; 3]>,
}

/// The store: what is in it is true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    /// Which term leads.
    pub(crate) term: u8,
    pub(crate) ranges: Vec<RangeRecord>,
    /// The number of the next server.
    pub(crate) next_server: i32,
}

/// A placement driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Driver {
    /// The term in which it believes to lead.
    pub(crate) term: Option<u8>,
    /// The store, as it knows it.
    pub(crate) ranges: Vec<RangeRecord>,
    pub(crate) next_server: i32,
    pub(crate) job: Option<SealJob>,
    /// Servers that it could not reach during this seal.
    pub(crate) away: Vec<ServerId>,
}

impl Driver {
    /// The last range that it knows, if that is open.
    pub(crate) fn open_range(&self) -> Option<&Arc<ReplicatedRange>> {
        self.ranges
            .last()
            .filter(|record| record.end.is_none())
            .map(|record| &record.range)
    }

    /// Reads the store.
    pub(crate) fn load(&mut self, store: &Store) {
        self.ranges.clone_from(&store.ranges);
        self.next_server = store.next_server;
    }
}
