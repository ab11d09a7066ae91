//! What one sees of a server: figures at one moment, for metrics, a status page and programs.

use std::time::Duration;

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use sbp_types::Durations;

/// Where a server stands in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It has not opened its directory.
    #[default]
    Starting,
    /// It reads its directory.
    Recovering,
    /// It serves.
    Serving,
    /// It ends: calls under way may end, no others begin.
    Draining,
    /// It has ended.
    Ended,
}

/// Something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A word for programs: `failed`, `disk-hung`, `disk-full`, `disk-nearly-full`, `damage`, `peer-lost`.
    pub kind: &'static str,
    /// What it is, and what to do.
    pub text: String,
}

/// Whether a server can be sent work, and why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// It serves and has not failed.
    pub ready: bool,
    /// Where it stands.
    pub phase: Phase,
    /// What to look at. A server with a problem may be ready: it goes on with everything that the problem leaves.
    pub problems: Vec<Problem>,
}

/// Whether somebody may see the figures of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The server asks nobody, or this token is of a name that may read or administer all streams.
    Granted,
    /// There is no token, or the server does not know it.
    Unknown,
    /// The token's name may not read or administer all streams.
    Forbidden,
}

/// Which streams come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    /// By name, those without one first, and then by number.
    #[default]
    Name,
    /// Those with the most bytes on this server.
    Bytes,
}

/// Which streams a [`Status`] has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only streams with this text in their name, in whatever case, or with this number.
    pub search: String,
    /// Which of them come first.
    pub sort: Sort,
    /// At most so many.
    pub limit: usize,
    /// The stream whose ranges are listed.
    pub stream: Option<i64>,
    /// Whether named cursors are listed. Each costs a read, of the disk where nobody has committed lately.
    pub cursors: bool,
}

/// Everything about a server at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The version of the software.
    pub version: &'static str,
    /// When this was asked, in milliseconds since 1970.
    pub time_ms: i64,
    /// How long the server has been running.
    #[serde(rename = "uptime_seconds", serialize_with = "seconds")]
    pub uptime: Duration,
    /// For how long the oldest operation of the disk has been under way; zero if none is.
    #[serde(rename = "disk_wait_seconds", serialize_with = "seconds")]
    pub disk_wait: Duration,
    /// Whether it can be sent work.
    #[serde(flatten)]
    pub readiness: Readiness,
    /// `None` until it has recovered, and after its end.
    pub server: Option<Snapshot>,
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// The figures of a server that has recovered.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Its number among the range servers; `None` for a placement driver alone.
    pub id: Option<i32>,
    /// `both`, `placement-driver` or `range-server`.
    pub role: &'static str,
    /// `host:port` that clients are told.
    pub address: String,
    /// Its data directory.
    pub data_dir: String,
    /// `fsync` or `none`.
    pub durability: &'static str,
    /// Counts since its start.
    pub counts: Counts,
    /// Figures as they are now.
    pub gauges: Gauges,
    /// How long things took since its start.
    pub latencies: Latencies,
    /// Records that the disk has damaged, at most a hundred intervals.
    pub damage: Vec<DamagedRecords>,
    /// The servers of the cluster.
    pub cluster: Cluster,
    /// The streams that were asked for.
    pub streams: Streams,
    /// The stream that was asked for.
    pub stream: Option<StreamDetail>,
}

/// Counts since a server's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// APPEND entries stored.
    pub appends: u64,
    /// Records in them.
    pub append_records: u64,
    /// Bytes of batches in them.
    pub append_bytes: u64,
    /// FETCH entries answered with data.
    pub fetches: u64,
    /// Bytes of batches in the answers.
    pub fetch_bytes: u64,
    /// Groups that the log has written.
    pub groups: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Bytes that the log has written.
    pub written_bytes: u64,
    /// Bytes that compaction has written.
    pub compacted_bytes: u64,
    /// Answers to APPENDs that asked for a pause because a quota was used up.
    pub throttled_in: u64,
    /// The same of FETCHes.
    pub throttled_out: u64,
    /// Requests and entries that were refused, by the name of the error.
    pub refusals: Vec<Refused>,
}

/// How often a request, or an entry of one, was refused with a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The number of the code.
    pub code: i16,
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// Figures as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gauges {
    /// Connections open.
    pub connections: u64,
    /// Streams that exist; of a range server alone, those with a range here.
    pub streams: u64,
    /// Ranges here that take appends.
    pub open_ranges: u64,
    /// Ranges here with damaged records.
    pub damaged_ranges: u64,
    /// Streams with a range here of which the placement driver knows nothing: they are kept, and not served.
    pub withheld_streams: u64,
    /// Copies of ranges on servers that are down.
    pub replicas_missing: u64,
    /// Bytes of appends that wait for the disk.
    pub append_pending_bytes: u64,
    /// Reads that wait for a reader thread.
    pub reads_pending: u64,
    /// FETCHes that wait for data.
    pub fetches_waiting: u64,
    /// Changes of streams and ranges that are not done.
    pub metadata_pending: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Free bytes of the disk with the data directory, as it last told them.
    pub disk_free_bytes: u64,
    /// Its size.
    pub disk_size_bytes: u64,
    /// How long ago the disk told both: seconds, unless it does not answer.
    #[serde(rename = "disk_space_age_seconds", serialize_with = "seconds")]
    pub disk_space_age: Duration,
    /// Whether appends are refused because it has no room.
    pub disk_full: bool,
    /// Whether appends are refused that are too large for the room it has left, while smaller ones are stored.
    pub disk_nearly_full: bool,
    /// Whether the log or the metadata store has failed.
    pub failed: bool,
    /// Memory of the process.
    pub resident_bytes: u64,
    /// Whether a range server alone is connected to its placement driver; `None` for others.
    pub placement_driver_connected: Option<bool>,
}

/// How long things took since a server's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// From an APPEND read off its connection until its answer: in the queue of the log, written, synced.
    #[serde(serialize_with = "durations")]
    pub append: Durations,
    /// From a FETCH read off its connection until its last frame, of those that found data at once.
    #[serde(serialize_with = "durations")]
    pub fetch: Durations,
    /// From a batch's place in its stream being given until a waiting FETCH was answered with it.
    #[serde(serialize_with = "durations")]
    pub end_to_end: Durations,
    /// The disk's syncs of the log.
    #[serde(serialize_with = "durations")]
    pub sync: Durations,
    /// Changes of streams and ranges, from the request until they were durable.
    #[serde(serialize_with = "durations")]
    pub metadata: Durations,
    /// How much later than asked for a timer went off in the thread that serves connections.
    #[serde(serialize_with = "durations")]
    pub loop_lag: Durations,
}

/// Records that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DamagedRecords {
    /// The stream.
    pub stream: i64,
    /// The range in it.
    pub range: i32,
    /// The first damaged offset.
    pub from: i64,
    /// One past the last.
    pub to: i64,
}

/// What a server knows of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// The range servers that a placement driver knows, or this range server alone.
    pub servers: Vec<Member>,
    /// Why a range server alone has no connection to its placement driver, if it lost one.
    pub placement_driver_failure: Option<String>,
}

/// A range server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its number.
    pub id: i32,
    /// `host:port`.
    pub address: String,
    /// Whether it is the server that was asked.
    pub this: bool,
    /// Whether it is connected and heard.
    pub up: bool,
    /// Open ranges whose appends go to it.
    pub open_ranges: u64,
    /// Free bytes of its disk, as it last reported.
    pub free_bytes: Option<u64>,
    /// Appends a second, as it last reported.
    pub appends_per_second: u64,
    /// Fetches a second, as it last reported.
    pub fetches_per_second: u64,
}

/// Some of the streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Streams {
    /// How many fit the search.
    pub matched: u64,
    /// The first of them.
    pub list: Vec<StreamRow>,
    /// Named cursors, at most two hundred: where jobs go on.
    pub cursors: Vec<CursorRow>,
}

/// A stream in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamRow {
    /// Its number.
    pub id: i64,
    /// Its name, if it has one and this server knows it.
    pub name: Option<String>,
    /// The first offset that is kept.
    pub start: i64,
    /// One past the last record; `None` if the open range is on another server.
    pub end: Option<i64>,
    /// Bytes stored on this server.
    pub bytes: u64,
    /// Idempotent writers that this server remembers.
    pub writers: u64,
    /// Ranges.
    pub ranges: u64,
}

/// A stream with its ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamDetail {
    /// As in the list.
    #[serde(flatten)]
    pub row: StreamRow,
    /// When it was created, in milliseconds since 1970; `None` if this server does not know it.
    pub created_ms: Option<i64>,
    /// Whether its records have columns.
    pub typed: bool,
    /// How many milliseconds a record is kept; 0: for ever.
    pub retention_ms: i64,
    /// How many bytes are kept; 0: all.
    pub retention_bytes: i64,
    /// By index, the first thousand.
    pub range_list: Vec<RangeRow>,
}

/// A range of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RangeRow {
    /// Its place in the stream.
    pub index: i32,
    /// Its epoch.
    pub epoch: i64,
    /// The first offset that is kept.
    pub start: i64,
    /// One past its last record; `None` if only another server knows it.
    pub end: Option<i64>,
    /// `open`, `sealing`, `sealed` or `damaged`.
    pub state: &'static str,
    /// Bytes stored on this server.
    pub bytes: u64,
    /// Who holds it.
    pub replicas: Vec<Replica>,
    /// Damaged offsets on this server: first, and one past the last.
    pub damage: Vec<(i64, i64)>,
}

/// A copy of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replica {
    /// The server's number.
    pub server: i32,
    /// `host:port`, if it is known.
    pub address: String,
    /// Whether the server is up.
    pub up: bool,
}

/// Where a named cursor goes on in one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CursorRow {
    /// Its name.
    pub name: String,
    /// The stream's number.
    pub stream: i64,
    /// The stream's name when the place was committed.
    pub stream_name: String,
    /// The first offset that is not done.
    pub next: i64,
    /// How many records come behind it; `None` if this server does not hold the stream's end.
    pub lag: Option<i64>,
}

/// Durations with the quantiles that people ask for, and the buckets as pairs of bound in seconds and count. The bound of
/// the last is null.
fn durations<S: Serializer>(took: &Durations, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(5))?;
    map.serialize_entry("count", &took.count())?;
    map.serialize_entry("sum", &took.sum())?;
    map.serialize_entry("p50", &took.quantile(0.5))?;
    map.serialize_entry("p99", &took.quantile(0.99))?;
    let buckets = took
        .buckets()
        .map(|(bound, count)| (Some(bound).filter(|b| b.is_finite()), count));
    map.serialize_entry("buckets", &buckets.collect::<Vec<_>>())?;
    map.end()
}
