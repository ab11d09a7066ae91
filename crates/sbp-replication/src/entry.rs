//! What an entry takes of a range.

use sbp_types::Position;

/// How much an entry takes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// So many records, at least one.
    Records(i64),
    /// An entry without offset: a fence.
    Mark,
    /// An entry without offset: one part of the state of all writers. All its parts, one behind the other, begin every range
    /// but a stream's first, and close the copy of a sealed range.
    Writers {
        /// Which part, from 0.
        part: u32,
        /// How many there are.
        parts: u32,
    },
}

impl Entry {
    /// The place behind this entry if it stands at `at`; `None` if there is no such offset, or no such part.
    #[must_use]
    pub fn end(self, at: Position) -> Option<Position> {
        match self {
            Self::Records(count) => at.behind_records(count),
            Self::Writers { part, parts } if part >= parts => None,
            Self::Mark | Self::Writers { .. } => at.behind_mark(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::Offset;

    use super::*;

    #[test]
    fn a_part_that_cannot_be_has_no_end() {
        let at = Position::start(Offset(7));
        assert_eq!(Entry::Writers { part: 0, parts: 1 }.end(at), at.behind_mark());
        for (part, parts) in [(0, 0), (1, 1), (3, 2)] {
            assert_eq!(Entry::Writers { part, parts }.end(at), None, "part {part} of {parts}");
        }
    }
}
