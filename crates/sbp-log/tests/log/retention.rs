//! What retention asks, and what can be read without the disk.

use std::io::ErrorKind;
use std::path::Path;

use sbp_log::{EntryHead, FileSystem, Log, LogConfig, LogEntry, ReadError, StoredBatch};
use sbp_sim::{Operation, SimFileSystem};
use sbp_types::{Offset, RangeKey, TimestampMs};

use crate::common::{Acks, SEGMENT, batch, key, open, small_config};

const SEGMENT_BYTES: usize = SEGMENT as usize;

/// A batch as it was appended: offset, records, bytes, time.
#[derive(Clone, Copy, Debug)]
struct Kept {
    base: i64,
    count: i64,
    bytes: u64,
    time: i64,
}

fn append(log: &Log<u64>, acks: &Acks, range: RangeKey, kept: &Kept) {
    let number = acks.all().len();
    let head = EntryHead {
        key: range,
        base_offset: Offset(kept.base),
        count: kept.count,
        append_time: TimestampMs(kept.time),
        ..EntryHead::default()
    };
    let bytes = batch(number as u64, usize::try_from(kept.bytes).unwrap());
    log.append(vec![LogEntry {
        head,
        prefix: smallvec::SmallVec::new(),
        chunks: std::iter::once(bytes).collect(),
        context: number as u64,
    }])
    .unwrap();
    acks.wait(number + 1);
}

/// Two ranges over several segments; the batches of the first.
fn filled(fs: &SimFileSystem, config: &LogConfig, seed: u64) -> (Log<u64>, Vec<Kept>) {
    let (log, _, acks) = open(fs, config).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut all, mut base, mut time, mut other) = (Vec::new(), 0, 1_000, 0);
    for _ in 0..40 {
        let kept = Kept {
            base,
            count: random.i64(1..5),
            bytes: random.u64(1..6_000),
            time,
        };
        append(&log, &acks, key(1), &kept);
        base += kept.count;
        time += random.i64(0..50);
        all.push(kept);
        if random.bool() {
            let noise = Kept { base: other, ..kept };
            append(&log, &acks, key(2), &noise);
            other += kept.count;
        }
    }
    (log, all)
}

fn check(log: &Log<u64>, all: &[Kept]) {
    let (first, last) = (all.first().unwrap(), all.last().unwrap());
    let end = last.base + last.count;
    for cutoff in (first.time - 2)..(last.time + 3) {
        let expected = all
            .iter()
            .find(|kept| kept.time >= cutoff)
            .map_or(end, |kept| kept.base);
        let got = log.offset_appended_since(key(1), TimestampMs(cutoff)).unwrap();
        assert_eq!(got, Offset(expected), "appended since {cutoff}");
    }
    let total: u64 = all.iter().map(|kept| kept.bytes).sum();
    for keep in (1..total + 5_000).step_by(997).chain([total, total + 1]) {
        let mut sum = 0;
        let enough = |kept: &&Kept| {
            sum += kept.bytes;
            sum >= keep
        };
        let expected = all.iter().rev().find(enough).unwrap_or(first).base;
        assert_eq!(
            log.offset_keeping_bytes(key(1), keep),
            Offset(expected),
            "keeping {keep}"
        );
    }
    assert_eq!(log.offset_keeping_bytes(key(1), 0), Offset(end));
}

#[test]
fn retention_finds_the_batch_before_and_after_a_restart_and_a_release() {
    let config = small_config();
    for seed in 0..6 {
        let fs = SimFileSystem::new();
        let (log, mut all) = filled(&fs, &config, seed);
        let total = |all: &[Kept]| all.iter().map(|kept| kept.bytes).sum::<u64>();
        assert_eq!(log.stored_bytes(key(1)), total(&all));
        check(&log, &all);
        log.shutdown().unwrap();

        let (log, ..) = open(&fs, &config).unwrap();
        assert_eq!(log.stored_bytes(key(1)), total(&all));
        check(&log, &all);
        let gone = all.drain(..17).count();
        assert_eq!(gone, 17);
        log.release(key(1), Offset(all[0].base));
        let rest = total(&all);
        // In proportion around the released offset: less than a segment off.
        assert!(log.stored_bytes(key(1)).abs_diff(rest) < 16 << 10);
        let last = *all.last().unwrap();
        assert_eq!(
            log.offset_appended_since(key(1), TimestampMs(last.time + 1)).unwrap(),
            Offset(last.base + last.count)
        );
        assert!(log.offset_appended_since(key(1), TimestampMs(all[9].time)).unwrap() <= Offset(all[9].base));
    }
}

#[test]
fn an_unknown_range_keeps_nothing() {
    let (log, ..) = open(&SimFileSystem::new(), &small_config()).unwrap();
    assert_eq!(log.stored_bytes(key(9)), 0);
    assert_eq!(log.offset_keeping_bytes(key(9), 5), Offset(0));
    assert_eq!(log.offset_appended_since(key(9), TimestampMs(5)).unwrap(), Offset(0));
}

#[test]
fn what_was_found_young_enough_is_not_read_again() {
    let config = LogConfig {
        hot_tail_bytes: 0,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let (log, all) = filled(&fs, &config, 1);
    let ask = |cutoff| log.offset_appended_since(key(1), TimestampMs(cutoff));
    assert_eq!(ask(all[0].time).unwrap(), Offset(0));
    fs.fail(Operation::Read, 0, ErrorKind::Other);
    assert_eq!(ask(all[0].time).unwrap(), Offset(0), "remembered");
    assert!(
        matches!(ask(all[20].time), Err(ReadError::Io { .. })),
        "the disk is asked"
    );
    assert_eq!(
        ask(all[20].time).unwrap(),
        Offset(all.iter().find(|k| k.time >= all[20].time).unwrap().base)
    );
}

#[test]
fn damaged_batches_stay_where_their_neighbours_stay_and_go_where_they_go() {
    let config = LogConfig {
        hot_tail_bytes: 0,
        ..small_config()
    };
    for seed in 0..4 {
        let fs = SimFileSystem::new();
        let (log, all) = filled(&fs, &config, seed);
        drop(log);
        let names = fs.list(Path::new("/log")).unwrap();
        let first = names.iter().filter(|name| name.starts_with("segment-")).min().unwrap();
        let (log, ..) = open(&fs, &config).unwrap();
        // The heads of the second and fourth group are gone while the log runs.
        fs.damage(&Path::new("/log").join(first), |bytes| {
            let groups: Vec<_> = (4_096..bytes.len())
                .step_by(4_096)
                .filter(|at| bytes[*at..].starts_with(b"SBPG"))
                .collect();
            for group in [groups[1], groups[3]] {
                bytes[group + 64 + 20] ^= 1;
            }
        })
        .unwrap();
        for cutoff in all[0].time..all[39].time {
            let got = log.offset_appended_since(key(1), TimestampMs(cutoff)).unwrap();
            let expected = all.iter().position(|kept| kept.time >= cutoff).unwrap();
            let at = all.iter().position(|kept| kept.base == got.0).unwrap();
            assert!(at <= expected, "{cutoff}: {at} {expected}: young batches went");
            assert!(at + 4 >= expected, "{cutoff}: {at} {expected}: old batches stayed");
        }
    }
}

fn same(one: &[StoredBatch], other: &[StoredBatch]) -> bool {
    let flat = |batches: &[StoredBatch]| -> Vec<_> {
        let content = |stored: &StoredBatch| (stored.base_offset, stored.bytes.clone().into_contiguous());
        batches.iter().map(content).collect()
    };
    flat(one) == flat(other)
}

#[test]
fn hot_reads_give_what_reads_give_and_never_touch_the_disk() {
    let config = LogConfig {
        hot_tail_bytes: 3 * SEGMENT_BYTES,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let (log, all) = filled(&fs, &config, 3);
    let end = all[39].base + all[39].count;
    let (mut hot, mut cold) = (Vec::new(), 0);
    // Nothing below may be the read that fails.
    fs.fail(Operation::Read, 0, ErrorKind::Other);
    for from in 0..=end {
        for (max_bytes, at_least_one) in [(0, true), (9_000, true), (1, false), (usize::MAX, false)] {
            match log.read_hot(key(1), Offset(from), max_bytes, at_least_one) {
                Some(got) => hot.push((from, max_bytes, at_least_one, got.unwrap())),
                None => cold += 1,
            }
        }
    }
    assert!(matches!(log.read_hot(key(1), Offset(end + 5), 9, true), Some(Ok(got)) if got.is_empty()));
    assert!(matches!(log.read_hot(key(9), Offset(0), 9, true), Some(Ok(got)) if got.is_empty()));
    assert!(
        log.read(key(1), Offset(0), 9_000, true).is_err(),
        "the failing read was still to come"
    );
    assert!(cold > 20 && hot.len() > 100, "{cold} cold, {} hot", hot.len());
    let longest = hot
        .iter()
        .filter(|(_, max_bytes, ..)| *max_bytes == usize::MAX)
        .map(|hot| hot.3.len())
        .max();
    assert!(longest > Some(10), "also what lies in sealed segments: {longest:?}");
    for (from, max_bytes, at_least_one, got) in hot {
        let read = log.read(key(1), Offset(from), max_bytes, at_least_one).unwrap();
        assert!(same(&got, &read), "from {from}, at most {max_bytes}");
    }
    log.release(key(1), Offset(i64::MAX));
    assert!(matches!(
        log.read_hot(key(1), Offset(0), 9, true),
        Some(Err(ReadError::Released { .. }))
    ));
}
