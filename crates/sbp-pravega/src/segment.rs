//! Names of segments.

use std::fmt;

/// The number of a segment within its stream: the epoch in the upper half, the number in the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub i64);

impl SegmentId {
    /// Segment `number`, made in `epoch`.
    #[must_use]
    pub fn new(epoch: i32, number: i32) -> Self {
        Self(i64::from(epoch) << 32 | i64::from(number) & 0xffff_ffff)
    }

    /// The number of the stream's change of segments that has made it.
    #[must_use]
    pub fn epoch(self) -> i64 {
        self.0 >> 32
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0 & 0xffff_ffff
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.#epoch.{}", self.number(), self.epoch())
    }
}

/// A segment of a stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// The scope of the stream.
    pub scope: String,
    /// The stream.
    pub stream: String,
    /// Which of its segments.
    pub id: SegmentId,
}

impl Segment {
    /// Reads a name such as `scope/stream/0.#epoch.0`; `None`: it is none.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        let (scope, stream, last) = (parts.next()?, parts.next()?, parts.next()?);
        let (number, epoch) = last.split_once(".#epoch.")?;
        if parts.next().is_some() || scope.is_empty() || stream.is_empty() {
            return None;
        }
        let plain = |digits: &str| -> Option<i32> {
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_plain)
        };
        Some(Self {
            scope: scope.to_owned(),
            stream: stream.to_owned(),
            id: SegmentId::new(plain(epoch)?, plain(number)?),
        })
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scope, self.stream, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let segment = Segment::parse("sc/st/7.#epoch.2").expect("a segment");
        assert_eq!((segment.scope.as_str(), segment.stream.as_str()), ("sc", "st"));
        assert_eq!(segment.id, SegmentId(2 << 32 | 7));
        assert_eq!((segment.id.epoch(), segment.id.number()), (2, 7));
        assert_eq!(segment.to_string(), "sc/st/7.#epoch.2");
        for name in [
            "",
            "sc/st",
            "sc/st/7",
            "sc/st/x.#epoch.0",
            "a/b/c/0.#epoch.0",
            "/st/0.#epoch.0",
            "s/t/+1.#epoch.0",
        ] {
            assert_eq!(Segment::parse(name), None, "{name}");
        }
    }
}
