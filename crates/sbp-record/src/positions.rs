//! Where the rows of a batch stand in their stream.

use std::ops::Range;

use arrow_buffer::ScalarBuffer;
use sbp_types::Offset;

use crate::error::BatchError;

/// The offsets of a batch's rows, which rise. Those of batches that servers store follow each other; what other systems number
/// may have gaps.
#[derive(Clone, Debug)]
pub struct Positions(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// The first one; each other is the one after that before it.
    Dense(Offset),
    /// All of them. At least one, none is negative or the highest number that there is, and each is above the one before.
    Listed(ScalarBuffer<i64>),
}

impl Positions {
    /// Offsets that follow each other, from this one on.
    #[must_use]
    pub fn dense(base: Offset) -> Self {
        Self(Kind::Dense(base))
    }

    /// These offsets.
    ///
    /// # Errors
    /// There are none, or they do not rise, or are not from 0 up to, not including, the highest number that there is.
    pub fn listed(offsets: Vec<i64>) -> Result<Self, BatchError> {
        let (Some(first), Some(last)) = (offsets.first().copied(), offsets.last().copied()) else {
            return Err(BatchError::value("number of offsets", 0));
        };
        let falls = offsets.windows(2).find(|pair| pair.first() >= pair.get(1));
        let wrong = falls.and_then(<[i64]>::first).copied();
        let wrong = wrong
            .or((first < 0).then_some(first))
            .or((last == i64::MAX).then_some(last));
        if let Some(wrong) = wrong {
            return Err(BatchError::value("offset", wrong));
        }
        let is_dense = usize::try_from(last - first).ok() == Some(offsets.len() - 1);
        Ok(match is_dense {
            true => Self::dense(Offset(first)),
            false => Self(Kind::Listed(offsets.into())),
        })
    }

    /// The first one.
    pub(crate) fn first(&self) -> Offset {
        match &self.0 {
            Kind::Dense(base) => *base,
            Kind::Listed(offsets) => Offset(offsets.first().copied().unwrap_or_default()),
        }
    }

    /// That of a row.
    pub(crate) fn at(&self, row: usize) -> Offset {
        match &self.0 {
            Kind::Dense(base) => {
                let distance = i64::try_from(row).unwrap_or(i64::MAX);
                Offset(base.0.saturating_add(distance))
            }
            Kind::Listed(offsets) => Offset(offsets.get(row).copied().unwrap_or(i64::MAX)),
        }
    }

    /// Which of `rows` rows have offsets in [from, to).
    pub(crate) fn between(&self, rows: usize, from: Offset, to: Offset) -> Range<usize> {
        let row = |offset: Offset| match &self.0 {
            Kind::Dense(base) => usize::try_from(offset.distance_from(*base)).unwrap_or(rows).min(rows),
            Kind::Listed(offsets) => offsets.partition_point(|at| *at < offset.0),
        };
        let start = row(from);
        start..row(to).max(start)
    }

    /// Those of some rows, as a column.
    pub(crate) fn column(&self, rows: &Range<usize>) -> ScalarBuffer<i64> {
        match &self.0 {
            Kind::Dense(_) => (self.at(rows.start).0..self.at(rows.end).0).collect(),
            Kind::Listed(offsets) => offsets.slice(rows.start, rows.len()),
        }
    }

    /// Adds those of some rows to a column.
    pub(crate) fn extend(&self, rows: &Range<usize>, column: &mut Vec<i64>) {
        match &self.0 {
            Kind::Dense(_) => column.extend(self.at(rows.start).0..self.at(rows.end).0),
            Kind::Listed(offsets) => column.extend_from_slice(offsets.get(rows.clone()).unwrap_or_default()),
        }
    }

    /// Those of some rows, if they follow each other.
    pub(crate) fn run(&self, rows: &Range<usize>) -> Option<Range<i64>> {
        match &self.0 {
            Kind::Dense(_) => Some(self.at(rows.start).0..self.at(rows.end).0),
            Kind::Listed(offsets) => {
                let own = offsets.get(rows.clone())?;
                let (Some(first), Some(last)) = (own.first(), own.last()) else {
                    return Some(0..0);
                };
                (usize::try_from(last - first).ok() == Some(own.len() - 1)).then(|| *first..last + 1)
            }
        }
    }

    /// Whether so many rows have offsets.
    pub(crate) fn fits(&self, rows: usize) -> bool {
        match &self.0 {
            Kind::Dense(base) => {
                i64::try_from(rows).is_ok_and(|rows| base.0 >= 0 && base.0.checked_add(rows).is_some())
            }
            Kind::Listed(offsets) => offsets.len() == rows,
        }
    }
}
