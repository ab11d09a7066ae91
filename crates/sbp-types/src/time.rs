//! Points in time as the wire and the disk carry them.

use std::fmt;

/// A point in time: milliseconds since 1970-01-01T00:00:00Z. Never a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampMs(pub i64);

impl fmt::Display for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

impl From<i64> for TimestampMs {
    fn from(raw: i64) -> Self {
        Self(raw)
    }
}
