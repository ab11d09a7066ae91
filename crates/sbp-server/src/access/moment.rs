//! A moment of the calendar, as the files of this server write it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970, written as `2026-11-23T12:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Moment(i64);

/// Why a text is no moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a time is written as 2026-11-23T12:00:00Z")]
pub struct BadMoment;

impl Moment {
    /// Milliseconds since 1970.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// As long after this.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// How long it is from `now` to this; zero when it has passed.
    #[must_use]
    pub fn from_now(self, now: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(now.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_millis(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
            // Beyond the years that a calendar knows.
            None => f.write_str("9999-12-31T23:59:59Z"),
        }
    }
}

impl FromStr for Moment {
    type Err = BadMoment;

    fn from_str(text: &str) -> Result<Self, BadMoment> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| BadMoment)?;
        Ok(Self(time.timestamp_millis()))
    }
}

impl TryFrom<String> for Moment {
    type Error = BadMoment;

    fn try_from(text: String) -> Result<Self, BadMoment> {
        text.parse()
    }
}

impl From<Moment> for String {
    fn from(moment: Moment) -> Self {
        moment.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_and_shown_alike() {
        for text in ["2026-11-23T12:00:00Z", "1970-01-01T00:00:00.250Z"] {
            assert_eq!(text.parse::<Moment>().expect(text).to_string(), text);
        }
        assert_eq!(
            "2026-11-23T13:00:00+01:00".parse::<Moment>(),
            "2026-11-23T12:00:00Z".parse()
        );
        assert!("tomorrow".parse::<Moment>().is_err());
        let now = Moment::from_secs(100);
        assert_eq!(now.after(Duration::from_secs(5)).from_now(now), Duration::from_secs(5));
        assert_eq!(now.from_now(now.after(Duration::from_secs(5))), Duration::ZERO);
    }
}
