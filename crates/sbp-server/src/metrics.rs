//! A server's figures as metrics, in the text format of OpenMetrics.
//!
//! Nothing is kept here: each scrape encodes a [`Status`], and then pages of streams. What is counted while the server
//! works are atomic integers, so that nothing on the way of an append takes a lock, and a forked child inherits none of
//! somebody else's.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::status::{Phase, Snapshot, Status, StreamRow};
use sbp_types::Durations;

/// The figures of the server as text, to be followed by those of streams and the [end](end).
pub(crate) fn server(status: Status) -> String {
    text(Scrape(status))
}

/// A page of one [family](FAMILIES) of figures of streams; the first page of a family begins with its head.
pub(crate) fn streams(family: usize, rows: Vec<StreamRow>, is_first: bool) -> String {
    let text = text(StreamScrape { family, rows });
    if is_first {
        return text;
    }
    let samples = text.split_inclusive('\n').filter(|line| !line.starts_with('#'));
    samples.collect()
}

/// How many figures there are of each stream. The format wants all samples of one together.
pub(crate) const FAMILIES: usize = STREAM_GAUGES.len();

/// What ends a scrape.
pub(crate) fn end() -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    let _written = encode_eof(&mut text);
    text
}

fn text(collector: impl Collector) -> String {
    let mut registry = Registry::with_prefix("sbp");
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    let _written = encode_registry(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Scrape(Status);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(status) = self;
        let mut out = Writer { encoder };
        out.info("build", "The software that runs", &[("version", status.version)])?;
        out.gauge("ready", "1 if the server can be sent work", status.readiness.ready)?;
        let recovering = matches!(status.readiness.phase, Phase::Starting | Phase::Recovering);
        out.gauge("recovering", "1 until the server has read its directory", recovering)?;
        let draining = status.readiness.phase == Phase::Draining;
        out.gauge("draining", "1 while the server ends", draining)?;
        out.seconds(
            "uptime_seconds",
            "Time since the server's start",
            status.uptime.as_secs_f64(),
        )?;
        let wait = "How long the oldest operation of the disk has been under way, 0 if none is";
        out.seconds("disk_wait_seconds", wait, status.disk_wait.as_secs_f64())?;
        match &status.server {
            Some(server) => {
                counts(&mut out, server)?;
                gauges(&mut out, server)?;
                latencies(&mut out, server)
            }
            None => Ok(()),
        }
    }
}

fn counts(out: &mut Writer<'_>, server: &Snapshot) -> fmt::Result {
    let counts = &server.counts;
    out.counter("connections_accepted", "Connections accepted", counts.connections)?;
    out.counter("append_batches", "Batches stored", counts.appends)?;
    out.counter("append_records", "Records stored", counts.append_records)?;
    out.counter("append_bytes", "Bytes of batches stored", counts.append_bytes)?;
    out.counter("fetch_answers", "Entries of FETCHes answered with data", counts.fetches)?;
    out.counter(
        "fetch_bytes",
        "Bytes of batches in answers to FETCHes",
        counts.fetch_bytes,
    )?;
    out.counter(
        "log_groups",
        "Groups of appends that the log has written",
        counts.groups,
    )?;
    out.counter(
        "log_written_bytes",
        "Bytes that the log has written",
        counts.written_bytes,
    )?;
    let compacted = "Bytes that were written to free space";
    out.counter("log_compacted_bytes", compacted, counts.compacted_bytes)?;
    let throttled = [("in", counts.throttled_in), ("out", counts.throttled_out)];
    out.counters(
        "quota_throttled",
        "Answers that asked for a pause, because somebody had used up the bytes of a quota",
        throttled
            .map(|(direction, count)| ([("direction", direction.to_owned())], count))
            .into_iter(),
    )?;
    let refused = counts.refusals.iter().map(|refused| {
        let labels = [
            ("code", refused.code.to_string()),
            ("name", refused.name.to_lowercase()),
        ];
        (labels, refused.count)
    });
    out.counters(
        "refusals",
        "Requests, and entries of requests, that were refused, by error",
        refused,
    )
}

fn gauges(out: &mut Writer<'_>, server: &Snapshot) -> fmt::Result {
    let gauges = &server.gauges;
    out.gauge("connections", "Connections open", gauges.connections)?;
    out.gauge("streams", "Streams", gauges.streams)?;
    out.gauge("open_ranges", "Ranges here that take appends", gauges.open_ranges)?;
    out.gauge(
        "damaged_ranges",
        "Ranges here with records that the disk has damaged",
        gauges.damaged_ranges,
    )?;
    out.gauge(
        "withheld_streams",
        "Streams with a range here of which the placement driver knows nothing, and which are not served",
        gauges.withheld_streams,
    )?;
    out.gauge(
        "replicas_missing",
        "Copies of ranges on servers that are down",
        gauges.replicas_missing,
    )?;
    let pending = "Bytes of appends that wait for the disk";
    out.gauge("append_pending_bytes", pending, gauges.append_pending_bytes)?;
    out.gauge(
        "reads_pending",
        "Reads that wait for a reader thread",
        gauges.reads_pending,
    )?;
    out.gauge("fetches_waiting", "FETCHes that wait for data", gauges.fetches_waiting)?;
    out.gauge(
        "metadata_pending",
        "Changes of streams and ranges that are not done",
        gauges.metadata_pending,
    )?;
    out.gauge("log_segments", "Segments of the log", gauges.segments)?;
    out.gauge(
        "disk_free_bytes",
        "Free bytes of the disk with the data directory",
        gauges.disk_free_bytes,
    )?;
    out.gauge(
        "disk_size_bytes",
        "Bytes of the disk with the data directory",
        gauges.disk_size_bytes,
    )?;
    out.seconds(
        "disk_space_age_seconds",
        "How long ago the disk told its size and its free bytes",
        gauges.disk_space_age.as_secs_f64(),
    )?;
    out.gauge(
        "disk_full",
        "1 while appends are refused because the disk has no room",
        gauges.disk_full,
    )?;
    out.gauge(
        "disk_nearly_full",
        "1 while appends are refused that are too large for the room that the disk has left, and smaller ones are stored",
        gauges.disk_nearly_full,
    )?;
    out.gauge(
        "failed",
        "1 once the log or the metadata store has failed",
        gauges.failed,
    )?;
    out.gauge("resident_memory_bytes", "Memory of the process", gauges.resident_bytes)?;
    if let Some(connected) = gauges.placement_driver_connected {
        let help = "1 while a range server is connected to its placement driver";
        out.gauge("placement_driver_connected", help, connected)?;
    }
    let servers = &server.cluster.servers;
    let count = |up| u64::try_from(servers.iter().filter(|server| server.up == up).count()).unwrap_or(u64::MAX);
    let by_state = [([("state", "up")], count(true)), ([("state", "down")], count(false))];
    out.gauges("range_servers", "Range servers that are known", by_state)
}

fn latencies(out: &mut Writer<'_>, server: &Snapshot) -> fmt::Result {
    let took = &server.latencies;
    out.histogram("append_seconds", "From an APPEND's arrival to its answer", &took.append)?;
    let fetch = "From a FETCH's arrival to its last frame, without those that waited for data";
    out.histogram("fetch_seconds", fetch, &took.fetch)?;
    let end_to_end = "From a batch's place in its stream to the answer of a FETCH that waited for it";
    out.histogram("end_to_end_seconds", end_to_end, &took.end_to_end)?;
    out.histogram("sync_seconds", "Syncs of the log", &took.sync)?;
    out.histogram("metadata_seconds", "Changes of streams and ranges", &took.metadata)?;
    let lag = "How late a timer goes off in the thread that serves connections";
    out.histogram("loop_lag_seconds", lag, &took.loop_lag)
}

type StreamGauge = (&'static str, &'static str, fn(&StreamRow) -> Option<Gauge>);

/// The figures of each stream: name, meaning, value.
const STREAM_GAUGES: [StreamGauge; 4] = [
    ("stream_start_offset", "The first offset that is kept", |stream| {
        Some(stream.start.into())
    }),
    ("stream_end_offset", "One past the last record", |stream| {
        stream.end.map(Gauge::from)
    }),
    ("stream_bytes", "Bytes stored on this server", |stream| {
        Some(stream.bytes.into())
    }),
    (
        "stream_writers",
        "Idempotent writers that this server remembers",
        |stream| Some(stream.writers.into()),
    ),
];

#[derive(Debug)]
struct StreamScrape {
    family: usize,
    rows: Vec<StreamRow>,
}

impl Collector for StreamScrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some((name, help, value)) = STREAM_GAUGES.get(self.family) else {
            return Ok(());
        };
        let samples = self.rows.iter().filter_map(|stream| {
            let name = stream.name.as_deref().unwrap_or_default();
            Some((
                [("stream", stream.id.to_string()), ("name", name.to_owned())],
                value(stream)?,
            ))
        });
        Writer { encoder }.gauges(name, help, samples)
    }
}

/// Writes metrics, each by one call.
struct Writer<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Writer<'_> {
    fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Info)?;
        metric.encode_info(&labels)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Into<Gauge>) -> fmt::Result {
        let Gauge(value) = value.into();
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&value)
    }

    fn gauges<L: EncodeLabelSet, V: Into<Gauge>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            let Gauge(value) = value.into();
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&value)
    }

    fn histogram(&mut self, name: &str, help: &str, took: &Durations) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        let buckets: Vec<_> = took.buckets().collect();
        metric.encode_histogram::<NoLabelSet>(took.sum(), took.count(), &buckets, None)
    }
}

/// The value of a gauge.
struct Gauge(i64);

impl From<u64> for Gauge {
    fn from(value: u64) -> Self {
        Self(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Gauge {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

impl From<bool> for Gauge {
    fn from(value: bool) -> Self {
        Self(i64::from(value))
    }
}
