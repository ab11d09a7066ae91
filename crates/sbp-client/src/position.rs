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
    /// The first batch whose newest record is at least this old.
    Time(TimestampMs),
}

impl Position {
    /// The offset as FETCH carries it, and the time when the position is one.
    #[must_use]
    pub fn on_wire(self) -> (Offset, Option<TimestampMs>) {
        match self {
            Self::Earliest => (Offset::EARLIEST, None),
            Self::Latest => (Offset::LATEST, None),
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
