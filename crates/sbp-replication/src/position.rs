//! Places in a range.

use std::fmt;

use sbp_types::Offset;

/// The place between two entries of a range.
///
/// Records have offsets. Two kinds of entries have none: a writer's fence, and the state of all writers at the beginning
/// of a range. They are *marks*, and a position counts how many of them stand at its offset. Servers compare positions with
/// each other; clients see the offset alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The offset of the next record.
    pub offset: Offset,
    /// How many marks stand at that offset, before this place.
    pub marks: u32,
}

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

impl Position {
    /// The beginning of a range whose first record gets this offset.
    #[must_use]
    pub const fn start(offset: Offset) -> Self {
        Self { offset, marks: 0 }
    }

    /// The place behind an entry that stands here; `None` if there is no such offset.
    #[must_use]
    pub fn behind(self, entry: Entry) -> Option<Self> {
        match entry {
            Entry::Records(count) => self
                .offset
                .checked_add(count)
                .filter(|next| *next > self.offset)
                .map(Self::start),
            Entry::Mark | Entry::Writers => Some(Self {
                marks: self.marks.checked_add(1)?,
                ..self
            }),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.marks {
            0 => write!(f, "{}", self.offset),
            marks => write!(f, "{}+{marks}", self.offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_at_their_offset() {
        let start = Position::start(Offset(7));
        let writers = start.behind(Entry::Writers).unwrap();
        let records = writers.behind(Entry::Records(3)).unwrap();
        let fence = records.behind(Entry::Mark).unwrap();
        let places: Vec<_> = [start, writers, records, fence]
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(places, ["7", "7+1", "10", "10+1"]);
        assert!([start, writers, records, fence].is_sorted());
    }

    #[test]
    fn a_peer_can_claim_any_number_of_records() {
        let start = Position::start(Offset(7));
        for count in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(start.behind(Entry::Records(count)), None, "{count}");
        }
        let last = Position {
            marks: u32::MAX,
            ..start
        };
        assert_eq!(last.behind(Entry::Mark), None);
    }
}
