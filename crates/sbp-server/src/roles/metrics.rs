//! The load figures of a range server, for its placement driver: process, disk and ranges.

use std::time::Instant;

use sbp_messages::ReportMetricsRequest;

use crate::range::RangeActivity;
use sbp_types::Durations;

/// The figures at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    at: Instant,
    process: Process,
    activity: RangeActivity,
    free_bytes: u64,
}

/// What the system tells about this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Process {
    resident_bytes: u64,
    /// Bytes read from the disk for this process since its start.
    read_bytes: u64,
    /// Bytes written to the disk for this process since its start.
    written_bytes: u64,
}

impl Sample {
    /// Takes the figures now. Those that the system does not tell are 0.
    pub(crate) fn take(free_bytes: u64, activity: RangeActivity) -> Self {
        Self {
            at: Instant::now(),
            process: Process::look(),
            activity,
            free_bytes,
        }
    }

    /// The figures for the time since `before`: rates are per second, sizes in bytes.
    pub(crate) fn since(&self, before: &Self, server: sbp_messages::RangeServer) -> ReportMetricsRequest {
        let millis = self.at.saturating_duration_since(before.at).as_millis().max(1);
        let rate = |now: u64, then: u64| {
            let per_second = u128::from(now.saturating_sub(then)).saturating_mul(1000) / millis;
            u64::try_from(per_second).unwrap_or(u64::MAX)
        };
        let (process, then) = (&self.process, &before.process);
        let (ranges, ranges_then) = (&self.activity, &before.activity);
        ReportMetricsRequest {
            range_server: Some(server),
            disk_in_rate: wide(rate(process.written_bytes, then.written_bytes)),
            disk_out_rate: wide(rate(process.read_bytes, then.read_bytes)),
            disk_free_space: wide(self.free_bytes),
            memory_used: wide(process.resident_bytes),
            network_append_rate: narrow(rate(ranges.appends, ranges_then.appends)),
            network_fetch_rate: narrow(rate(ranges.fetches, ranges_then.fetches)),
            network_failed_append_rate: narrow(rate(ranges.appends_refused, ranges_then.appends_refused)),
            network_failed_fetch_rate: narrow(rate(ranges.fetches_refused, ranges_then.fetches_refused)),
            network_append_avg_latency: mean(&ranges.append_times, &ranges_then.append_times),
            network_fetch_avg_latency: mean(&ranges.fetch_times, &ranges_then.fetch_times),
            range_active_cnt: narrow(ranges.open_ranges),
            // Of a damaged range this server lacks the copy.
            range_missing_replica_cnt: narrow(ranges.damaged_ranges.saturating_add(ranges.missing_replicas)),
            withheld_range_cnt: i32::try_from(ranges.withheld_ranges).unwrap_or(i32::MAX),
            withheld_bytes: wide(ranges.withheld_bytes),
            ..ReportMetricsRequest::default()
        }
    }
}

/// Memory of this process.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| resident_pages(&text)).unwrap_or(0);
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    pages.saturating_mul(page)
}

impl Process {
    fn look() -> Self {
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        Self {
            resident_bytes: resident_bytes(),
            read_bytes: counter(&io, "read_bytes").unwrap_or(0),
            written_bytes: counter(&io, "write_bytes").unwrap_or(0),
        }
    }
}

/// The second number of `/proc/self/statm`: resident pages.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The number with this name in `/proc/self/io`.
fn counter(io: &str, name: &str) -> Option<u64> {
    let mut lines = io.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

/// The mean of the durations that were counted since `before`, in milliseconds, rounded up; 0 if there were none.
fn mean(now: &Durations, before: &Durations) -> i16 {
    let nanos = now.since(before).mean().as_nanos();
    narrow(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

fn wide(figure: u64) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}

/// The protocol has sixteen bits for these figures; larger ones are cut off at the maximum.
fn narrow(figure: u64) -> i16 {
    i16::try_from(figure).unwrap_or(i16::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use sbp_types::Histogram;

    #[test]
    fn the_systems_words_are_read() {
        assert_eq!(resident_pages("100 42 7 1 0 9 0\n"), Some(42));
        let io = "rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n";
        assert_eq!(counter(io, "read_bytes"), Some(4096));
        assert_eq!(counter(io, "write_bytes"), Some(8192));
        assert_eq!(counter(io, "nothing"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let sample = Sample::take(7, RangeActivity::default());
        assert!(sample.process.resident_bytes > 1 << 20, "{sample:?}");
    }

    #[test]
    fn latencies_are_means_of_what_happened_since_the_last_report() {
        let times = Histogram::default();
        times.observe(Duration::from_secs(9), 5);
        let before = times.snapshot();
        assert_eq!(mean(&before, &before), 0, "nothing since");
        times.observe(Duration::from_micros(2_100), 3);
        times.observe(Duration::from_micros(4_000), 1);
        let now = times.snapshot();
        assert_eq!(mean(&now, &before), 3, "2.575 ms");
        let activity = |append_times| RangeActivity {
            append_times,
            fetch_times: append_times,
            ..RangeActivity::default()
        };
        let sample = |activity| Sample::take(7, activity);
        let report = sample(activity(now)).since(&sample(activity(before)), sbp_messages::RangeServer::default());
        assert_eq!(
            (report.network_append_avg_latency, report.network_fetch_avg_latency),
            (3, 3)
        );
        times.observe(Duration::from_hours(1), 1);
        assert_eq!(mean(&times.snapshot(), &now), i16::MAX);
    }

    #[test]
    fn rates_are_per_second_and_fit() {
        let start = Instant::now();
        let sample = |seconds, appends, written_bytes| Sample {
            at: start + Duration::from_secs(seconds),
            process: Process {
                written_bytes,
                read_bytes: written_bytes / 2,
                ..Process::default()
            },
            activity: RangeActivity {
                appends,
                appends_refused: appends / 2,
                fetches: appends / 4,
                fetches_refused: appends / 10,
                open_ranges: 3,
                withheld_ranges: 2,
                withheld_bytes: written_bytes,
                ..RangeActivity::default()
            },
            free_bytes: 7,
        };
        let server = sbp_messages::RangeServer::default;
        let report = sample(2, 1_000, 3 << 20).since(&sample(0, 0, 1 << 20), server());
        assert_eq!((report.network_append_rate, report.disk_in_rate), (500, 1 << 20));
        assert_eq!((report.network_fetch_rate, report.disk_out_rate), (125, 1 << 19));
        assert_eq!(
            (report.network_failed_append_rate, report.network_failed_fetch_rate),
            (250, 50)
        );
        assert_eq!(report.range_active_cnt, 3);
        assert_eq!(
            (report.withheld_range_cnt, report.withheld_bytes),
            (2, 3 << 20),
            "what there is, no rate"
        );
        assert_eq!(report.disk_free_space, 7);
        let report = sample(1, u64::MAX, 0).since(&sample(0, 0, 1), server());
        assert_eq!((report.network_append_rate, report.disk_in_rate), (i16::MAX, 0));
    }
}
