//! A disk that takes its time over what nobody waits for: appends, reads and figures go on as if it were fast.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use sbp_log::{Durability, FileSystem, GroupObserver, Helpers, Log, LogConfig, WriterKey};
use sbp_sim::{Held, Operation, SimFileSystem, Survival};
use sbp_types::{Offset, StreamId, WriterId};

use crate::common::{Acks, batch, entry, key, open, served, small_config};

/// Longer than anything here takes, shorter than a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Fifteen groups of 4,096 bytes behind the header.
const SEGMENT_BYTES: u64 = 64 << 10;
/// The stream that is read, and another that fills segments.
const READ: i64 = 1;
const FILLER: i64 = 2;
const FIRST_SEGMENT: &str = "segment-0000000000000001";

struct Bench {
    disk: SimFileSystem,
    config: LogConfig,
    log: Arc<Log<u64>>,
    acks: Arc<Acks>,
    /// Appends and barriers so far.
    asked: u64,
}

impl Bench {
    fn new(durability: Durability) -> Self {
        let config = LogConfig {
            durability,
            helpers: Helpers::Threads,
            segment_bytes: SEGMENT_BYTES,
            // Each group is a reason for a checkpoint.
            checkpoint_bytes: 0,
            ..small_config()
        };
        let disk = SimFileSystem::new();
        let (log, _, acks) = open(&disk, &config).unwrap();
        Self {
            disk,
            config,
            log: Arc::new(log),
            acks,
            asked: 0,
        }
    }

    /// Appends a batch, whoever writes it, and waits for it.
    fn append(&mut self, stream: i64, length: usize) {
        let number = self.asked;
        let (log, acks) = (Arc::clone(&self.log), Arc::clone(&self.acks));
        // On a thread of its own: a call that hangs shall fail the test, not stop it.
        within_patience(move || {
            let end = log.synced_end(key(stream)).unwrap_or_default();
            let queued = log
                .queue(vec![entry(stream, end.0, 1, number, batch(number, length))])
                .unwrap();
            log.write_here(queued, &mut |contexts, outcome| acks.group_ended(contexts, outcome));
        });
        self.ended();
    }

    /// Waits for what was asked for last.
    fn ended(&mut self) {
        self.asked += 1;
        self.acks.wait(usize::try_from(self.asked).unwrap());
    }

    /// Fills the rest of a segment whose first group is written.
    fn fill(&mut self) {
        for _ in 0..5 {
            self.append(FILLER, 10_000);
        }
    }

    /// Appends until an operation is held up.
    fn append_until_reached(&mut self, held: &Held) {
        for _ in 0..4 {
            self.append(READ, 100);
        }
        held.wait_until_reached();
    }

    /// What a server does beside the log's own upkeep.
    fn go_about(&mut self) {
        for _ in 0..3 {
            self.append(READ, 100);
        }
        let (log, number) = (Arc::clone(&self.log), self.asked);
        within_patience(move || {
            assert!(!served(&log).is_empty());
            assert!(log.stats().groups > 3 && log.pending_bytes() == 0);
            assert!(log.failure().is_none() && log.end_is_proven(key(READ)) && log.holds(key(READ)));
            assert_eq!(log.bytes_from(key(READ), Offset(0)), log.stored_bytes(key(READ)));
            assert!(log.damage(key(READ)).is_empty() && log.damaged_ranges() == 0);
            log.release(key(3), Offset(1));
            assert!(!log.holds_stream(StreamId(3)));
            let writer = WriterId::NONE;
            let stream = StreamId(READ);
            assert_eq!(log.writer(WriterKey { stream, writer }), None);
            log.barrier(number).unwrap();
        });
        self.ended();
    }

    /// Nothing of it is lost.
    fn end(self) {
        let Self { disk, config, log, .. } = self;
        let log = Arc::into_inner(log).unwrap();
        let before = served(&log);
        log.shutdown().unwrap();
        let (log, recovered, _) = open(&disk.power_cut(Survival::Nothing), &config).unwrap();
        assert!(recovered.clean);
        assert_eq!(served(&log), before);
    }
}

fn within_patience(act: impl FnOnce() + Send + 'static) {
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || {
        act();
        // The other end is gone when this took too long.
        let _late = sender.send(());
    });
    done.recv_timeout(PATIENCE).expect("somebody waits for the disk");
}

/// For both durabilities: brings the log to where an operation is held up, and goes about its business.
fn while_held(reach: impl Fn(&mut Bench) -> Held) {
    for durability in [Durability::Fsync, Durability::None] {
        let mut bench = Bench::new(durability);
        let held = reach(&mut bench);
        bench.go_about();
        drop(held);
        bench.end();
    }
}

#[test]
fn a_slow_checkpoint_costs_nobody_anything() {
    let steps = [
        (Operation::Create, "checkpoint"),
        (Operation::Write, "checkpoint"),
        (Operation::Sync, "checkpoint"),
        (Operation::Rename, "checkpoint"),
        (Operation::SyncDir, "log"),
        (Operation::Remove, "checkpoint"),
    ];
    for (operation, name) in steps {
        while_held(|bench| {
            bench.append(READ, 100);
            let held = bench.disk.hold(operation, name);
            bench.append_until_reached(&held);
            held
        });
    }
}

#[test]
fn a_slow_footer_costs_nobody_anything() {
    for operation in [Operation::Write, Operation::Sync] {
        let mut bench = Bench::new(Durability::Fsync);
        bench.fill();
        let held = bench.disk.hold(operation, FIRST_SEGMENT);
        bench.append_until_reached(&held);
        bench.go_about();
        drop(held);
        bench.end();
    }
}

#[test]
fn slowly_giving_room_back_costs_nobody_anything() {
    // A segment that goes as a whole.
    while_held(|bench| {
        bench.fill();
        let held = bench.disk.hold(Operation::Remove, FIRST_SEGMENT);
        bench.log.release(key(FILLER), Offset(i64::MAX));
        bench.append_until_reached(&held);
        held
    });
    // One of which something is left.
    for operation in [Operation::Write, Operation::Sync, Operation::Rename] {
        while_held(|bench| {
            bench.append(READ, 100);
            bench.fill();
            let held = bench.disk.hold(operation, "remains");
            bench.log.release(key(FILLER), Offset(i64::MAX));
            bench.append_until_reached(&held);
            held
        });
    }
}

#[test]
fn slowly_making_the_next_segment_costs_nobody_anything() {
    for operation in [
        Operation::Create,
        Operation::Preallocate,
        Operation::Sync,
        Operation::Rename,
    ] {
        while_held(|bench| {
            bench.append(READ, 100);
            bench.log.checkpoint().unwrap();
            let segments = |bench: &Bench| {
                let names = bench.disk.list(Path::new("/log")).unwrap();
                names
                    .iter()
                    .filter(|name| name.starts_with("segment") && !name.ends_with("tmp"))
                    .count()
            };
            while segments(bench) < 2 {
                std::thread::yield_now();
            }
            let held = bench.disk.hold(operation, "segment-0000000000000003");
            bench.fill();
            held.wait_until_reached();
            held
        });
    }
}
