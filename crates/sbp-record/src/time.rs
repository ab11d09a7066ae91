//! Times of records: milliseconds in heads, microseconds in columns.

use sbp_types::TimestampMs;

/// The first and the last millisecond of the years 1 to 9999, which every calendar has.
pub(crate) const CALENDAR: (i64, i64) = (-62_135_596_800_000, 253_402_300_799_999);

/// Whether a time is in the years 1 to 9999. Readers cannot show other times, which mostly result from a wrong unit.
#[must_use]
pub fn is_calendar_time(time: TimestampMs) -> bool {
    (CALENDAR.0..=CALENDAR.1).contains(&time.0)
}

/// The index of the first of these times, in microseconds, that is not in the years 1 to 9999.
#[must_use]
pub fn first_outside_calendar(times: &[i64]) -> Option<usize> {
    let outside = |time: &i64| !is_calendar_time(TimestampMs(time.div_euclid(1_000)));
    // Nearly always all are inside. The smallest and the largest are found without a branch per time.
    let (least, largest) = times
        .iter()
        .fold((0, 0), |(least, largest), &time| (time.min(least), time.max(largest)));
    if outside(&least) || outside(&largest) {
        return times.iter().position(outside);
    }
    None
}

/// Advice, as text, if a number is not a present-day time in milliseconds but would be one in another unit.
#[must_use]
pub fn other_unit(time: i64) -> &'static str {
    match time.unsigned_abs() {
        // From 1990 to 2100.
        631_152_000_000_000..=4_102_444_800_000_000 => "; divide by 1,000 if it is microseconds",
        631_152_000_000_000_000..=4_102_444_800_000_000_000 => "; divide by 1,000,000 if it is nanoseconds",
        _ => "",
    }
}

/// The time of records without a time of their own, in microseconds. Times outside the range are clamped.
pub(crate) fn micros(time: TimestampMs) -> i64 {
    time.0.saturating_mul(1_000)
}
