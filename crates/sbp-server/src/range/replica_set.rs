//! The servers that hold a range.

use std::sync::Arc;

use sbp_replication::{Quorum, ReplicatedRange};
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId};
use smallvec::SmallVec;

/// What a server keeps of its copy of a range that others hold too, beside the range's servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyRecord {
    /// How many entries without offset belong to the range at its end, if it has one.
    pub(crate) end_marks: u32,
    /// Where the copy ended when the range was fenced here, if it was.
    pub(crate) fenced_at: Option<Position>,
    /// The first offset that the range had when it was opened, if a trim has raised it since.
    pub(crate) opened: Option<Offset>,
    /// In how many parts the state of the writers came that begins the range; 0: not known here. Kept before a trim has the
    /// log forget these parts.
    pub(crate) writers_parts: u32,
    /// From where on another server had something else, if one had: the copy counts for nothing there.
    pub(crate) disputed: Option<Position>,
}

/// The servers that hold a range, and how many of them must have an append before it is confirmed.
///
/// It is the set with which the range was opened, and stays the same while the range is open, however many replicas its
/// stream is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaSet {
    /// The primary first; empty for a range that is on one server alone.
    servers: SmallVec<[ServerId; 3]>,
    acks: u8,
}

impl Default for ReplicaSet {
    fn default() -> Self {
        Self::alone()
    }
}

impl ReplicaSet {
    /// The set of a range that is on one server alone: the server that has it.
    pub(crate) fn alone() -> Self {
        Self {
            servers: SmallVec::new(),
            acks: 1,
        }
    }

    /// These servers, the primary first, of which `acks` confirm; a majority, where that is not said. Numbers that cannot
    /// be are brought between one and all.
    pub(crate) fn new(servers: impl IntoIterator<Item = ServerId>, acks: Option<i8>) -> Self {
        let mut servers: SmallVec<[ServerId; 3]> = servers.into_iter().collect();
        if servers.len() < 2 {
            servers.clear();
            return Self::alone();
        }
        let all = u8::try_from(servers.len()).unwrap_or(u8::MAX);
        let acks = acks.map_or(all / 2 + 1, |acks| u8::try_from(acks).unwrap_or(0));
        Self {
            servers,
            acks: acks.clamp(1, all),
        }
    }

    /// Whether one server alone has the range.
    pub(crate) fn is_alone(&self) -> bool {
        self.servers.is_empty()
    }

    /// The servers, the primary first; none if one server alone has the range.
    pub(crate) fn servers(&self) -> &[ServerId] {
        &self.servers
    }

    /// How many servers hold the range.
    pub(crate) fn count(&self) -> usize {
        self.servers.len().max(1)
    }

    /// How many of the servers must have an append before it is confirmed.
    pub(crate) fn acks(&self) -> u8 {
        self.acks
    }

    /// The range as its servers know it; `None` if one server alone has it.
    pub(crate) fn replicated(&self, key: RangeKey, epoch: Epoch, start: Offset) -> Option<Arc<ReplicatedRange>> {
        if self.is_alone() {
            return None;
        }
        Some(Arc::new(ReplicatedRange {
            key,
            epoch,
            start,
            servers: self.servers.clone(),
            quorum: Quorum::new(self.servers.len(), self.acks.into())?,
        }))
    }

    /// Whether a server that has the range takes its appends.
    pub(crate) fn is_primary(&self, server: Option<ServerId>) -> bool {
        self.servers.first().is_none_or(|primary| Some(*primary) == server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_are_of_the_set_as_it_is() {
        let set = |count: i32, acks| ReplicaSet::new((1..=count).map(ServerId), acks);
        for (count, acks, confirm) in [
            (3, None, 2),
            (4, None, 3),
            (2, None, 2),
            (3, Some(1), 1),
            (3, Some(3), 3),
        ] {
            assert_eq!(set(count, acks).acks(), confirm, "{count} {acks:?}");
        }
        for (acks, confirm) in [(-1, 1), (0, 1), (i8::MAX, 3)] {
            assert_eq!(set(3, Some(acks)).acks(), confirm, "{acks} of 3");
        }
        for alone in [set(0, None), set(1, Some(7))] {
            assert_eq!(alone, ReplicaSet::alone());
            assert_eq!((alone.is_alone(), alone.count(), alone.acks()), (true, 1, 1));
            assert!(alone.is_primary(None) && alone.is_primary(Some(ServerId(9))));
        }
        let three = set(3, None);
        assert!(three.is_primary(Some(ServerId(1))));
        assert!(!three.is_primary(Some(ServerId(2))) && !three.is_primary(None));
    }
}
