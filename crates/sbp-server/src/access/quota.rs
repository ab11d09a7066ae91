//! Quotas: how much a name may do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is no limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no limit: write bytes-in=N or bytes-out=N (bytes a second), calls=N, connections=N or streams=N, where N is a \
     number such as 1000000"
)]
pub struct BadQuota(String);

/// Why limits cannot be meant.
const NOTHING_AT_ALL: &str = "a quota of 0 for bytes-in, bytes-out, calls or connections lets nothing be done at all: leave the \
                              grant out, or revoke the token";

/// The limits of one name, over all its connections to this server. What is absent is not limited. Of several lines with a
/// name the lowest limits count, for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Bytes of records appended per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in_per_second: Option<u64>,
    /// Bytes of records read per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out_per_second: Option<u64>,
    /// Requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Streams that the name has made and that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
}

impl Quota {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Sets the limit that a text names: `bytes-in=1000000`, `calls=64`.
    ///
    /// # Errors
    ///
    /// When it names none, or gives no number.
    pub fn set(&mut self, text: &str) -> Result<(), BadQuota> {
        let bad = || BadQuota(text.to_owned());
        let (key, number) = text.split_once('=').ok_or_else(bad)?;
        let rate = || number.parse().map(Some).map_err(|_| bad());
        let count = || number.parse().map(Some).map_err(|_| bad());
        match key {
            "bytes-in" => self.bytes_in_per_second = rate()?,
            "bytes-out" => self.bytes_out_per_second = rate()?,
            "calls" => self.calls = count()?,
            "connections" => self.connections = count()?,
            "streams" => self.streams = count()?,
            _ => return Err(bad()),
        }
        Ok(())
    }

    /// What cannot be meant by the limits.
    ///
    /// # Errors
    ///
    /// What, and what to say instead.
    pub fn check(&self) -> Result<(), &'static str> {
        let rates = [self.bytes_in_per_second, self.bytes_out_per_second];
        let counts = [self.calls, self.connections];
        if rates.contains(&Some(0)) || counts.contains(&Some(0)) {
            return Err(NOTHING_AT_ALL);
        }
        Ok(())
    }

    /// The lower of each limit.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            bytes_in_per_second: lower(self.bytes_in_per_second, other.bytes_in_per_second),
            bytes_out_per_second: lower(self.bytes_out_per_second, other.bytes_out_per_second),
            calls: lower(self.calls, other.calls),
            connections: lower(self.connections, other.connections),
            streams: lower(self.streams, other.streams),
        }
    }
}

/// As [`Quota::set`] takes them: `bytes-in=1000000 calls=64`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = [
            ("bytes-in", self.bytes_in_per_second),
            ("bytes-out", self.bytes_out_per_second),
            ("calls", self.calls.map(u64::from)),
            ("connections", self.connections.map(u64::from)),
            ("streams", self.streams.map(u64::from)),
        ];
        let given = limits.iter().filter_map(|(key, limit)| Some((key, (*limit)?)));
        for (place, (key, limit)) in given.enumerate() {
            let space = if place == 0 { "" } else { " " };
            write!(f, "{space}{key}={limit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_under_which_nothing_can_be_done_are_none() {
        for (text, passes) in [
            ("bytes-in=0", false),
            ("bytes-out=0", false),
            ("calls=0", false),
            ("connections=0", false),
            ("streams=0", true),
            ("bytes-in=1", true),
        ] {
            let mut quota = Quota::default();
            quota.set(text).expect(text);
            assert_eq!(quota.check().is_ok(), passes, "{text}");
        }
    }

    #[test]
    fn limits_are_read_and_shown_alike_and_the_lower_ones_count() {
        let mut quota = Quota::default();
        for text in [
            "bytes-in=1000",
            "bytes-out=2000",
            "calls=3",
            "connections=4",
            "streams=5",
        ] {
            quota.set(text).expect(text);
        }
        assert_eq!(
            quota.to_string(),
            "bytes-in=1000 bytes-out=2000 calls=3 connections=4 streams=5"
        );
        for text in [
            "",
            "calls",
            "calls=",
            "calls=-1",
            "calls=5000000000",
            "Calls=1",
            "bytes-in=1MB",
        ] {
            let error = quota.set(text).expect_err(text).to_string();
            assert!(error.contains("bytes-in=N"), "{error}");
        }
        let mut other = Quota::default();
        other.set("calls=2").expect("a limit");
        other.set("bytes-in=9000").expect("a limit");
        assert_eq!(
            quota.and(other).to_string(),
            "bytes-in=1000 bytes-out=2000 calls=2 connections=4 streams=5"
        );
        assert_eq!(Quota::default().to_string(), "");
    }
}
