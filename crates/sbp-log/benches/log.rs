//! What an append and a read cost.
//!
//! `append_durable` is bound by the disk: compare it with
//! `fio --name=t --rw=write --bs=1M --size=1G --fdatasync=1 --fallocate=posix` on the same file system. `append_none`
//! is bound by one core. Both write below the directory in `SBP_LOG_BENCH_DIR`, or the system's temporary one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sbp_locks::{Condvar, Mutex};
use sbp_log::{Durability, EntryHead, GroupObserver, Log, LogConfig, LogEntry, LogError, RealFileSystem, SystemClock};
use sbp_types::{Offset, RangeIndex, RangeKey, StreamId, TimestampMs};

/// Counts what has ended, so that a bounded number is in flight.
#[derive(Default)]
struct Ended {
    count: Mutex<u64>,
    changed: Condvar,
}

impl GroupObserver<()> for Ended {
    fn group_ended(&self, contexts: Vec<()>, outcome: Result<(), Arc<LogError>>) {
        outcome.expect("the disk works");
        *self.count.lock() += contexts.len() as u64;
        self.changed.notify_one();
    }
}

impl Ended {
    fn wait(&self, for_count: u64) {
        let mut count = self.count.lock();
        while *count < for_count {
            self.changed.wait(&mut count);
        }
    }
}

struct Bench {
    log: Log<()>,
    ended: Arc<Ended>,
    next: i64,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(durability: Durability) -> Self {
        let directory = match std::env::var_os("SBP_LOG_BENCH_DIR") {
            Some(parent) => tempfile::tempdir_in(parent),
            None => tempfile::tempdir(),
        };
        let directory = directory.expect("a temporary directory");
        let config = LogConfig {
            durability,
            ..LogConfig::new(directory.path().join("log"))
        };
        let ended = Arc::new(Ended::default());
        let clock = Arc::new(SystemClock::new());
        let (log, _) = Log::open(Arc::new(RealFileSystem), clock, config, ended.clone()).expect("an empty directory");
        Self {
            log,
            ended,
            next: 0,
            _directory: directory,
        }
    }

    /// Appends `total` batches, `calls` of them per call, at most `in_flight` unanswered.
    fn append(&mut self, batch: &Bytes, total: u64, calls: u64, in_flight: u64) -> Duration {
        let started = Instant::now();
        let first = self.next.cast_unsigned();
        let mut sent = 0;
        while sent < total {
            let more = calls.min(total - sent);
            self.ended.wait((first + sent + more).saturating_sub(in_flight));
            let entries = (0..more).map(|_| self.entry(batch)).collect();
            self.log.append(entries).expect("the disk works");
            sent += more;
        }
        self.ended.wait(first + total);
        let took = started.elapsed();
        // Not part of the figure: the disk must not fill up over many rounds.
        self.log.release(key(), Offset(self.next));
        took
    }

    fn entry(&mut self, batch: &Bytes) -> LogEntry<()> {
        let base_offset = Offset(self.next);
        self.next += 1;
        let time = TimestampMs(self.next);
        LogEntry {
            head: EntryHead {
                key: key(),
                base_offset,
                count: 1,
                append_time: time,
                max_timestamp: time,
                ..EntryHead::default()
            },
            prefix: batch.iter().copied().take(9).collect(),
            chunks: std::iter::once(batch.slice(9..)).collect(),
            context: (),
        }
    }
}

fn key() -> RangeKey {
    RangeKey {
        stream: StreamId(1),
        range: RangeIndex(0),
    }
}

fn appends(c: &mut Criterion) {
    let cases = [
        (
            "append_durable/64KiB_64_in_flight",
            Durability::Fsync,
            64 << 10,
            4_096,
            1,
            64,
        ),
        (
            "append_durable/1MiB_16_in_flight",
            Durability::Fsync,
            1 << 20,
            512,
            1,
            16,
        ),
        ("append_durable/100B_1_in_flight", Durability::Fsync, 100, 500, 1, 1),
        (
            "append_durable/100B_4096_in_flight",
            Durability::Fsync,
            100,
            200_000,
            64,
            4_096,
        ),
        ("append_none/64B", Durability::None, 64, 1_000_000, 64, 32_768),
        ("append_none/64KiB", Durability::None, 64 << 10, 8_192, 1, 64),
    ];
    for (name, durability, length, total, calls, in_flight) in cases {
        let batch = Bytes::from(vec![7; length]);
        let mut group = c.benchmark_group(name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(1))
            .measurement_time(Duration::from_secs(5));
        if length >= 1 << 10 {
            group.throughput(Throughput::Bytes(total * length as u64));
        } else {
            group.throughput(Throughput::Elements(total));
        }
        group.bench_function("load", |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| Bench::new(durability).append(&batch, total, calls, in_flight))
                    .sum()
            });
        });
        group.finish();
    }
}

fn reads(c: &mut Criterion) {
    let mut bench = Bench::new(Durability::None);
    let batch = Bytes::from(vec![7; 1_024]);
    bench.append(&batch, 100_000, 64, 4_096);
    let mut group = c.benchmark_group("read_1MiB");
    group.throughput(Throughput::Bytes(1 << 20));
    group.bench_function("hot", |bencher| {
        bencher.iter(|| bench.log.read(key(), Offset(98_000), 1 << 20, true).expect("hot").len());
    });
    group.bench_function("cold", |bencher| {
        bencher.iter(|| {
            bench
                .log
                .read(key(), Offset(1_000), 1 << 20, true)
                .expect("in the page cache")
                .len()
        });
    });
    group.finish();
}

criterion_group!(benches, appends, reads);
criterion_main!(benches);
