//! What a client has done since it was made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sbp_transport::TransportStats;
use sbp_types::{Durations, Histogram};

use crate::channel::round_trips::{RoundTripStats, RoundTrips};

/// A snapshot of a client's counters; see [`Client::stats`](crate::Client::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Requests given to a connection.
    pub calls: u64,
    /// Answer frames received.
    pub answers: u64,
    /// Calls that were started and are not over: appends, also those that wait for their turn, and requests on their way.
    pub in_flight: u64,
    /// Bytes of the appends among them.
    pub bytes_in_flight: u64,
    /// How long answers took.
    pub round_trips: RoundTripStats,
    /// Bytes of append bodies and request headers given to a connection.
    pub bytes_out: u64,
    /// Bytes of answer payloads received.
    pub bytes_in: u64,
    /// Bytes of received frames that callers keep now, through views of batches in them.
    pub bytes_pinned: u64,
    /// Bytes of received batches that were copied so that they would not keep a frame.
    pub bytes_unpinned: u64,
    /// Times outcomes of appends were delivered to a sink, each time with everything one turn completed.
    pub completion_batches: u64,
    /// Connections made.
    pub connections: u64,
    /// Read calls on sockets.
    pub reads: u64,
    /// Write calls on sockets.
    pub writes: u64,
    /// Times a connection's task was woken.
    pub wakeups: u64,
}

/// How long a client's requests took; see [`Client::metrics`](crate::Client::metrics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientMetrics {
    /// Appends that were stored, from their submission to their outcome, with all attempts. Of one that goes to several
    /// servers each part; of a writer each batch, from when a connection took it.
    pub append: Durations,
    /// FETCHes that do not wait for data, from their send to their last frame.
    pub fetch: Durations,
    /// FETCHes that may wait for data, as those of tails do: the waiting is part of it.
    pub fetch_wait: Durations,
    /// All other requests but PING and HEARTBEAT, from their send to their last frame.
    pub call: Durations,
}

/// What is behind [`ClientMetrics`].
#[derive(Debug, Default)]
pub(crate) struct Took {
    pub(crate) append: Histogram,
    pub(crate) fetch: Histogram,
    pub(crate) fetch_wait: Histogram,
    pub(crate) call: Histogram,
}

impl Took {
    pub(crate) fn snapshot(&self) -> ClientMetrics {
        ClientMetrics {
            append: self.append.snapshot(),
            fetch: self.fetch.snapshot(),
            fetch_wait: self.fetch_wait.snapshot(),
            call: self.call.snapshot(),
        }
    }
}

/// The counters themselves.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    calls: AtomicU64,
    answers: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    completion_batches: AtomicU64,
    connections: AtomicU64,
    /// Connections that are over.
    ended: AtomicU64,
    /// Requests on connections, other than appends, that are not over.
    requests: AtomicU64,
    pub(crate) round_trips: RoundTrips,
    pub(crate) took: Took,
    /// What the drivers of ended connections counted.
    reads: AtomicU64,
    writes: AtomicU64,
    wakeups: AtomicU64,
}

fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(u64::try_from(more).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn add_call(&self, bytes: usize) {
        add(&self.calls, 1);
        add(&self.bytes_out, bytes);
    }

    pub(crate) fn add_answer(&self, bytes: usize) {
        add(&self.answers, 1);
        add(&self.bytes_in, bytes);
    }

    pub(crate) fn add_completions(&self, batches: u64) {
        if batches > 0 {
            self.completion_batches.fetch_add(batches, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_connection(&self) {
        add(&self.connections, 1);
    }

    /// A number that changes whenever a connection is made or over; `None` while there is none.
    pub(crate) fn era(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::Relaxed);
        let made = self.connections.load(Ordering::Relaxed);
        (made > ended).then_some(made + ended)
    }

    /// A connection has so many requests other than appends on their way now, and had so many before.
    pub(crate) fn set_requests(&self, before: usize, now: usize) {
        // Wrapping, so that one addition serves both directions.
        let change = u64::try_from(now)
            .unwrap_or(0)
            .wrapping_sub(u64::try_from(before).unwrap_or(0));
        self.requests.fetch_add(change, Ordering::Relaxed);
    }

    /// Keeps what a connection's driver counted, when it is over.
    pub(crate) fn keep(&self, driver: &TransportStats) {
        add(&self.ended, 1);
        self.reads.fetch_add(driver.reads(), Ordering::Relaxed);
        self.writes.fetch_add(driver.writes(), Ordering::Relaxed);
        self.wakeups.fetch_add(driver.wakeups(), Ordering::Relaxed);
    }

    /// All counters, with those of the drivers that run now.
    pub(crate) fn snapshot(&self, running: &[Arc<TransportStats>]) -> ClientStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sum = |kept: &AtomicU64, of: fn(&TransportStats) -> u64| {
            read(kept) + running.iter().map(|driver| of(driver)).sum::<u64>()
        };
        ClientStats {
            calls: read(&self.calls),
            answers: read(&self.answers),
            in_flight: read(&self.requests),
            round_trips: self.round_trips.snapshot(),
            bytes_out: read(&self.bytes_out),
            bytes_in: read(&self.bytes_in),
            completion_batches: read(&self.completion_batches),
            connections: read(&self.connections),
            reads: sum(&self.reads, TransportStats::reads),
            writes: sum(&self.writes, TransportStats::writes),
            wakeups: sum(&self.wakeups, TransportStats::wakeups),
            ..ClientStats::default()
        }
    }
}
