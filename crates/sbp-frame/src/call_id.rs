//! Call ids, which tie answers to their requests.

use std::fmt;

/// The id of one request on one connection, in one direction; the wire format calls it "Stream Identifier".
///
/// It has nothing to do with a stream of records. Valid ids have 31 bits. A sender uses [`CallId::FIRST`] to
/// [`CallId::LAST`] in strictly increasing order, and opens another connection when they run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u32);

impl CallId {
    /// The first id that a sender uses. Zero is accepted from peers, and means "none" in GOAWAY.
    pub const FIRST: Self = Self(1);
    /// The last id that a sender uses. The 65,536 above it stay unused, so that no sender ever comes near a wrap.
    pub const LAST: Self = Self((1 << 31) - (1 << 16));

    const TOP_BIT: u32 = 1 << 31;

    /// The id in a received field; `None` if its top bit is set, which no valid id has.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        if raw & Self::TOP_BIT == 0 {
            Some(Self(raw))
        } else {
            None
        }
    }

    /// The number as written on the wire.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The next id; `None` after [`CallId::LAST`].
    pub const fn next(self) -> Option<Self> {
        if self.0 < Self::LAST.0 {
            Some(Self(self.0 + 1))
        } else {
            None
        }
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_bit_makes_no_call_id() {
        assert_eq!(CallId::from_raw(0).map(CallId::raw), Some(0));
        assert_eq!(CallId::from_raw(u32::MAX >> 1).map(CallId::raw), Some(0x7fff_ffff));
        assert_eq!(CallId::from_raw(1 << 31), None);
        assert_eq!(CallId::from_raw(u32::MAX), None);
    }

    #[test]
    fn ids_end_before_they_could_wrap() {
        assert_eq!(CallId::FIRST.next().map(CallId::raw), Some(2));
        assert_eq!(CallId::LAST.raw(), 2_147_418_112);
        assert_eq!(CallId::LAST.next(), None);
    }
}
