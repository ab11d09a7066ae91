//! Placement drivers and the store that they share.

use std::sync::Arc;

use sbp_replication::{ReplicatedRange, SealJob, Term};
use sbp_types::{Offset, Position, RangeIndex, ServerId};
use smallvec::SmallVec;

/// What is stored of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RangeRecord {
    pub(crate) range: Arc<ReplicatedRange>,
    pub(crate) end: Option<Position>,
    /// Who has everything up to the end.
    pub(crate) complete: SmallVec<[ServerId; 3]>,
    /// Who knows the writers at the end of what it has.
    pub(crate) knowing: SmallVec<[ServerId; 3]>,
    /// Servers that get a copy although they are not in the set.
    pub(crate) copying: SmallVec<[ServerId; 1]>,
}

impl RangeRecord {
    /// Whether a server has a copy, or gets one.
    pub(crate) fn is_on(&self, server: ServerId) -> bool {
        self.range.servers.contains(&server) || self.copying.contains(&server)
    }

    pub(crate) fn open(range: Arc<ReplicatedRange>) -> Self {
        Self {
            range,
            end: None,
            complete: SmallVec::new(),
            knowing: SmallVec::new(),
            copying: SmallVec::new(),
        }
    }

    /// Whether somebody who is complete knows the writers at the end.
    pub(crate) fn knows_writers(&self) -> bool {
        self.complete.iter().any(|server| self.knowing.contains(server))
    }
}

/// The store: what is in it is true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    /// Which term leads.
    pub(crate) term: Term,
    pub(crate) ranges: Vec<RangeRecord>,
    /// Records before it are trimmed.
    pub(crate) start: Offset,
    /// The number of the next server.
    pub(crate) next_server: i32,
}

impl Store {
    /// The range that has this offset.
    pub(crate) fn range_of(&self, offset: Offset) -> Option<RangeIndex> {
        let mut ranges = self.ranges.iter().rev().map(|record| &record.range);
        ranges.find(|range| range.start <= offset).map(|range| range.key.range)
    }
}

/// A placement driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Driver {
    /// The term in which it believes to lead.
    pub(crate) term: Option<Term>,
    /// The store, as it knows it.
    pub(crate) ranges: Vec<RangeRecord>,
    pub(crate) start: Offset,
    pub(crate) next_server: i32,
    pub(crate) job: Option<SealJob>,
    /// What was ordered for this seal: who sends, to whom, up to where.
    pub(crate) ordered: Vec<(ServerId, ServerId, Position)>,
    /// Servers that it could not reach during this seal.
    pub(crate) away: Vec<ServerId>,
    /// Servers whose disks were damaged after they had voted in this seal.
    pub(crate) excused: Vec<ServerId>,
    /// Whether this seal was ended by force.
    pub(crate) is_forced: bool,
}

impl Driver {
    /// The disk of a server is damaged: if it has done its part in this seal, nobody can know.
    pub(crate) fn damaged(&mut self, server: ServerId) {
        if self.job.as_ref().is_some_and(|job| !job.wants_vote(server)) {
            self.excused.push(server);
        }
    }

    /// No seal is under way any more.
    pub(crate) fn forget_job(&mut self) {
        self.job = None;
        self.ordered.clear();
        self.excused.clear();
    }

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
        self.start = store.start;
        self.next_server = store.next_server;
    }
}
