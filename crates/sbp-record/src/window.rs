//! Selects records by time.

use sbp_types::{Offset, TimestampMs};

use crate::batch::{Batch, Body};
use crate::time::micros;

/// A range of times: from `start` up to, not including, `end`. `None`: no bound.
///
/// Records are ordered by offset, and their times may come in any order, so each record is compared by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeWindow {
    /// The first time in the window.
    pub start: Option<TimestampMs>,
    /// The first time after the window.
    pub end: Option<TimestampMs>,
}

impl TimeWindow {
    /// Whether the window has no bounds, so that every record is in it.
    #[must_use]
    pub fn is_unbounded(self) -> bool {
        self.start.is_none() && self.end.is_none()
    }

    /// Whether a time, in microseconds, is in the window.
    #[must_use]
    pub fn has(self, time_us: i64) -> bool {
        self.start.is_none_or(|start| time_us >= micros(start)) && self.end.is_none_or(|end| time_us < micros(end))
    }
}

impl Batch {
    /// The runs of records with offsets in [from, to) whose times are in the window, in order; each as its first offset
    /// and one past its last. Rows of typed columns all have the time of the batch.
    #[must_use]
    pub fn runs_within(&self, from: Offset, to: Offset, window: TimeWindow) -> Vec<(Offset, Offset)> {
        let from = from.max(self.base_offset());
        let to = to.min(self.end_offset());
        if from >= to {
            return Vec::new();
        }
        let times = match self.body() {
            Body::Records { view, .. } => view.timestamps.as_ref(),
            _ => None,
        };
        let Some(times) = times.filter(|_| !window.is_unbounded()) else {
            let all = window.is_unbounded() || window.has(self.base_micros());
            return all.then_some((from, to)).into_iter().collect();
        };
        let mut runs: Vec<(Offset, Offset)> = Vec::new();
        let rows = self.rows_between(from, to);
        let wanted = times.get(rows.clone()).unwrap_or_default().iter().zip(rows);
        let mut behind = None;
        for (_, row) in wanted.filter(|(time, _)| window.has(**time)) {
            let at = self.positions().at(row);
            let end = Offset(at.0.saturating_add(1));
            match runs.last_mut() {
                Some(run) if behind == Some(row) => run.1 = end,
                _ => runs.push((at, end)),
            }
            behind = Some(row + 1);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;
    use sbp_types::{Offset, TimestampMs};

    use super::TimeWindow;
    use crate::time::{CALENDAR, first_outside_calendar, is_calendar_time, other_unit};
    use crate::{Batch, EncodeOptions, RecordsBuilder, encode_raw};

    fn batch(times: &[Option<i64>], base: i64) -> Batch {
        let mut builder = RecordsBuilder::new();
        for time in times {
            builder.push(Some(b"x"), None, *time, &[]).unwrap();
        }
        let mut out = BytesMut::new();
        let options = EncodeOptions {
            timestamp: TimestampMs(base),
            ..EncodeOptions::default()
        };
        builder.finish(&options, &mut out).unwrap();
        Batch::decode(out.freeze(), None).unwrap()
    }

    #[test]
    fn times_are_those_of_calendars() {
        let fits = |time| is_calendar_time(TimestampMs(time));
        assert!(fits(0) && fits(1_712_345_678_123) && fits(CALENDAR.0) && fits(CALENDAR.1));
        assert!(!fits(CALENDAR.0 - 1) && !fits(CALENDAR.1 + 1) && !fits(1_712_345_678_123_456) && !fits(i64::MAX));
        assert!(other_unit(1_712_345_678_123_456).contains("microseconds"));
        assert!(other_unit(1_712_345_678_123_456_789).contains("nanoseconds"));
        assert_eq!(other_unit(i64::MAX), "");
    }

    #[test]
    fn the_first_time_outside_is_found() {
        let micros = |milliseconds: i64| milliseconds * 1_000;
        let (first, last) = (micros(CALENDAR.0), micros(CALENDAR.1) + 999);
        assert_eq!(first_outside_calendar(&[]), None);
        assert_eq!(first_outside_calendar(&[first, 0, last]), None);
        assert_eq!(first_outside_calendar(&[0, first - 1, last + 1]), Some(1));
        assert_eq!(first_outside_calendar(&[first, last, last + 1]), Some(2));
        assert_eq!(first_outside_calendar(&[i64::MAX]), Some(0));
        assert_eq!(first_outside_calendar(&[5, i64::MIN]), Some(1));
    }

    #[test]
    fn a_batch_with_one_time_is_in_a_window_or_not() {
        let mut out = BytesMut::new();
        let options = EncodeOptions {
            timestamp: TimestampMs(10),
            ..EncodeOptions::default()
        };
        encode_raw(&options, b"x", &mut out).unwrap();
        let batch = Batch::decode(out.freeze(), None).unwrap();
        let runs = |start, end| {
            let window = TimeWindow {
                start: Some(TimestampMs(start)),
                end: Some(TimestampMs(end)),
            };
            batch.runs_within(Offset(0), Offset(i64::MAX), window).len()
        };
        assert_eq!([runs(10, 11), runs(9, 10), runs(11, 12), runs(10, 10)], [1, 0, 0, 0]);
        assert_eq!(batch.runs_within(Offset(0), Offset(1), TimeWindow::default()).len(), 1);
    }

    proptest! {
        #[test]
        fn runs_are_the_records_of_a_window(
            times in prop::collection::vec(prop::option::of(-3_000_i64..3_000), 1..40),
            bounds in (prop::option::of(-4_i64..4), prop::option::of(-4_i64..4)),
            (from, to) in (0_i64..45, 0_i64..45),
        ) {
            let base = 1;
            let batch = batch(&times, base);
            let window = TimeWindow { start: bounds.0.map(TimestampMs), end: bounds.1.map(TimestampMs) };
            let runs = batch.runs_within(Offset(from), Offset(to), window);
            let found: Vec<i64> = runs.iter().flat_map(|(start, end)| start.0..end.0).collect();
            let wanted = times.iter().zip(0_i64..).filter(|(time, at)| {
                let time = time.unwrap_or(base * 1_000);
                (from..to).contains(at)
                    && bounds.0.is_none_or(|start| time >= start * 1_000)
                    && bounds.1.is_none_or(|end| time < end * 1_000)
            });
            prop_assert_eq!(found, wanted.map(|(_, at)| at).collect::<Vec<_>>());
            prop_assert!(runs.windows(2).all(|pair| pair[0].1 < pair[1].0), "runs are as long as they can be");
        }
    }
}
