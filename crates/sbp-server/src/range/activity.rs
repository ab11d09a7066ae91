//! The figures of a range server.

use super::server::RangeServer;
use super::stream::Phase;
use sbp_types::Durations;

/// Figures about the ranges held. Counts are since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeActivity {
    /// Streams with a range here.
    pub(crate) streams: u64,
    /// Those of them of which the placement driver knows nothing, and which are not served.
    pub(crate) withheld_streams: u64,
    /// The ranges of those that are here.
    pub(crate) withheld_ranges: u64,
    /// The bytes of their records.
    pub(crate) withheld_bytes: u64,
    /// Ranges that take appends.
    pub(crate) open_ranges: u64,
    /// Ranges that take appends here and have fewer replicas than their stream is to have.
    pub(crate) missing_replicas: u64,
    /// Ranges with damaged records.
    pub(crate) damaged_ranges: u64,
    /// APPEND entries stored.
    pub(crate) appends: u64,
    /// APPEND entries refused.
    pub(crate) appends_refused: u64,
    /// FETCH entries answered with data.
    pub(crate) fetches: u64,
    /// FETCH entries answered with an error.
    pub(crate) fetches_refused: u64,
    /// How long APPEND entries took that were stored.
    pub(crate) append_times: Durations,
    /// How long FETCHes took that did not wait for data.
    pub(crate) fetch_times: Durations,
}

impl RangeServer {
    /// The present figures.
    pub(crate) fn activity(&self) -> RangeActivity {
        let counters = &self.hub.counters;
        let mut activity = RangeActivity {
            appends: counters.appends.value(),
            appends_refused: counters.appends_refused.value(),
            fetches: counters.fetches.value(),
            fetches_refused: counters.fetches_refused.value(),
            append_times: counters.append_seconds.snapshot(),
            fetch_times: counters.fetch_seconds.snapshot(),
            damaged_ranges: u64::try_from(self.log.damaged_ranges()).unwrap_or(u64::MAX),
            ..RangeActivity::default()
        };
        let me = self.log.server_id();
        for (id, stream) in self.hub.ranges.lock().table.streams() {
            activity.streams += 1;
            if stream.withheld {
                activity.withheld_streams += 1;
                for key in stream.keys(id) {
                    activity.withheld_ranges += 1;
                    activity.withheld_bytes += self.log.stored_bytes(key);
                }
            }
            let wanted = usize::try_from(stream.facts.replicas).unwrap_or(0);
            for range in stream.ranges.iter().filter(|range| range.phase == Phase::Open) {
                activity.open_ranges += 1;
                let lacks = range.set.is_primary(me) && range.set.count() < wanted;
                activity.missing_replicas += u64::from(lacks);
            }
        }
        activity
    }
}
