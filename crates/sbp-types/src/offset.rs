//! A record's place in its stream.

use std::fmt;

/// A record's place in its stream, from 0, counted in records.
///
/// Arithmetic is checked: a peer can name any 64-bit number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    /// "The earliest that is kept", as FETCH names it.
    pub const EARLIEST: Self = Self(-2);
    /// "The confirmed end when the request arrived", as FETCH names it.
    pub const LATEST: Self = Self(-1);
    /// The first offset of a stream.
    pub const ZERO: Self = Self(0);

    /// The offset `records` further on, if there is one.
    #[must_use]
    pub fn checked_add(self, records: i64) -> Option<Self> {
        self.0.checked_add(records).map(Self)
    }

    /// How many records lie between `earlier` and this offset; 0 when `earlier` is not earlier.
    #[must_use]
    pub fn distance_from(self, earlier: Self) -> u64 {
        u64::try_from(i128::from(self.0) - i128::from(earlier.0)).unwrap_or(0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<i64> for Offset {
    fn from(raw: i64) -> Self {
        Self(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::Offset;

    #[test]
    fn addition_stops_at_the_end_of_the_number() {
        assert_eq!(Offset(i64::MAX).checked_add(1), None);
        assert_eq!(Offset(5).checked_add(3), Some(Offset(8)));
    }

    #[test]
    fn distance_is_never_negative_and_never_wraps() {
        assert_eq!(Offset(3).distance_from(Offset(10)), 0);
        assert_eq!(Offset(i64::MAX).distance_from(Offset(i64::MIN)), u64::MAX);
        assert_eq!(Offset(10).distance_from(Offset(3)), 7);
    }
}
