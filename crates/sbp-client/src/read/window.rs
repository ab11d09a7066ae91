//! What a read from one place to another is, where places may be times.

use std::time::Duration;

use sbp_messages::ErrorCode;
use sbp_record::TimeWindow;
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::client::Client;
use crate::error::ClientError;
use crate::position::{Position, Span};
use crate::read::positions::Settled;

/// A part of one stream: of the records of `span`, those whose times are in `times`.
///
/// A bound that is a time is one for the time of each record, wherever it stands: records come in the order of their
/// offsets, and an older one may stand behind a newer one. So a window that ends at a time is looked for up to the end
/// that the stream had when the read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where its records stand.
    pub span: Span,
    /// What their times are.
    pub times: TimeWindow,
}

impl Client {
    /// What lies between pairs of places, each in one stream, as it is now.
    ///
    /// # Errors
    ///
    /// A place lies behind the end of its stream, a pair is the wrong way round, a stream does not exist, or a call
    /// failed.
    pub async fn windows(
        &self,
        wanted: &[(StreamId, Position, Position)],
        timeout: Option<Duration>,
    ) -> Result<Vec<Window>, ClientError> {
        let started: Vec<_> = wanted
            .iter()
            .filter_map(|&(stream, start, _)| Some((stream, time_of(start)?)))
            .collect();
        let mut started = if started.is_empty() {
            Vec::new().into_iter()
        } else {
            self.batches_for_times(&started, timeout).await?.into_iter()
        };
        // The start is looked for before the end, so that it never lies behind it.
        let mut places = Vec::with_capacity(2 * wanted.len());
        for &(stream, start, end) in wanted {
            let start = match time_of(start) {
                Some(_) => Position::At(started.next().unwrap_or_else(|| Err(missing()))?),
                None => start,
            };
            let end = time_of(end).map_or(end, |_| Position::Latest);
            places.extend([(stream, start), (stream, end)]);
        }
        let mut settled = self.settle_places(&places, timeout).await?.into_iter();
        let mut next = || settled.next().unwrap_or_else(|| Err(missing()));
        wanted
            .iter()
            .map(|&(stream, start, end)| between(stream, (start, next()?.offset), (end, next()?)))
            .collect()
    }
}

fn time_of(place: Position) -> Option<TimestampMs> {
    match place {
        Position::Time(time) => Some(time),
        _ => None,
    }
}

fn missing() -> ClientError {
    ClientError::protocol("a position is missing")
}

/// What lies between two places that are settled.
fn between(
    stream: StreamId,
    (start, first): (Position, Offset),
    (end, settled): (Position, Settled),
) -> Result<Window, ClientError> {
    let behind = settled.offset;
    let times = TimeWindow {
        start: time_of(start),
        end: time_of(end),
    };
    if let (Some(from), Some(to)) = (times.start, times.end)
        && from > to
    {
        let what = format!("a read from time {from} to time {to}, both since 1970, ends before it begins: swap them");
        return Err(ClientError::invalid(what).with_stream(stream));
    }
    let window = |first| Window {
        span: Span {
            stream,
            start: first,
            end: behind,
        },
        times,
    };
    match start {
        _ if first <= behind => Ok(window(first)),
        // Nothing before that offset is of the time or later.
        Position::Time(_) => Ok(window(behind)),
        _ => match settled.held.map(|held| held.latest) {
            Some(latest) if first > latest => {
                let what = format!("offset {first} is beyond the end of the stream, which is {latest}");
                let error = ClientError::local(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, what);
                Err(error.with_stream(stream).with_offset(first))
            }
            _ => {
                let what = format!("a read from offset {first} to {behind} ends before it begins: swap them");
                Err(ClientError::invalid(what).with_stream(stream))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use sbp_messages::ErrorCode;
    use sbp_types::{Offset, StreamId, TimestampMs};

    use super::between;
    use crate::codes;
    use crate::position::{Position, Positions};
    use crate::read::positions::Settled;

    #[test]
    fn places_have_an_order() {
        let time = |time| Position::Time(TimestampMs(time));
        let at = |offset| Position::At(Offset(offset));
        let span = |start, first, end, behind| {
            // The stream holds what is from 2 to 9. That is not asked for where an offset was given.
            let held = Positions {
                stream: StreamId(1),
                earliest: Offset(2),
                latest: Offset(9),
            };
            let end_settled = Settled {
                offset: Offset(behind),
                held: (!matches!(end, Position::At(_))).then_some(held),
            };
            let window = between(StreamId(1), (start, Offset(first)), (end, end_settled));
            window
                .map(|window| (window.span.start.0, window.span.end.0))
                .map_err(|error| error.code())
        };
        assert_eq!(span(at(3), 3, Position::Latest, 9), Ok((3, 9)));
        assert_eq!(span(at(9), 9, Position::Latest, 9), Ok((9, 9)));
        assert_eq!(span(time(5), 7, time(5), 9), Ok((7, 9)));
        assert_eq!(span(time(5), 7, at(4), 4), Ok((4, 4)));
        assert_eq!(span(time(6), 7, time(5), 9), Err(codes::BAD_ARGUMENT));
        assert_eq!(span(at(7), 7, at(4), 4), Err(codes::BAD_ARGUMENT));
        let beyond = Err(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS);
        assert_eq!(span(at(10), 10, Position::Latest, 9), beyond);
        assert_eq!(span(at(10), 10, time(5), 9), beyond);
        assert_eq!(span(at(10), 10, Position::BeforeLatest(2), 7), beyond);
        assert_eq!(span(at(10), 10, Position::Earliest, 2), beyond);
        // The stream has these offsets, and the read the wrong order.
        let swapped = Err(codes::BAD_ARGUMENT);
        assert_eq!(span(Position::Latest, 9, Position::Earliest, 2), swapped);
        assert_eq!(
            span(Position::BeforeLatest(1), 8, Position::BeforeLatest(5), 4),
            swapped
        );
        assert_eq!(span(at(5), 5, Position::AfterEarliest(1), 3), swapped);
        assert_eq!(span(at(9), 9, Position::BeforeLatest(2), 7), swapped);
    }
}
