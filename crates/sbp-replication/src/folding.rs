//! What counts for the writers of a stream.

use sbp_types::{Position, RangeIndex};

use crate::replica::Replica;
use crate::rules::{Rule, Rules};

/// How far the entries of a stream have been taken into what is remembered of its writers.
///
/// Entries are folded in their order, when they are confirmed and not before: what lies behind a range's end must have no
/// effect on any writer. A range that begins with the state of all writers replaces what was known, so a copy of an older
/// range that arrives later is not folded. That state counts when all its parts are confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Folding {
    /// The newest range of which anything was folded, and how far.
    newest: Option<(RangeIndex, Position)>,
    /// How far older ranges were folded that arrived late, where the rule that forbids it is broken.
    #[cfg(feature = "testing")]
    late: Vec<(RangeIndex, Position)>,
}

/// A copy of a range, as far as it can be folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Foldable {
    /// Which range.
    pub range: RangeIndex,
    /// Where it begins.
    pub beginning: Position,
    /// From here on its entries say all about the writers ([`Replica::writers_known_from`]); `None` if they never do.
    pub known_from: Option<Position>,
    /// Everything before it is synced.
    pub synced: Position,
    /// Everything before it is confirmed, or presumed to be ([`presumed_confirmed`](crate::presumed_confirmed)).
    pub confirmed: Position,
}

impl Foldable {
    /// What a copy says of itself.
    #[must_use]
    pub fn of(replica: &Replica) -> Self {
        Self {
            range: replica.range().key.range,
            beginning: replica.range().beginning(),
            known_from: replica.writers_known_from(),
            synced: replica.synced_end(),
            confirmed: replica.confirmed(),
        }
    }
}

/// What to fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    /// The entries from this place on.
    pub from: Position,
    /// Up to this place.
    pub to: Position,
}

impl Folding {
    /// As it was when [`newest`](Self::newest) said this.
    #[must_use]
    pub fn restored(range: RangeIndex, up_to: Position) -> Self {
        Self {
            newest: Some((range, up_to)),
            #[cfg(feature = "testing")]
            late: Vec::new(),
        }
    }

    /// The newest range of which anything was folded, and how far: what a restart has to find again.
    #[must_use]
    pub fn newest(&self) -> Option<(RangeIndex, Position)> {
        self.newest
    }

    /// What is to be folded of a copy; `None` if nothing. It counts as folded from then on.
    pub fn fold(&mut self, copy: &Foldable, rules: Rules) -> Option<Fold> {
        let to = if rules.hold(Rule::FoldedWhenConfirmed) {
            copy.confirmed.min(copy.synced)
        } else {
            copy.synced
        };
        if copy.known_from.is_none_or(|known| to < known) {
            return None;
        }
        let from = match self.newest {
            Some((newest, at)) if newest == copy.range => at,
            Some((newest, _)) if newest > copy.range => return self.fold_late(copy, to, rules),
            _ => copy.beginning,
        };
        if to <= from {
            return None;
        }
        self.newest = Some((copy.range, to));
        Some(Fold { from, to })
    }

    /// The state of the writers that closes a copy of the range, which ends here, is on the disk. Whether it takes the place
    /// of what is remembered: not that of a newer range, nor where all of the range was folded.
    pub fn closed(&mut self, range: RangeIndex, end: Position) -> bool {
        let is_new = self.newest.is_none_or(|newest| newest < (range, end));
        if is_new {
            self.newest = Some((range, end));
        }
        is_new
    }

    /// An older range folds nothing ([`Rule::OldRangesFoldNothing`]).
    #[cfg_attr(
        not(feature = "testing"),
        expect(clippy::unused_self, clippy::needless_pass_by_ref_mut)
    )]
    fn fold_late(&mut self, copy: &Foldable, to: Position, rules: Rules) -> Option<Fold> {
        if rules.hold(Rule::OldRangesFoldNothing) {
            return None;
        }
        #[cfg(feature = "testing")]
        {
            let place = self.late.iter().position(|(range, _)| *range == copy.range);
            let place = place.unwrap_or_else(|| {
                self.late.push((copy.range, copy.beginning));
                self.late.len() - 1
            });
            let from = std::mem::replace(&mut self.late[place].1, to);
            (to > from).then_some(Fold { from, to })
        }
        #[cfg(not(feature = "testing"))]
        {
            let _ = (copy, to);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::Offset;

    use super::*;

    #[test]
    fn entries_count_once_in_order_and_when_confirmed() {
        let at = |offset| Position::start(Offset(offset));
        let rules = Rules::default();
        let mut folding = Folding::default();
        let mut fold = |range, start, known: i64, synced, confirmed| {
            let copy = Foldable {
                range: RangeIndex(range),
                beginning: at(start),
                known_from: (known >= 0).then_some(at(known)),
                synced: at(synced),
                confirmed: at(confirmed),
            };
            let found = folding.fold(&copy, rules);
            found.map(|fold| (fold.from.offset.0, fold.to.offset.0))
        };
        assert_eq!(fold(0, 0, 0, 5, 0), None, "nothing is confirmed");
        assert_eq!(fold(0, 0, 0, 5, 3), Some((0, 3)));
        assert_eq!(fold(0, 0, 0, 5, 3), None, "it counts once");
        assert_eq!(fold(0, 0, 0, 5, 9), Some((3, 5)), "what is not here does not count");
        assert_eq!(
            fold(1, 9, 11, 12, 10),
            None,
            "not all parts of the writers' state are confirmed"
        );
        assert_eq!(fold(1, 9, -1, 12, 12), None, "it does not know the writers at all");
        assert_eq!(fold(0, 0, 0, 9, 9), Some((5, 9)), "and so the range before it goes on");
        assert_eq!(fold(1, 9, 11, 12, 11), Some((9, 11)));
        assert_eq!(fold(0, 0, 0, 12, 12), None, "an older range arrives late");
        assert_eq!(fold(1, 9, 11, 12, 12), Some((11, 12)));
        // A restart finds it as it was.
        let newest = folding.newest();
        assert_eq!(newest, Some((RangeIndex(1), at(12))));
        let restored = newest.map(|(range, up_to)| Folding::restored(range, up_to));
        assert_eq!(restored, Some(folding));
    }

    #[test]
    fn a_closed_copy_replaces_what_is_older() {
        let at = |offset| Position::start(Offset(offset));
        let mut folding = Folding::default();
        assert!(folding.closed(RangeIndex(3), at(9)));
        assert_eq!(folding.newest(), Some((RangeIndex(3), at(9))));
        assert!(!folding.closed(RangeIndex(3), at(9)), "all of it was folded");
        assert!(!folding.closed(RangeIndex(2), at(20)), "it is older");
        assert!(folding.closed(RangeIndex(4), at(9)));
    }
}
