//! The terms of placement drivers, and which of two ends is the end.

use std::fmt;

use sbp_types::Position;

use crate::rules::{Rule, Rules};

/// When a placement driver became the leader: higher is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Term {
    /// Whether a placement driver of this term may write, when the store says that `leading` leads
    /// ([`Rule::DeposedDriverWritesNothing`]).
    #[must_use]
    pub fn may_write(self, leading: Term, rules: Rules) -> bool {
        self == leading || !rules.hold(Rule::DeposedDriverWritesNothing)
    }
}

/// The highest term whose order, or answer, a server has followed ([`Rule::OlderTermsRefused`]).
///
/// The caller makes it durable together with whatever it changes by the order, and begins with what it finds of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HighestTerm(Term);

/// What to do with an order, or an answer, of a placement driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Follow it.
    Follow,
    /// Follow it: it is the first of a new leader, who is told all ranges of this server.
    FollowNew,
    /// Refuse it: this server has followed a newer leader, of this term.
    Refuse(Term),
}

impl HighestTerm {
    /// As it was found on the disk.
    #[must_use]
    pub fn new(found: Term) -> Self {
        Self(found)
    }

    /// The highest term that was followed.
    #[must_use]
    pub fn get(self) -> Term {
        self.0
    }

    /// What [`follow`](Self::follow) would say.
    #[must_use]
    pub fn judge(self, term: Term, rules: Rules) -> Order {
        if term < self.0 && rules.hold(Rule::OlderTermsRefused) {
            Order::Refuse(self.0)
        } else if term > self.0 {
            Order::FollowNew
        } else {
            Order::Follow
        }
    }

    /// Follows an order of this term, or refuses it.
    pub fn follow(&mut self, term: Term, rules: Rules) -> Order {
        let order = self.judge(term, rules);
        self.0 = self.0.max(term);
        order
    }
}

/// Of two ends of a range the one that is stored first is the end ([`Rule::FirstEndWins`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndWrite {
    /// Nothing is stored yet: store this one, in the transaction that found nothing.
    Store,
    /// This one is stored, and stands: the sealer adopts it.
    Stands(Position),
}

impl EndWrite {
    /// What a sealer does that finds `stored`.
    #[must_use]
    pub fn given(stored: Option<Position>, rules: Rules) -> Self {
        match stored {
            Some(end) if rules.hold(Rule::FirstEndWins) => Self::Stands(end),
            _ => Self::Store,
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::Offset;

    use super::*;

    #[test]
    fn the_highest_term_is_followed_and_lower_ones_are_refused() {
        let rules = Rules::default();
        let mut highest = HighestTerm::default();
        let cases = [
            (5, Order::FollowNew, 5),
            (5, Order::Follow, 5),
            (4, Order::Refuse(Term(5)), 5),
            (7, Order::FollowNew, 7),
            (5, Order::Refuse(Term(7)), 7),
        ];
        for (term, order, kept) in cases {
            assert_eq!(highest.judge(Term(term), rules), order, "term {term}");
            assert_eq!(highest.follow(Term(term), rules), order, "term {term}");
            assert_eq!(highest.get(), Term(kept));
        }
        assert_eq!(HighestTerm::new(Term(7)).judge(Term(6), rules), Order::Refuse(Term(7)));
    }

    #[test]
    fn only_the_leading_term_writes() {
        let rules = Rules::default();
        assert!(Term(3).may_write(Term(3), rules));
        assert!(!Term(3).may_write(Term(4), rules));
        assert!(!Term(4).may_write(Term(3), rules));
    }

    #[test]
    fn the_end_that_is_stored_stands() {
        let end = Position::start(Offset(7));
        assert_eq!(EndWrite::given(None, Rules::default()), EndWrite::Store);
        assert_eq!(EndWrite::given(Some(end), Rules::default()), EndWrite::Stands(end));
    }
}
