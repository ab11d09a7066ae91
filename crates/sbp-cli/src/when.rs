//! Places and times as people write them.

use std::str::FromStr;
use std::time::Duration;

use sbp_client::Position;
use sbp_types::{Offset, TimestampMs};

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Earliest,
    Latest,
    Offset(Offset),
    Time(TimestampMs),
}

impl From<When> for Position {
    fn from(when: When) -> Self {
        match when {
            When::Earliest => Self::Earliest,
            When::Latest => Self::Latest,
            When::Offset(offset) => Self::At(offset),
            When::Time(time) => Self::Time(time),
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "earliest" => return Ok(Self::Earliest),
            "latest" => return Ok(Self::Latest),
            _ => {}
        }
        if let Ok(offset) = text.parse::<u64>() {
            let offset = i64::try_from(offset).map_err(|_over| format!("{offset} is no offset: too large"))?;
            return Ok(Self::Offset(Offset(offset)));
        }
        parse_time(text).map(Self::Time).ok_or_else(|| {
            format!("{text:?} is no place; write earliest, latest, an offset, or a time such as 2026-01-31T10:00:00Z")
        })
    }
}

/// A time in UTC: `2026-01-31`, `2026-01-31T10:00`, `2026-01-31T10:00:00Z`, `2026-01-31T10:00:00.250Z`.
fn parse_time(text: &str) -> Option<TimestampMs> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut date = date.splitn(3, '-');
    let year: i64 = date.next().filter(|year| year.len() == 4)?.parse().ok()?;
    let month: u32 = date.next()?.parse().ok()?;
    let day: u32 = date.next()?.parse().ok()?;
    let mut time = time.splitn(3, ':');
    let hour: i64 = time.next()?.parse().ok()?;
    let minute: i64 = time.next()?.parse().ok()?;
    let seconds: f64 = time.next().unwrap_or("0").parse().ok()?;
    let fits = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..60.0).contains(&seconds);
    if !fits {
        return None;
    }
    let whole = (days_from_epoch(year, month, day) * 24 + hour) * 60 + minute;
    let millis = (seconds * 1_000.0).floor();
    // Below 60,000 and not negative, so the conversion is exact.
    Some(TimestampMs(whole * 60_000 + millis as i64))
}

fn days_in(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar (Howard Hinnant's algorithm, years begin in March).
fn days_from_epoch(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A point in time as people read it.
pub(crate) fn format_time(time: TimestampMs) -> String {
    let days = time.0.div_euclid(86_400_000);
    let of_day = time.0.rem_euclid(86_400_000);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, millis) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
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

    use sbp_types::{Offset, TimestampMs};

    use super::{When, format_time, parse_duration};

    #[test]
    fn places_are_read() {
        assert_eq!("earliest".parse(), Ok(When::Earliest));
        assert_eq!("17".parse(), Ok(When::Offset(Offset(17))));
        assert_eq!("1970-01-02".parse(), Ok(When::Time(TimestampMs(86_400_000))));
        assert_eq!(
            "2026-01-31T10:00:00.250Z".parse(),
            Ok(When::Time(TimestampMs(1_769_853_600_250)))
        );
        for wrong in [
            "",
            "-1",
            "soon",
            "2026-02-29",
            "2026-13-01",
            "2026-01-01T25:00",
            "99999999999999999999",
        ] {
            assert!(wrong.parse::<When>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T23:59:59.999Z",
            "2026-01-31T10:00:00.250Z",
        ] {
            let Ok(When::Time(time)) = text.parse() else {
                panic!("{text} is a time")
            };
            assert_eq!(format_time(time), text);
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
