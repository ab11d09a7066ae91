//! Segments begin small and grow: a directory with few records takes little room, and nothing else changes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use sbp_log::{FileSystem, Helpers, Log, LogConfig, LogError, RealFileSystem, SystemClock};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::Offset;

use crate::common::{Acks, batch, entry, key, open, served, small_config};

const KIB: u64 = 1 << 10;

/// From 8 KiB, which has room for one small group, to 64 KiB.
pub(crate) fn growing() -> LogConfig {
    LogConfig {
        first_segment_bytes: 8 * KIB,
        segment_bytes: 64 * KIB,
        group_bytes: 32 << 10,
        checkpoint_bytes: u64::MAX,
        ..small_config()
    }
}

/// The lengths that segments were made with, in their order.
fn capacities(fs: &SimFileSystem) -> Vec<u64> {
    let mut names = fs.list(Path::new("/log")).unwrap();
    names.retain(|name| name.starts_with("segment-") && !name.ends_with(".tmp"));
    names.sort();
    let header = |name: &String| fs.contents(&Path::new("/log").join(name)).unwrap();
    let capacity = |bytes: Vec<u8>| u64::from_le_bytes(bytes[32..40].try_into().unwrap());
    names.iter().map(header).map(capacity).collect()
}

fn append(log: &Log<u64>, acks: &Acks, length: usize) -> Result<(), Arc<LogError>> {
    let number = acks.all().len();
    let end = log.synced_end(key(1)).unwrap_or_default().0;
    let bytes = batch(number as u64, length);
    log.append(vec![entry(1, end, 1, number as u64, bytes)])
        .map_err(Arc::new)?;
    acks.wait(number + 1);
    acks.all()[number].1.clone()
}

#[test]
fn a_directory_with_few_records_takes_little_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let taken = || {
        let files = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata());
        files.map(|about| about.unwrap().blocks() * 512).sum::<u64>()
    };
    let config = LogConfig {
        helpers: Helpers::Inline,
        ..LogConfig::new(&path)
    };
    for start in 0..3 {
        let acks = Arc::new(Acks::default());
        let clock = Arc::new(SystemClock::new());
        let (log, _) = Log::open(Arc::new(RealFileSystem), clock, config.clone(), acks.clone()).unwrap();
        append(&log, &acks, 100).unwrap();
        append(&log, &acks, 100).unwrap();
        // A segment of 4 MiB, the next one of 8, a reserve of 4.
        assert!(taken() <= 17 << 20, "start {start}: {} bytes", taken());
        log.shutdown().unwrap();
    }
}

#[test]
fn every_segment_is_twice_as_large_as_the_one_before_also_across_starts() {
    let fs = SimFileSystem::new();
    let mut config = growing();
    let expected: Vec<u64> = [8, 16, 32, 64, 64, 64].map(|kib| kib * KIB).to_vec();
    let mut made = 0;
    while made < expected.len() {
        let (log, _, acks) = open(&fs, &config).unwrap();
        while capacities(&fs).len() <= made + 1 {
            append(&log, &acks, 3_000).unwrap();
        }
        let reserve = fs.contents(Path::new("/log/reserve")).unwrap().len() as u64;
        let next = *capacities(&fs).last().unwrap();
        assert!(reserve <= (next / 2).min(config.reserve_bytes), "{reserve} of {next}");
        made += 2;
        assert_eq!(capacities(&fs)[..made], expected[..made]);
        log.shutdown().unwrap();
    }
    // A smaller size that is configured later counts from then on.
    config.segment_bytes = 32 * KIB;
    let (log, _, acks) = open(&fs, &config).unwrap();
    for _ in 0..60 {
        append(&log, &acks, 3_000).unwrap();
    }
    assert_eq!(capacities(&fs).last(), Some(&(32 * KIB)));
}

#[test]
fn a_batch_that_no_prepared_segment_has_room_for_gets_one() {
    for helpers in [Helpers::Inline, Helpers::Threads] {
        let fs = SimFileSystem::new();
        let config = LogConfig { helpers, ..growing() };
        let (log, _, acks) = open(&fs, &config).unwrap();
        // The first batch of all, and one behind a small one.
        for length in [20_000, 100, 50_000, 3_000] {
            append(&log, &acks, length).unwrap();
        }
        let refused = append(&log, &acks, 64 << 10).unwrap_err();
        assert!(matches!(*refused, LogError::TooLarge { .. }), "{refused}");
        let all = served(&log);
        assert_eq!(all.len(), 4, "{helpers:?}");
        drop(log);
        fs.power_off();
        let (log, recovered, _) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
        assert_eq!(recovered.damage, sbp_log::Damage::default(), "{helpers:?}");
        assert_eq!(served(&log), all, "{helpers:?}");
    }
}

#[test]
fn a_log_that_begins_with_a_large_batch_needs_no_checkpoint() {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &growing()).unwrap();
    append(&log, &acks, 20_000).unwrap();
    append(&log, &acks, 3_000).unwrap();
    assert!(fs.contents(Path::new("/log/segment-0000000000000001")).is_err());
    let all = served(&log);
    log.checkpoint().unwrap();
    drop(log);
    let damage_checkpoints = || {
        let names = fs.list(Path::new("/log")).unwrap();
        for name in names.iter().filter(|name| name.starts_with("checkpoint-")) {
            fs.damage(&Path::new("/log").join(name), |bytes| bytes[40] ^= 1)
                .unwrap();
        }
    };
    for again in 0..2 {
        damage_checkpoints();
        let (log, recovered, _) = open(&fs, &growing()).unwrap();
        assert_eq!(recovered.damage, sbp_log::Damage::default(), "{again}");
        assert_eq!(served(&log), all, "{again}");
        log.checkpoint().unwrap();
    }
    // Where the first segment is missing, the log is not complete.
    damage_checkpoints();
    fs.remove(Path::new("/log/segment-0000000000000002")).unwrap();
    let error = open(&fs, &growing()).unwrap_err();
    assert!(error.to_string().contains("does not begin here"), "{error}");
}

#[test]
fn what_is_queued_at_once_is_cut_into_groups_that_segments_have_room_for() {
    for (first, largest) in [(8 * KIB, 64 * KIB), (32 * KIB, 32 * KIB)] {
        let fs = SimFileSystem::new();
        let config = LogConfig {
            first_segment_bytes: first,
            segment_bytes: largest,
            group_bytes: 8 << 20,
            ..growing()
        };
        let (log, _, acks) = open(&fs, &config).unwrap();
        let many = (0..400u64).map(|number| entry(1, number.cast_signed(), 1, number, batch(number, 900)));
        log.append(many.collect()).unwrap();
        acks.wait(400);
        assert_eq!(acks.acknowledged().len(), 400);
        let all = served(&log);
        drop(log);
        let (log, recovered, _) = open(&fs.process_death(), &config).unwrap();
        assert_eq!(recovered.damage, sbp_log::Damage::default());
        assert_eq!(served(&log), all);
        assert_eq!(all.len(), 400);
    }
}

#[test]
fn a_batch_too_large_for_a_full_disk_leaves_room_to_smaller_ones() {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &growing()).unwrap();
    append(&log, &acks, 100).unwrap();
    append(&log, &acks, 100).unwrap();
    // Behind this the next segment, of 32 KiB, is prepared.
    log.barrier(2).unwrap();
    acks.wait(3);
    fs.set_capacity(Some(fs.used() + 20 * KIB));
    let refused = append(&log, &acks, 40_000).unwrap_err();
    assert!(matches!(*refused, LogError::DiskFull), "{refused}");
    assert!(!refused.may_have_been_done());
    append(&log, &acks, 6_000).unwrap();
    assert_eq!(log.synced_end(key(1)), Some(Offset(3)));
    assert!(!log.disk_is_full());
    fs.set_capacity(None);
    append(&log, &acks, 40_000).unwrap();
    let all = served(&log);
    drop(log);
    let (log, ..) = open(&fs.process_death(), &growing()).unwrap();
    assert_eq!(served(&log), all);
}
