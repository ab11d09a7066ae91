//! What counts for the writers of a stream.

use sbp_types::{Position, RangeIndex};

use crate::rules::{Rule, Rules};

/// How far the entries of a stream have been taken into what is remembered of its writers.
///
/// Entries are folded in their order, when they are confirmed and not before: what lies behind a range's end must have no
/// effect on any writer. A range that begins with the state of all writers replaces what was known, so a copy of an older
/// range that arrives later is not folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Folding {
    /// The newest range of which anything was folded, and how far.
    newest: Option<(RangeIndex, Position)>,
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
        }
    }

    /// The newest range of which anything was folded, and how far: what a restart has to find again.
    #[must_use]
    pub fn newest(&self) -> Option<(RangeIndex, Position)> {
        self.newest
    }

    /// What is to be folded of a range whose copy begins at `beginning` and is synced up to `synced`, of which everything
    /// before `confirmed` is confirmed; `None` if nothing. It counts as folded from then on.
    pub fn fold(
        &mut self,
        range: RangeIndex,
        beginning: Position,
        synced: Position,
        confirmed: Position,
        rules: Rules,
    ) -> Option<Fold> {
        let to = if rules.hold(Rule::FoldedWhenConfirmed) {
            confirmed.min(synced)
        } else {
            synced
        };
        let is_old = self.newest.is_some_and(|(newest, _)| newest > range);
        let from = match self.newest {
            Some((newest, at)) if newest == range => at,
            _ if is_old && rules.hold(Rule::OldRangesFoldNothing) => return None,
            _ => beginning,
        };
        if to <= from {
            return None;
        }
        if !is_old {
            self.newest = Some((range, to));
        }
        Some(Fold { from, to })
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
        let mut fold = |range, start, synced, confirmed| {
            let found = folding.fold(RangeIndex(range), at(start), at(synced), at(confirmed), rules);
            found.map(|fold| (fold.from.offset.0, fold.to.offset.0))
        };
        assert_eq!(fold(0, 0, 5, 0), None, "nothing is confirmed");
        assert_eq!(fold(0, 0, 5, 3), Some((0, 3)));
        assert_eq!(fold(0, 0, 5, 3), None, "it counts once");
        assert_eq!(fold(0, 0, 5, 9), Some((3, 5)), "what is not here does not count");
        assert_eq!(fold(1, 9, 12, 11), Some((9, 11)));
        assert_eq!(fold(0, 0, 9, 9), None, "an older range arrives late");
        assert_eq!(fold(1, 9, 12, 12), Some((11, 12)));
        // A restart finds it as it was.
        let newest = folding.newest();
        assert_eq!(newest, Some((RangeIndex(1), at(12))));
        assert_eq!(
            newest.map(|(range, up_to)| Folding::restored(range, up_to)),
            Some(folding)
        );
    }
}
