//! Places and times as people write them.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, Timelike, Utc};
use sbp_client::Position;
use sbp_types::{Offset, TimestampMs};

/// A place in a stream: what [`Position::parse`] reads, an offset, a time, or `-1h`: so long ago.
pub(crate) fn parse_position(text: &str) -> Result<Position, String> {
    if let Some(place) = Position::parse(text) {
        return Ok(place);
    }
    if let Ok(offset) = text.parse::<u64>() {
        let offset = i64::try_from(offset).map_err(|_over| format!("{offset} is no offset: too large"))?;
        return Ok(Position::At(Offset(offset)));
    }
    if let Some(ago) = text.strip_prefix('-').filter(|ago| ago.ends_with(char::is_alphabetic)) {
        let now = TimestampMs(Utc::now().timestamp_millis());
        return Ok(Position::Time(TimestampMs(
            now.0.saturating_sub(millis(parse_duration(ago)?)),
        )));
    }
    parse_time(text).map(Position::Time).ok_or_else(|| {
        format!(
            "{text:?} is no place; write earliest, latest, latest-100, an offset, a time such as 2026-01-31T10:00:00Z, \
             or -1h for an hour ago"
        )
    })
}

/// A time in UTC: `2026-01-31`, `2026-01-31T10:00`, `2026-01-31T10:00:00Z`, `2026-01-31T10:00:00.250Z`.
pub(crate) fn parse_time(text: &str) -> Option<TimestampMs> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let day = NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?;
    let forms = ["%H:%M", "%H:%M:%S%.f"];
    let mut times = forms.iter().map(|form| NaiveTime::parse_from_str(time, form));
    let time = times.find_map(Result::ok)?;
    // A year has four digits, and no minute has a leap second.
    if date.find('-') != Some(4) || time.nanosecond() >= 1_000_000_000 {
        return None;
    }
    Some(TimestampMs(day.and_time(time).and_utc().timestamp_millis()))
}

/// A point in time as people read it; its number if it is in no calendar.
pub(crate) fn format_time(time: TimestampMs) -> String {
    match DateTime::from_timestamp_millis(time.0) {
        Some(time) => time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        None => time.to_string(),
    }
}

/// A span of time in milliseconds, as requests carry it.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A span of time with a unit: `250ms`, `30s`, `5m`, `2h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(format!("{unit:?} is no unit of time; use ms, s, m, h or d")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no time; write for example 30s"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::Utc;
    use sbp_client::Position;
    use sbp_types::{Offset, TimestampMs};

    use super::{format_time, parse_duration, parse_position, parse_time};

    #[test]
    fn places_are_read() {
        assert_eq!(parse_position("earliest"), Ok(Position::Earliest));
        assert_eq!(parse_position("latest-100"), Ok(Position::BeforeLatest(100)));
        assert_eq!(parse_position("17"), Ok(Position::At(Offset(17))));
        let Ok(Position::Time(ago)) = parse_position("-1h") else {
            panic!("an hour ago is a time")
        };
        let hour = Utc::now().timestamp_millis() - ago.0;
        assert!((3_600_000..3_660_000).contains(&hour), "{hour}");
        for same in [
            "1970-01-02",
            "1970-1-2",
            "1970-01-02T00:00",
            "1970-01-02 00:00:00",
            "1970-01-02T00:00:00.0009Z",
        ] {
            assert_eq!(
                parse_position(same),
                Ok(Position::Time(TimestampMs(86_400_000))),
                "{same}"
            );
        }
        assert_eq!(
            parse_position("2026-01-31T10:00:00.250Z"),
            Ok(Position::Time(TimestampMs(1_769_853_600_250)))
        );
        for wrong in [
            "",
            "-1",
            "-h",
            "-1 parsec",
            "latest+1",
            "soon",
            "2026-02-29",
            "2026-13-01",
            "2026-01-01T25:00",
            "2026-01-01T10:00:60",
            "20260-1-1",
            "+2026-01-01",
            "2026-01-01T10",
            "99999999999999999999",
        ] {
            assert!(parse_position(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T23:59:59.999Z",
            "2026-01-31T10:00:00.250Z",
        ] {
            assert_eq!(parse_time(text).map(format_time).as_deref(), Some(text));
        }
        assert_eq!(format_time(TimestampMs(-1)), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7_200)));
        assert!(parse_duration("5 parsecs").is_err() && parse_duration("-1s").is_err());
    }
}
