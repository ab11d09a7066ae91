//! A range as its servers know it.

use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId};
use smallvec::SmallVec;

use crate::quorum::Quorum;
use crate::rules::{Rule, Rules};

/// A range, and the servers that hold it. None of this changes while the range is open: another set means another range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicatedRange {
    /// Which range.
    pub key: RangeKey,
    /// One more than that of the range before it.
    pub epoch: Epoch,
    /// The offset of its first record.
    pub start: Offset,
    /// Its servers, the primary first.
    pub servers: SmallVec<[ServerId; 3]>,
    /// How many of them must have an entry before it is acknowledged.
    pub quorum: Quorum,
}

impl ReplicatedRange {
    /// The server that takes appends.
    #[must_use]
    pub fn primary(&self) -> Option<ServerId> {
        self.servers.first().copied()
    }

    /// Where its first entry stands.
    #[must_use]
    pub fn beginning(&self) -> Position {
        Position::start(self.start)
    }

    /// Whether it begins with the state of the writers, as every range but a stream's first does that several servers hold.
    #[must_use]
    pub fn begins_with_writers(&self) -> bool {
        self.key.range.0 > 0 && !self.goes_on_alone()
    }

    /// Whether it is on one server alone, which knows the writers already, and is not its stream's first one: what it has says
    /// something of the writers to that server, and to no other one.
    #[must_use]
    pub fn goes_on_alone(&self) -> bool {
        self.key.range.0 > 0 && self.servers.len() == 1
    }

    /// The place from which on a copy that begins where the range does says all about the writers, at a server of the set.
    /// `writers_end` is the place behind all parts of the state that begins the range, where that is known.
    #[must_use]
    pub fn writers_known_from(&self, writers_end: Option<Position>, rules: Rules) -> Option<Position> {
        let beginning = self.beginning();
        if !self.begins_with_writers() {
            Some(beginning)
        } else if rules.hold(Rule::WritersTravel) && rules.hold(Rule::WritersCountWhole) {
            writers_end
        } else {
            beginning.behind_mark()
        }
    }
}
