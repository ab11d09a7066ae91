//! What of a copy cannot be read.

use sbp_types::Position;
use smallvec::SmallVec;

/// The damaged places of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Damage {
    /// From and to, in order; none touches the next.
    spans: SmallVec<[(Position, Position); 1]>,
    /// Before this place everything that is damaged was received again, and is not synced yet.
    received: Position,
    /// Whether it is unknown where the copy ends.
    pub(crate) is_at_end: bool,
    /// From where on another server has something else, if one has.
    disputed: Option<Position>,
}

impl Damage {
    /// Where the first damage begins.
    pub(crate) fn first(&self) -> Option<Position> {
        self.spans.first().map(|(from, _)| *from)
    }

    /// What is behind this place is something else on another server. It is damaged too, as far as there is anything.
    pub(crate) fn dispute(&mut self, at: Position) {
        self.disputed = Some(self.disputed.map_or(at, |known| known.min(at)));
    }

    /// From where on another server has something else, unless all of that was found to be right since.
    pub(crate) fn disputed(&self) -> Option<Position> {
        self.disputed.filter(|at| self.spans.iter().any(|(_, to)| to > at))
    }

    /// Where the first damage begins for which nothing was received.
    pub(crate) fn first_lacking(&self) -> Option<Position> {
        let mut lacking = self.spans.iter().filter(|(_, to)| *to > self.received);
        lacking.next().map(|(from, _)| self.received.max(*from))
    }

    /// From and to of everything that is damaged, in order.
    pub(crate) fn spans(&self) -> &[(Position, Position)] {
        &self.spans
    }

    /// Whether anything between the two places is damaged.
    pub(crate) fn touches(&self, from: Position, to: Position) -> bool {
        self.spans.iter().any(|span| span.0 < to && from < span.1)
    }

    /// Whether everything between the two places is damaged.
    pub(crate) fn covers(&self, from: Position, to: Position) -> bool {
        self.spans.iter().any(|span| span.0 <= from && to <= span.1)
    }

    pub(crate) fn add(&mut self, from: Position, to: Position) {
        self.received = self.received.min(from);
        self.spans.push((from, to));
        self.spans.sort_unstable();
        self.spans.dedup_by(|later, earlier| {
            let meets = later.0 <= earlier.1;
            if meets {
                earlier.1 = earlier.1.max(later.1);
            }
            meets
        });
    }

    /// What is damaged between the two places was received again. What comes before it is received first.
    pub(crate) fn receive(&mut self, from: Position, to: Position) {
        let is_first = self
            .first_lacking()
            .is_some_and(|lacking| from <= lacking && lacking < to);
        if is_first {
            self.received = to;
        }
    }

    /// What was received is lost, unless it is synced.
    pub(crate) fn forget_received(&mut self) {
        self.received = Position::default();
    }

    pub(crate) fn remove(&mut self, from: Position, to: Position) {
        let pieces = |span: (Position, Position)| [(span.0, span.1.min(from)), (span.0.max(to), span.1)];
        self.spans = self
            .spans
            .drain(..)
            .flat_map(pieces)
            .filter(|(from, to)| from < to)
            .collect();
    }

    /// What is behind a place, and what is before another, is gone.
    pub(crate) fn keep(&mut self, from: Position, to: Position) {
        self.spans
            .iter_mut()
            .for_each(|span| *span = (span.0.max(from), span.1.min(to)));
        self.spans.retain(|(from, to)| from < to);
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::Offset;

    use super::*;

    #[test]
    fn what_was_received_for_damage_is_not_asked_for_again_unless_it_was_lost() {
        let at = |offset| Position::start(Offset(offset));
        let mut damage = Damage::default();
        assert_eq!(damage.first_lacking(), None);
        damage.add(at(2), at(4));
        damage.add(at(7), at(9));
        assert_eq!(damage.first_lacking(), Some(at(2)));
        damage.receive(at(7), at(8));
        assert_eq!(damage.first_lacking(), Some(at(2)), "what is before is still lacking");
        damage.receive(at(2), at(3));
        assert_eq!(damage.first_lacking(), Some(at(3)));
        damage.remove(at(2), at(3));
        damage.receive(at(3), at(5));
        assert_eq!(damage.first_lacking(), Some(at(7)));
        assert_eq!(damage.first(), Some(at(3)), "it is not synced");
        damage.forget_received();
        assert_eq!(damage.first_lacking(), Some(at(3)));
        damage.receive(at(3), at(8));
        damage.add(at(5), at(6));
        assert_eq!(damage.first_lacking(), Some(at(5)), "it was damaged later");
    }

    #[test]
    fn damage_is_noted_mended_and_cut() {
        let at = |offset| Position::start(Offset(offset));
        let mut damage = Damage::default();
        let spans = |damage: &Damage| -> Vec<_> {
            damage
                .spans
                .iter()
                .map(|(from, to)| (from.offset.0, to.offset.0))
                .collect()
        };
        damage.add(at(7), at(9));
        damage.add(at(2), at(4));
        assert_eq!(spans(&damage), [(2, 4), (7, 9)]);
        assert!(damage.touches(at(3), at(5)) && !damage.touches(at(4), at(7)));
        assert!(damage.covers(at(2), at(3)) && !damage.covers(at(3), at(5)) && !damage.covers(at(3), at(8)));
        assert_eq!(damage.first(), Some(at(2)));
        damage.add(at(4), at(8));
        assert_eq!(spans(&damage), [(2, 9)], "they meet");
        damage.remove(at(4), at(5));
        assert_eq!(spans(&damage), [(2, 4), (5, 9)]);
        damage.keep(at(3), at(6));
        assert_eq!(spans(&damage), [(3, 4), (5, 6)]);
        damage.remove(at(0), at(9));
        assert_eq!(damage.first(), None);
    }
}
