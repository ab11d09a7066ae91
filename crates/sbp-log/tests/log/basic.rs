//! Appending and reading, on the real file system.

use std::sync::Arc;

use crate::common::{Acks, batch, entry, key};
use bytes::Bytes;
use sbp_log::{Durability, Log, LogConfig, LogError, OpenError, RealFileSystem, Recovered, SystemClock};
use sbp_types::{Offset, Position, ServerId, TimestampMs};

fn open(config: &LogConfig) -> (Log<u64>, Recovered, Arc<Acks>) {
    let acks = Arc::new(Acks::default());
    let clock = Arc::new(SystemClock::new());
    let (log, recovered) = Log::open(Arc::new(RealFileSystem), clock, config.clone(), acks.clone()).unwrap();
    (log, recovered, acks)
}

fn config(directory: &tempfile::TempDir) -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 20,
        group_bytes: 256 << 10,
        ..LogConfig::temporary(directory.path().join("log"))
    }
}

/// 300 batches of several sizes on three ranges, some larger than what is copied.
fn load(log: &Log<u64>, acks: &Acks) -> Vec<(i64, i64, Bytes)> {
    let mut sent = Vec::new();
    let mut next = [0i64; 3];
    for number in 0..300u64 {
        let stream = number % 3;
        let length = [100, 5_000, 40_000][usize::try_from(number % 7 % 3).unwrap()];
        let bytes = batch(number, length + usize::try_from(number).unwrap());
        let offset = &mut next[usize::try_from(stream).unwrap()];
        log.append(vec![entry(stream.cast_signed() + 1, *offset, 2, number, bytes.clone())])
            .unwrap();
        sent.push((stream.cast_signed() + 1, *offset, bytes));
        *offset += 2;
    }
    acks.wait(300);
    sent
}

fn check(log: &Log<u64>, sent: &[(i64, i64, Bytes)]) {
    for (stream, offset, bytes) in sent {
        // Also from the middle of a batch.
        let got = log.read(key(*stream), Offset(*offset + 1), 0, true).unwrap();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].base_offset, Offset(*offset));
        assert_eq!(got[0].bytes.clone().into_contiguous(), bytes);
    }
}

#[test]
fn what_is_acknowledged_is_read_before_and_after_a_restart() {
    for durability in [Durability::Fsync, Durability::None] {
        let directory = tempfile::tempdir().unwrap();
        let config = LogConfig {
            durability,
            ..config(&directory)
        };
        let (log, _, acks) = open(&config);
        let sent = load(&log, &acks);
        let numbers: Vec<u64> = acks.all().into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>(), "completion order is queue order");
        check(&log, &sent);
        assert_eq!(log.pending_bytes(), 0);
        assert!(log.stats().segments > 3);
        drop(log);

        let (log, recovered, _) = open(&config);
        assert_eq!(recovered.ranges.len(), 3);
        assert!(
            !recovered.clean && recovered.damage.intervals.is_empty(),
            "{recovered:?}"
        );
        check(&log, &sent);
        log.shutdown().unwrap();

        let (log, recovered, _) = open(&config);
        assert!(recovered.clean, "{recovered:?}");
        assert_eq!(recovered.boot_id, 3);
        check(&log, &sent);
    }
}

#[test]
fn reads_are_bounded_and_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _, acks) = open(&config(&directory));
    let sent = load(&log, &acks);
    let first: Vec<_> = sent.iter().filter(|(stream, ..)| *stream == 1).collect();
    let two = first[0].2.len() + first[1].2.len();
    assert_eq!(log.read(key(1), Offset(0), two, false).unwrap().len(), 2);
    assert_eq!(log.read(key(1), Offset(0), two - 1, false).unwrap().len(), 1);
    assert!(log.read(key(1), Offset(0), 10, false).unwrap().is_empty());
    assert!(log.read(key(9), Offset(0), 10, true).unwrap().is_empty());
    let total: u64 = first.iter().map(|(.., bytes)| bytes.len() as u64).sum();
    assert_eq!(log.bytes_from(key(1), Offset(0)), total);
    assert_eq!(
        log.bytes_from(key(1), Offset(199)),
        first.last().unwrap().2.len() as u64
    );
    assert_eq!(log.bytes_from(key(1), Offset(200)), 0);
    assert_eq!(log.synced_end(key(1)), Some(Offset(200)));
    assert_eq!(
        log.find_timestamp(key(1), Offset(0), TimestampMs(1_051)).unwrap(),
        Some(Offset(52))
    );
    assert_eq!(
        log.find_timestamp(key(1), Offset(100), TimestampMs(0)).unwrap(),
        Some(Offset(100))
    );
    assert_eq!(log.find_timestamp(key(1), Offset(0), TimestampMs(9_999)).unwrap(), None);
}

#[test]
fn a_directory_has_one_owner_and_keeps_its_server_id() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(&directory);
    let (log, ..) = open(&config);
    log.set_server_id(ServerId(7)).unwrap();
    let clock = Arc::new(SystemClock::new());
    let second = Log::<u64>::open(
        Arc::new(RealFileSystem),
        clock,
        config.clone(),
        Arc::new(Acks::default()),
    );
    assert!(matches!(second, Err(OpenError::Locked { .. })), "{second:?}");
    drop(log);
    assert_eq!(open(&config).0.server_id(), Some(ServerId(7)));
}

#[test]
fn offsets_must_continue_and_batches_must_fit() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _, acks) = open(&config(&directory));
    let small = || batch(1, 100);
    log.append(vec![entry(1, 5, 5, 0, small())]).unwrap();
    let gap = log.append(vec![entry(1, 10, 1, 1, small()), entry(1, 12, 1, 2, small())]);
    assert!(
        matches!(
            gap,
            Err(LogError::OutOfOrder {
                expected: Position {
                    offset: Offset(11),
                    marks: 0
                },
                ..
            })
        ),
        "{gap:?}"
    );
    let repeat = log.append(vec![entry(1, 5, 1, 3, small())]);
    assert!(
        matches!(
            repeat,
            Err(LogError::OutOfOrder {
                expected: Position {
                    offset: Offset(10),
                    marks: 0
                },
                ..
            })
        ),
        "{repeat:?}"
    );
    let none = log.append(vec![entry(2, 0, 0, 4, small())]);
    assert!(matches!(none, Err(LogError::OutOfOrder { .. })), "{none:?}");
    let large = log.append(vec![entry(2, 0, 1, 5, batch(5, 1 << 20))]);
    assert!(matches!(large, Err(LogError::TooLarge { .. })), "{large:?}");
    log.append(vec![entry(1, 10, 1, 6, small()), entry(2, 0, 1, 7, small())])
        .unwrap();
    log.barrier(8).unwrap();
    acks.wait(4);
    let numbers: Vec<u64> = acks.acknowledged();
    assert_eq!(numbers, [0, 6, 7, 8]);
}

#[test]
fn recent_batches_are_served_without_copying() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _, acks) = open(&config(&directory));
    let large = batch(1, 100_000);
    log.append(vec![entry(1, 0, 1, 0, large.clone())]).unwrap();
    acks.wait(1);
    let got = log.read(key(1), Offset(0), 1 << 20, true).unwrap();
    let [prefix, rest] = got[0].bytes.chunks() else {
        panic!("{:?}", got[0].bytes.chunks().len())
    };
    assert_eq!(prefix.len(), 9);
    assert_eq!(rest.as_ptr(), large[9..].as_ptr());
    assert_eq!(log.stats().copied_bytes, 9);
    assert_eq!((log.stats().hot_reads, log.stats().cold_reads), (1, 0));
}

#[test]
fn everything_that_waits_is_synced_once() {
    let directory = tempfile::tempdir().unwrap();
    let config = LogConfig {
        durability: Durability::Fsync,
        ..config(&directory)
    };
    let (log, _, acks) = open(&config);
    let before = log.stats();
    let entries = (0..1_000u32).map(|n| entry(1, i64::from(n), 1, u64::from(n), batch(u64::from(n), 64)));
    log.append(entries.collect()).unwrap();
    acks.wait(1_000);
    let after = log.stats();
    assert_eq!(after.batches - before.batches, 1_000);
    assert_eq!(after.groups - before.groups, 1);
    assert_eq!(after.syncs - before.syncs, 1);
}
