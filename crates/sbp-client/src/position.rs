//! Places in a stream.

use sbp_types::{Offset, StreamId, TimestampMs};

/// Where to start or stop reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The earliest record that is kept.
    Earliest,
    /// The end: the offset the next record will get.
    Latest,
    /// One offset.
    At(Offset),
    /// The first record of this time or later.
    Time(TimestampMs),
    /// So many records behind the earliest that is kept; the end, if there are fewer.
    AfterEarliest(u64),
    /// So many records before the end; the earliest that is kept, if there are fewer.
    BeforeLatest(u64),
}

impl Position {
    /// Reads `earliest` or `latest`, also with a number of records: `earliest+10`, `latest-1000`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let records = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| is_number)
        };
        match text {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            _ => match text.split_once(['+', '-']) {
                Some(("earliest", digits)) if text.contains('+') => records(digits).map(Self::AfterEarliest),
                Some(("latest", digits)) if text.contains('-') => records(digits).map(Self::BeforeLatest),
                _ => None,
            },
        }
    }

    /// Whether only the server's answer tells which offset it is, and FETCH cannot ask for it.
    #[must_use]
    pub fn is_relative(self) -> bool {
        matches!(self, Self::AfterEarliest(_) | Self::BeforeLatest(_))
    }

    /// The offset in a stream that holds these records; `None` for a time.
    #[must_use]
    pub fn within(self, held: &Positions) -> Option<Offset> {
        let (earliest, latest) = (held.earliest.0, held.latest.0);
        let records = |records: u64| i64::try_from(records).unwrap_or(i64::MAX);
        match self {
            Self::Earliest => Some(held.earliest),
            Self::Latest => Some(held.latest),
            Self::At(offset) => Some(offset),
            Self::Time(_) => None,
            Self::AfterEarliest(count) => Some(Offset(earliest.saturating_add(records(count)).min(latest))),
            Self::BeforeLatest(count) => Some(Offset(latest.saturating_sub(records(count)).max(earliest))),
        }
    }

    /// The offset as FETCH carries it, and the time when the position is one. What is relative goes as the end it is
    /// counted from: [`Client::settle`](crate::Client::settle) comes first.
    #[must_use]
    pub fn on_wire(self) -> (Offset, Option<TimestampMs>) {
        match self {
            Self::Earliest | Self::AfterEarliest(_) => (Offset::EARLIEST, None),
            Self::Latest | Self::BeforeLatest(_) => (Offset::LATEST, None),
            Self::At(offset) => (offset, None),
            Self::Time(time) => (Offset::EARLIEST, Some(time)),
        }
    }
}

impl From<Offset> for Position {
    fn from(offset: Offset) -> Self {
        match offset {
            Offset::EARLIEST => Self::Earliest,
            Offset::LATEST => Self::Latest,
            other => Self::At(other),
        }
    }
}

/// What a stream holds: records from `earliest` up to but without `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The stream.
    pub stream: StreamId,
    /// The first offset that can be read.
    pub earliest: Offset,
    /// The offset the next record will get; every record below it is confirmed.
    pub latest: Offset,
}

/// A part of one stream: records from `start` up to but without `end`.
///
/// [`Offset::EARLIEST`] and [`Offset::LATEST`] are allowed and are resolved once, when reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stream.
    pub stream: StreamId,
    /// The first offset wanted.
    pub start: Offset,
    /// The first offset not wanted any more.
    pub end: Offset,
}

impl Span {
    /// How many records the span names; 0 when it is empty or not resolved.
    #[must_use]
    pub fn records(&self) -> u64 {
        if self.start.0 < 0 || self.end.0 < 0 {
            0
        } else {
            self.end.distance_from(self.start)
        }
    }
}

impl From<(i64, i64, i64)> for Span {
    fn from((stream, start, end): (i64, i64, i64)) -> Self {
        Self {
            stream: StreamId(stream),
            start: Offset(start),
            end: Offset(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{Offset, StreamId, TimestampMs};

    use super::{Position, Positions};

    #[test]
    fn words_are_read_with_and_without_a_number() {
        let read = |text| Position::parse(text);
        assert_eq!(read("earliest"), Some(Position::Earliest));
        assert_eq!(read("latest"), Some(Position::Latest));
        assert_eq!(read("earliest+10"), Some(Position::AfterEarliest(10)));
        assert_eq!(read("latest-1000"), Some(Position::BeforeLatest(1_000)));
        assert_eq!(read("latest-0"), Some(Position::BeforeLatest(0)));
        for wrong in [
            "",
            "now",
            "earliest-1",
            "latest+1",
            "latest-",
            "latest--1",
            "latest-+1",
            "latest- 1",
            "latest-1x",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn relative_places_stay_within_the_stream() {
        let held = Positions {
            stream: StreamId(1),
            earliest: Offset(100),
            latest: Offset(110),
        };
        let place = |position: Position| position.within(&held).map(|offset| offset.0);
        assert_eq!(place(Position::AfterEarliest(3)), Some(103));
        assert_eq!(place(Position::AfterEarliest(u64::MAX)), Some(110));
        assert_eq!(place(Position::BeforeLatest(3)), Some(107));
        assert_eq!(place(Position::BeforeLatest(11)), Some(100));
        assert_eq!(place(Position::BeforeLatest(u64::MAX)), Some(100));
        assert_eq!(place(Position::Time(TimestampMs(1))), None);
    }
}
