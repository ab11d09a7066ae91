//! What the tests of the log share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_locks::{Condvar, Mutex};
use sbp_log::{EntryHead, GroupObserver, Helpers, Log, LogConfig, LogEntry, LogError, OpenError, Recovered};
use sbp_sim::{ManualClock, SimFileSystem};
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

type Outcome = Result<(), Arc<LogError>>;

/// How appends ended, by their number, in the order in which they did.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    ended: Mutex<Vec<(u64, Outcome)>>,
    changed: Condvar,
}

impl GroupObserver<u64> for Acks {
    fn group_ended(&self, contexts: Vec<u64>, outcome: Result<(), Arc<LogError>>) {
        self.ended
            .lock()
            .extend(contexts.into_iter().map(|context| (context, outcome.clone())));
        self.changed.notify_all();
    }
}

impl Acks {
    /// Waits until this many appends have ended.
    pub(crate) fn wait(&self, count: usize) {
        let mut ended = self.ended.lock();
        while ended.len() < count {
            let late = self.changed.wait_for(&mut ended, Duration::from_secs(20));
            assert!(!late.timed_out(), "only {} of {count} appends ended", ended.len());
        }
    }

    pub(crate) fn all(&self) -> Vec<(u64, Outcome)> {
        self.ended.lock().clone()
    }

    pub(crate) fn acknowledged(&self) -> Vec<u64> {
        self.ended
            .lock()
            .iter()
            .filter(|(_, outcome)| outcome.is_ok())
            .map(|(number, _)| *number)
            .collect()
    }
}

pub(crate) fn key(stream: i64) -> RangeKey {
    RangeKey {
        stream: StreamId(stream),
        range: RangeIndex(0),
    }
}

/// A batch whose bytes tell its number everywhere. The first is not zero, so that no batch is all zeros.
pub(crate) fn batch(number: u64, length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(number).fill(&mut bytes);
    if let Some(first) = bytes.first_mut() {
        *first = (*first).max(1);
    }
    bytes.into()
}

pub(crate) fn entry(stream: i64, offset: i64, count: i64, number: u64, bytes: Bytes) -> LogEntry<u64> {
    LogEntry {
        head: EntryHead {
            key: key(stream),
            epoch: Epoch(0),
            base_offset: Offset(offset),
            count,
            append_time: TimestampMs(1_000 + offset),
            max_timestamp: TimestampMs(1_000 + offset),
            writer: WriterId::NONE,
            writer_epoch: 0,
            base_sequence: 0,
            ..EntryHead::default()
        },
        prefix: bytes.iter().copied().take(9).collect(),
        chunks: std::iter::once(bytes.slice(bytes.len().min(9)..)).collect(),
        context: number,
    }
}

pub(crate) const SEGMENT: u64 = 32 << 10;

/// Small and deterministic.
pub(crate) fn small_config() -> LogConfig {
    LogConfig {
        segment_bytes: SEGMENT,
        group_bytes: 16 << 10,
        hot_tail_bytes: 8 << 10,
        reserve_bytes: 8 << 10,
        checkpoint_bytes: 96 << 10,
        helpers: Helpers::Inline,
        ..LogConfig::new("/log")
    }
}

pub(crate) type Opened = (Log<u64>, Recovered, Arc<Acks>);

pub(crate) fn open(fs: &SimFileSystem, config: &LogConfig) -> Result<Opened, OpenError> {
    let acks = Arc::new(Acks::default());
    let (log, recovered) = Log::open(
        Arc::new(fs.clone()),
        Arc::new(ManualClock::default()),
        config.clone(),
        acks.clone(),
    )?;
    Ok((log, recovered, acks))
}

/// Everything a log serves: per range and offset the bytes. Checks that offsets are without gap.
pub(crate) fn served(log: &Log<u64>) -> BTreeMap<(RangeKey, i64), (i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for key in log.ranges() {
        let end = log.synced_end(key).unwrap();
        let mut at = match log.read(key, Offset(0), 1, true) {
            Err(sbp_log::ReadError::Released { first, .. }) => first,
            _ => Offset(0),
        };
        while at < end {
            let batches = log
                .read(key, at, 4096, true)
                .unwrap_or_else(|error| panic!("{key} at {at}: {error}"));
            assert!(!batches.is_empty(), "{key}: nothing at {at}, end {end}");
            for stored in batches {
                assert_eq!(stored.base_offset, at, "{key}: a gap");
                at = Offset(at.0 + stored.count);
                let bytes = stored.bytes.into_contiguous().to_vec();
                all.insert((key, stored.base_offset.0), (stored.count, bytes));
            }
        }
        assert_eq!(at, end, "{key}");
        assert!(log.read(key, end, 4096, true).unwrap().is_empty());
    }
    all
}
