//! What an entry takes of a range.

use sbp_types::Position;

/// How much an entry takes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// So many records, at least one.
    Records(i64),
    /// An entry without offset: a fence.
    Mark,
    /// An entry without offset: the state of all writers, which begins every range but a stream's first.
    Writers,
}

impl Entry {
    /// The place behind this entry if it stands at `at`; `None` if there is no such offset.
    #[must_use]
    pub fn end(self, at: Position) -> Option<Position> {
        match self {
            Self::Records(count) => at.behind_records(count),
            Self::Mark | Self::Writers => at.behind_mark(),
        }
    }
}
