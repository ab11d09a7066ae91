//! How much of a range waits to be confirmed.

use std::collections::VecDeque;

use sbp_types::Position;

use crate::rules::{Rule, Rules};

/// So many entries of a shared range wait to be confirmed at most.
pub const MOST_UNCONFIRMED: usize = 1_024;

/// The ends of the entries that a primary gave to its log and that are not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unconfirmed {
    ends: VecDeque<Position>,
    pub(crate) most: usize,
}

impl Default for Unconfirmed {
    fn default() -> Self {
        Self {
            ends: VecDeque::new(),
            most: MOST_UNCONFIRMED,
        }
    }
}

impl Unconfirmed {
    pub(crate) fn add(&mut self, end: Position) {
        if self.ends.back().is_none_or(|last| *last < end) {
            self.ends.push_back(end);
        }
    }

    pub(crate) fn confirmed(&mut self, to: Position) {
        while self.ends.front().is_some_and(|end| *end <= to) {
            self.ends.pop_front();
        }
    }

    pub(crate) fn dropped_behind(&mut self, synced: Position) {
        while self.ends.back().is_some_and(|end| *end > synced) {
            self.ends.pop_back();
        }
    }

    /// How many more may be added.
    pub(crate) fn room(&self, rules: Rules) -> usize {
        if rules.hold(Rule::UnconfirmedIsBounded) {
            self.most.saturating_sub(self.ends.len())
        } else {
            usize::MAX
        }
    }
}

/// What a log takes for confirmed of a copy when it knows no better, as after a restart: all but the last `most` entries,
/// which the primary may not have had confirmed ([`Rule::UnconfirmedIsBounded`]). `ends` are those of the copy's entries.
///
/// It may be folded into what is remembered of the writers; readers are shown nothing by it.
#[must_use]
pub fn presumed_confirmed(ends: impl DoubleEndedIterator<Item = Position>, most: usize) -> Option<Position> {
    ends.rev().nth(most)
}

#[cfg(test)]
mod tests {
    use sbp_types::Offset;

    use super::*;

    fn at(offset: i64) -> Position {
        Position::start(Offset(offset))
    }

    #[test]
    fn what_is_confirmed_or_dropped_makes_room() {
        let rules = Rules::default();
        let mut unconfirmed = Unconfirmed {
            most: 3,
            ..Default::default()
        };
        (1..=3).for_each(|end| unconfirmed.add(at(end)));
        unconfirmed.add(at(3));
        assert_eq!(unconfirmed.room(rules), 0);
        unconfirmed.confirmed(at(1));
        assert_eq!(unconfirmed.room(rules), 1);
        unconfirmed.dropped_behind(at(2));
        assert_eq!(unconfirmed.room(rules), 2);
        unconfirmed.confirmed(at(9));
        assert_eq!(unconfirmed.room(rules), 3);
    }

    #[test]
    fn all_but_the_last_entries_are_presumed_confirmed() {
        let ends = || (1..=5).map(at);
        assert_eq!(presumed_confirmed(ends(), 2), Some(at(3)));
        assert_eq!(presumed_confirmed(ends(), 0), Some(at(5)));
        assert_eq!(presumed_confirmed(ends(), 5), None);
    }
}
