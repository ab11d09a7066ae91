//! Callers that write what they queued themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_log::{Durability, GroupObserver, Log, LogConfig, RealFileSystem, SystemClock};
use sbp_types::Offset;

use crate::common::{Acks, batch, entry, key};

fn open(directory: &tempfile::TempDir, durability: Durability) -> (Log<u64>, Arc<Acks>) {
    let acks = Arc::new(Acks::default());
    let clock = Arc::new(SystemClock::new());
    let config = LogConfig {
        durability,
        segment_bytes: 64 << 10,
        group_bytes: 16 << 10,
        ..LogConfig::temporary(directory.path().join("log"))
    };
    let (log, _) = Log::open(Arc::new(RealFileSystem), clock, config, acks.clone()).unwrap();
    (log, acks)
}

/// Appends one batch; whether it had ended, for whoever asks, when the call came back.
fn write_here(log: &Log<u64>, acks: &Acks, number: u64, length: usize) -> bool {
    let offset = number.cast_signed();
    let queued = log
        .queue(vec![entry(1, offset, 1, number, batch(number, length))])
        .unwrap();
    let mut here = false;
    log.write_here(queued, &mut |contexts, outcome| {
        here |= contexts.contains(&number);
        acks.group_ended(contexts, outcome);
    });
    assert!(!here || log.synced_end(key(1)) >= Some(Offset(offset + 1)));
    here
}

#[test]
fn a_few_batches_are_written_by_the_caller_where_nobody_waits_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (log, acks) = open(&directory, Durability::None);
    let until = Instant::now() + Duration::from_secs(20);
    let mut number = 0;
    // Not the first, for which there is no segment yet, and none while the writer thread is at work.
    while !write_here(&log, &acks, number, 100) {
        assert!(Instant::now() < until, "the writer thread never slept");
        number += 1;
        acks.wait(usize::try_from(number).unwrap());
    }
    number += 1;
    assert!(!write_here(&log, &acks, number, 10_000), "much is the writer thread's");
    acks.wait(usize::try_from(number + 1).unwrap());
    assert_eq!(acks.acknowledged(), (0..=number).collect::<Vec<_>>());
}

#[test]
fn nobody_but_the_writer_thread_waits_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (log, acks) = open(&directory, Durability::Fsync);
    for number in 0..20 {
        assert!(!write_here(&log, &acks, number, 100));
        acks.wait(usize::try_from(number + 1).unwrap());
    }
}

#[test]
fn whoever_writes_the_order_of_the_queue_is_kept() {
    const BATCHES: u64 = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let (log, acks) = open(&directory, Durability::None);
    // What a server holds while it queues, so that offsets enter the log in their order.
    let next = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (log, acks, next) = (&log, &acks, &next);
            scope.spawn(move || {
                loop {
                    let mut next = next.lock();
                    let number = *next;
                    if number == BATCHES {
                        return;
                    }
                    *next += 1;
                    let entries = vec![entry(1, number.cast_signed(), 1, number, batch(number, 300))];
                    let queued = log.queue(entries).unwrap();
                    drop(next);
                    if thread == 0 {
                        log.announce(queued);
                    } else {
                        log.write_here(queued, &mut |contexts, outcome| acks.group_ended(contexts, outcome));
                    }
                }
            });
        }
    });
    acks.wait(usize::try_from(BATCHES).unwrap());
    assert_eq!(acks.acknowledged(), (0..BATCHES).collect::<Vec<_>>());
    assert_eq!(log.synced_end(key(1)), Some(Offset(BATCHES.cast_signed())));
}
