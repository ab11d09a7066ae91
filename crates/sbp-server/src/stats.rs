//! Figures about a running server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sbp_types::{Durations, Histogram};

/// A snapshot of the server's counters, all since its start unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Streams that exist now; in a process that is only a range server, those with a range here.
    pub streams: u64,
    /// APPEND entries stored.
    pub appends: u64,
    /// Records in stored APPEND entries.
    pub records_appended: u64,
    /// APPEND entries refused.
    pub appends_refused: u64,
    /// FETCH entries answered with data.
    pub fetches: u64,
    /// Bytes of batches returned.
    pub bytes_fetched: u64,
    /// Groups the log has written.
    pub groups: u64,
    /// Syncs of the log's segments.
    pub syncs: u64,
    /// How long each of them took.
    pub sync_times: Durations,
    /// Requests, and entries of requests, that were refused, for whatever reason.
    pub refusals: u64,
    /// How often the file of names was looked at for changes, and what it says taken over.
    pub names_looked_at: u64,
    /// How often the keys of OAuth tokens were looked at for changes, and taken over.
    pub keys_looked_at: u64,
    /// Ranges with records known to be damaged on the disk.
    pub damaged_ranges: u64,
    /// The name of the durability in force: `fsync` or `none`.
    pub durability: &'static str,
}

/// A counter. Relaxed, because it is only displayed.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        if count != 0 {
            self.0
                .fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many things there are now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level(Arc<AtomicU64>);

impl Level {
    /// One more, until it is dropped.
    pub(crate) fn one(&self) -> One {
        self.0.fetch_add(1, Ordering::Relaxed);
        One(self.clone())
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of the things of a [`Level`].
#[derive(Debug)]
pub(crate) struct One(Level);

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The server's counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections_accepted: Counter,
    pub(crate) connections_closed: Counter,
    pub(crate) appends: Counter,
    pub(crate) records_appended: Counter,
    pub(crate) appends_refused: Counter,
    pub(crate) fetches: Counter,
    /// FETCH entries answered with an error.
    pub(crate) fetches_refused: Counter,
    pub(crate) bytes_fetched: Counter,
    /// FETCHes that wait for data.
    pub(crate) fetches_waiting: Level,
    /// Changes of streams and ranges that are not done.
    pub(crate) metadata_pending: Level,
    /// Times that a quota made the server ask somebody to wait before the next APPEND.
    pub(crate) throttled_in: Counter,
    /// Times that a quota made the server ask somebody to wait before the next FETCH.
    pub(crate) throttled_out: Counter,
    /// How long APPEND entries took that were stored.
    pub(crate) append_seconds: Histogram,
    /// How long FETCHes took that did not wait for data.
    pub(crate) fetch_seconds: Histogram,
    /// How long it took from an APPEND's arrival to the end of a FETCH that waited for it.
    pub(crate) end_to_end_seconds: Histogram,
    /// How long the disk took for each sync of the log.
    pub(crate) sync_seconds: Histogram,
    /// How long changes of streams and ranges took.
    pub(crate) metadata_seconds: Histogram,
    /// How late timers went off in the thread that serves connections.
    pub(crate) loop_lag_seconds: Histogram,
}

/// Seconds with three digits behind the point, for the log.
pub(crate) fn seconds_since(began: Instant) -> f64 {
    (began.elapsed().as_secs_f64() * 1e3).round() / 1e3
}
