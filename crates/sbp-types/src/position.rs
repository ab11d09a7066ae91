//! Places between the entries of a range.

use std::fmt;

use crate::offset::Offset;

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

impl Position {
    /// The beginning of a range whose first record gets this offset.
    #[must_use]
    pub const fn start(offset: Offset) -> Self {
        Self { offset, marks: 0 }
    }

    /// The place behind so many records that stand here; `None` unless they are at least one and there is such an offset.
    #[must_use]
    pub fn behind_records(self, count: i64) -> Option<Self> {
        let next = self.offset.checked_add(count)?;
        (next > self.offset).then_some(Self::start(next))
    }

    /// The place behind a mark that stands here; `None` if there are too many.
    #[must_use]
    pub fn behind_mark(self) -> Option<Self> {
        let marks = self.marks.checked_add(1)?;
        Some(Self { marks, ..self })
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
        let writers = start.behind_mark().unwrap();
        let records = writers.behind_records(3).unwrap();
        let fence = records.behind_mark().unwrap();
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
            assert_eq!(start.behind_records(count), None, "{count}");
        }
        let last = Position {
            marks: u32::MAX,
            ..start
        };
        assert_eq!(last.behind_mark(), None);
    }
}
