//! The arithmetic of a set of servers.

use sbp_types::Position;
use smallvec::SmallVec;

use crate::rules::{Rule, Rules};

/// How many servers hold a range, and how many of them must have an entry before it is acknowledged.
///
/// Both are those of the range as it was opened ([`Rule::QuorumsOfTheSet`]). What its stream asks for since counts for its
/// next range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    members: usize,
    acks: usize,
}

impl Quorum {
    /// A set of so many servers, of which so many acknowledge; `None` unless 1 <= acks <= members.
    #[must_use]
    pub fn new(members: usize, acks: usize) -> Option<Self> {
        (1 <= acks && acks <= members).then_some(Self { members, acks })
    }

    /// How many servers hold the range.
    #[must_use]
    pub fn members(self) -> usize {
        self.members
    }

    /// How many servers must have an entry before it is acknowledged.
    #[must_use]
    pub fn acks(self) -> usize {
        self.acks
    }

    /// The confirmed position: what `acks` servers have. `ends` are the synced ends that are known, one for each server;
    /// `None` if there are too few.
    #[must_use]
    pub fn confirmed(self, ends: impl IntoIterator<Item = Position>) -> Option<Position> {
        if self.acks == 1 {
            return ends.into_iter().max();
        }
        // The highest ones, in falling order.
        let mut highest: SmallVec<[Position; 4]> = SmallVec::new();
        for end in ends {
            let place = highest.iter().position(|one| *one < end).unwrap_or(highest.len());
            if place < self.acks {
                highest.truncate(self.acks - 1);
                highest.insert(place, end);
            }
        }
        highest.get(self.acks - 1).copied()
    }

    /// How many votes decide where the range ends. Any so many servers include one of any `acks`, so one of them has
    /// everything that was ever confirmed.
    #[must_use]
    pub fn votes(self, rules: Rules) -> usize {
        let needed = self.members - self.acks + 1;
        if rules.hold(Rule::Votes) {
            needed
        } else {
            needed.saturating_sub(1).max(1)
        }
    }

    /// The range's end by these votes, the synced ends of fenced servers: never below what was ever confirmed. `None` if
    /// the votes are too few.
    #[must_use]
    pub fn end(self, votes: impl IntoIterator<Item = Position>, rules: Rules) -> Option<Position> {
        let mut ends: SmallVec<[Position; 8]> = votes.into_iter().collect();
        if ends.len() < self.votes(rules) {
            return None;
        }
        ends.sort_unstable();
        let element = if rules.hold(Rule::End) {
            self.members - self.acks
        } else {
            0
        };
        ends.get(element).or(ends.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sbp_types::Offset;

    use super::*;

    fn at(offset: i64) -> Position {
        Position::start(Offset(offset))
    }

    #[test]
    fn sets_that_cannot_be_are_none() {
        for (members, acks) in [(0, 0), (1, 0), (2, 3)] {
            assert_eq!(Quorum::new(members, acks), None);
        }
    }

    #[test]
    fn one_server_confirms_what_it_has_synced_and_ends_there() {
        let alone = Quorum::new(1, 1).unwrap();
        assert_eq!(alone.confirmed([at(5)]), Some(at(5)));
        assert_eq!(alone.votes(Rules::default()), 1);
        assert_eq!(alone.end([at(5)], Rules::default()), Some(at(5)));
    }

    #[test]
    fn too_few_ends_confirm_nothing_and_too_few_votes_end_nothing() {
        let three = Quorum::new(3, 2).unwrap();
        assert_eq!(three.confirmed([at(5)]), None);
        assert_eq!(three.end([at(5)], Rules::default()), None);
        assert_eq!(three.confirmed([at(5), at(9)]), Some(at(5)));
        assert_eq!(three.end([at(5), at(9)], Rules::default()), Some(at(9)));
        assert_eq!(three.end([at(5), at(9), at(2)], Rules::default()), Some(at(5)));
    }

    proptest! {
        /// The confirmed position is the one that sorting says.
        #[test]
        fn so_many_servers_have_what_is_confirmed(ends in prop::collection::vec(0_i64..6, 0..=9), acks in 1_usize..=9) {
            let quorum = Quorum::new(9, acks).unwrap();
            let mut sorted = ends.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let expected = sorted.get(acks - 1).map(|end| at(*end));
            prop_assert_eq!(quorum.confirmed(ends.into_iter().map(at)), expected);
        }

        /// Whoever votes, and whatever they have: the end is not below what was confirmed, and somebody who voted has
        /// everything up to it.
        #[test]
        fn no_choice_of_votes_ends_below_what_is_confirmed(
            ends in prop::collection::vec(0_i64..6, 1..=5),
            acks in 1_usize..=5,
            voters in prop::collection::vec(any::<bool>(), 5),
        ) {
            let Some(quorum) = Quorum::new(ends.len(), acks) else { return Ok(()) };
            let confirmed = quorum.confirmed(ends.iter().map(|end| at(*end))).unwrap();
            let votes: Vec<_> = ends.iter().zip(&voters).filter(|(_, votes)| **votes).map(|(end, _)| at(*end)).collect();
            if let Some(end) = quorum.end(votes.iter().copied(), Rules::default()) {
                prop_assert!(end >= confirmed);
                prop_assert!(votes.iter().any(|vote| *vote >= end));
            } else {
                prop_assert!(votes.len() < quorum.votes(Rules::default()));
            }
        }
    }
}
