//! How long a benchmark of appends goes on, what it appends, and what it finds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;

/// When a benchmark ends.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    Time(Duration),
    Appends(u64),
}

impl Goal {
    /// Whether there is another append to be submitted behind those that were.
    pub(super) fn goes_on(self, begin: Instant, now: Instant, submitted: u64) -> bool {
        match self {
            Self::Appends(appends) => submitted < appends,
            Self::Time(time) => now - begin < time,
        }
    }
}

/// What a benchmark of appends found.
pub(super) struct Measured {
    pub(super) appends: u64,
    pub(super) time: Duration,
    pub(super) latency: Histogram<u64>,
}

/// A record of that many bytes.
pub(super) fn record(size: usize) -> Bytes {
    let letters = (0..size).map(|index| b'a' + u8::try_from(index % 26).unwrap_or(0));
    letters.collect::<Vec<_>>().into()
}
