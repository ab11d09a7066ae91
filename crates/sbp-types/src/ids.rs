//! Names of things: streams, ranges, servers, writers.

use std::fmt;
use std::str::FromStr;

macro_rules! integer_id {
    ($(#[$meta:meta])* $name:ident($int:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$int> for $name {
            fn from(raw: $int) -> Self {
                Self(raw)
            }
        }
    };
}

integer_id! {
    /// A stream's number: assigned by the placement driver, from 1, never reused.
    StreamId(i64)
}

integer_id! {
    /// A range's place within its stream, from 0.
    RangeIndex(i32)
}

integer_id! {
    /// A range's epoch: 0 for the first range of a stream, one more with every seal.
    Epoch(i64)
}

integer_id! {
    /// A server's number, given once by the placement driver.
    ServerId(i32)
}

impl StreamId {
    /// Whether the number can belong to a stream at all.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.0 >= 1
    }
}

/// One range of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeKey {
    /// The stream.
    pub stream: StreamId,
    /// The range within it.
    pub range: RangeIndex,
}

impl fmt::Display for RangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.range)
    }
}

/// 128 bits made at random when a stream is created. Numbers and names are given again by a server that lost its data;
/// an identity never is, so that it tells whether a stream is the one that it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamIdentity(pub [u8; 16]);

impl fmt::Display for StreamIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StreamIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamIdentity({self})")
    }
}

impl FromStr for StreamIdentity {
    type Err = NotAnIdentity;

    /// Reads what [`Display`](fmt::Display) writes: 32 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(number) if hexadecimal => Ok(Self(number.to_be_bytes())),
            _ => Err(NotAnIdentity),
        }
    }
}

/// 128 bits made at random when the metadata of a cluster are begun, so that no other cluster has the same. It is written and
/// read as the identity of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterId(pub StreamIdentity);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ClusterId {
    type Err = NotAnIdentity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A text is not the identity of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnIdentity;

impl fmt::Display for NotAnIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the identity of a stream is 32 hexadecimal digits")
    }
}

impl std::error::Error for NotAnIdentity {}

/// An idempotent writer's 128-bit name. All zero means "no writer".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId {
    /// The upper 64 bits.
    pub high: u64,
    /// The lower 64 bits.
    pub low: u64,
}

impl WriterId {
    /// "No writer": appends are not deduplicated.
    pub const NONE: Self = Self { high: 0, low: 0 };

    /// Whether this names a writer.
    #[must_use]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.high, self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::{NotAnIdentity, StreamIdentity};

    #[test]
    fn an_identity_is_read_as_it_is_written() {
        let identity = StreamIdentity(std::array::from_fn(|place| u8::try_from(place * 17).unwrap()));
        assert_eq!(identity.to_string(), "00112233445566778899aabbccddeeff");
        assert_eq!(identity.to_string().parse(), Ok(identity));
        for other in [
            "",
            "0011",
            "+0112233445566778899aabbccddeeff",
            "00112233445566778899aabbccddeeffff",
            "not hexadecimal digits, but some",
        ] {
            assert_eq!(other.parse::<StreamIdentity>(), Err(NotAnIdentity), "{other:?}");
        }
    }
}
