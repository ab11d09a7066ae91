//! Batches that are damaged and are put back from another copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sbp_log::{Durability, FileSystem, Log, LogConfig};
use sbp_sim::{ManualClock, SimFileSystem, Survival};
use sbp_types::{Offset, RangeKey};

use crate::common::{Acks, key, open, small_config};
use crate::damage::{Sent, append, check_served, vandalise};

const BLOCK: usize = 4096;
/// The first batch's first byte, and the first one of the batch in the second group.
const FIRST: usize = BLOCK + 64 + 96;

/// What stays in the files that it was written to, and is read whole at each start until somebody asks for a checkpoint.
fn in_place() -> LogConfig {
    LogConfig {
        compaction_percent: 0,
        checkpoint_bytes: 64 << 20,
        ..small_config()
    }
}

/// Three groups in the first segment, and more in others.
fn written(config: &LogConfig) -> (SimFileSystem, Sent) {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, &[(1, 2, 1_000), (2, 1, 700), (1, 3, 1_800)], &mut sent);
    for number in 0..24 {
        append(&log, &acks, &[(1 + number % 3, 1, 9_000)], &mut sent);
    }
    fs.power_off();
    drop(log);
    (fs.power_cut(Survival::Everything), sent)
}

fn first_segment(fs: &SimFileSystem) -> PathBuf {
    let mut names = fs.list(Path::new("/log")).unwrap();
    names.retain(|name| name.starts_with("segment-"));
    names.sort();
    Path::new("/log").join(names.first().unwrap())
}

fn repair(log: &Log<u64>, sent: &Sent, key: RangeKey, offset: i64) -> bool {
    log.repair(key, Offset(offset), &sent[&(key, offset)].1).unwrap()
}

/// Opens what a power cut leaves now.
fn after_a_cut(fs: &SimFileSystem, config: &LogConfig) -> Log<u64> {
    open(&fs.power_cut(Survival::Nothing), config).unwrap().0
}

#[test]
fn a_batch_that_a_reader_found_damaged_is_put_back() {
    let config = in_place();
    let (fs, sent) = written(&config);
    let (log, ..) = open(&fs, &config).unwrap();
    fs.damage(&first_segment(&fs), |bytes| bytes[FIRST + 7] ^= 1).unwrap();
    assert!(log.read(key(1), Offset(0), 1, true).is_err());
    assert_eq!(check_served(&log, &sent).len(), sent.len() - 1);
    // Nothing else is ever put there.
    assert!(!log.repair(key(1), Offset(0), b"something else").unwrap());
    assert!(!log.repair(key(1), Offset(0), &vec![1; 1_000]).unwrap());
    assert!(!log.repair(key(1), Offset(1), &sent[&(key(1), 0)].1).unwrap());
    assert!(!log.repair(key(9), Offset(0), &sent[&(key(1), 0)].1).unwrap());
    assert_eq!(check_served(&log, &sent).len(), sent.len() - 1);
    // A checkpoint that has the mark, and none since that does not have it.
    log.checkpoint().unwrap();
    assert!(repair(&log, &sent, key(1), 0));
    assert_eq!((check_served(&log, &sent).len(), log.damaged_ranges()), (sent.len(), 0));
    let log = after_a_cut(&fs, &config);
    assert!(repair(&log, &sent, key(1), 0), "it is whole, and marked");
    assert_eq!((check_served(&log, &sent).len(), log.damaged_ranges()), (sent.len(), 0));
}

#[test]
fn batches_that_a_start_found_damaged_are_put_back() {
    let config = in_place();
    // Each of the segment's three first groups, two of them, and all.
    for damaged in [0b1, 0b10, 0b100, 0b110, 0b111] {
        let (fs, sent) = written(&config);
        let groups = [(key(1), 0), (key(2), 0), (key(1), 2)];
        let groups: Vec<_> = (0..3)
            .filter(|group| damaged & 1 << group != 0)
            .map(|group| (group, groups[group]))
            .collect();
        for (group, _) in &groups {
            fs.damage(&first_segment(&fs), |bytes| bytes[group * BLOCK + FIRST + 7] ^= 1)
                .unwrap();
        }
        let (log, recovered, _) = open(&fs, &config).unwrap();
        assert!(!recovered.damage.intervals.is_empty());
        assert_eq!(check_served(&log, &sent).len(), sent.len() - groups.len());
        let before: u64 = [1, 2, 3].map(|stream| log.stored_bytes(key(stream))).iter().sum();
        let mut bytes = 0;
        for (_, (key, offset)) in &groups {
            assert!(repair(&log, &sent, *key, *offset), "{damaged:b}");
            bytes += sent[&(*key, *offset)].1.len() as u64;
        }
        let after: u64 = [1, 2, 3].map(|stream| log.stored_bytes(key(stream))).iter().sum();
        assert_eq!(after - before, bytes);
        assert_eq!((check_served(&log, &sent).len(), log.damaged_ranges()), (sent.len(), 0));
        log.checkpoint().unwrap();
        for restart in 0..2 {
            let (log, recovered, _) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
            assert_eq!(
                recovered.damage,
                sbp_log::Damage::default(),
                "{damaged:b}, restart {restart}"
            );
            assert_eq!(check_served(&log, &sent).len(), sent.len());
            log.shutdown().unwrap();
        }
    }
}

#[test]
fn the_last_batch_of_all_is_put_back_before_anything_is_appended_and_after() {
    for (durability, appends) in [
        (Durability::Fsync, false),
        (Durability::Fsync, true),
        (Durability::None, true),
    ] {
        let config = LogConfig {
            durability,
            ..in_place()
        };
        let fs = SimFileSystem::new();
        let (log, _, acks) = open(&fs, &config).unwrap();
        let mut sent = Sent::new();
        append(&log, &acks, &[(1, 2, 1_000), (2, 1, 700), (1, 3, 1_800)], &mut sent);
        log.shutdown().unwrap();
        fs.damage(&first_segment(&fs), |bytes| bytes[2 * BLOCK + FIRST + 7] ^= 1)
            .unwrap();
        let (log, _, acks) = open(&fs, &config).unwrap();
        assert_eq!(check_served(&log, &sent).len(), 2);
        if appends {
            append(&log, &acks, &[(1, 1, 500), (2, 1, 500)], &mut sent);
        }
        assert!(repair(&log, &sent, key(1), 2), "{durability:?}");
        assert_eq!(check_served(&log, &sent).len(), sent.len());
        log.shutdown().unwrap();
        let (log, recovered, _) = open(&fs, &config).unwrap();
        assert_eq!(recovered.damage, sbp_log::Damage::default(), "{durability:?}");
        assert_eq!(check_served(&log, &sent).len(), sent.len());
    }
}

#[test]
fn a_file_whose_damage_is_mended_is_rewritten_as_others_are() {
    for is_mended in [false, true] {
        let config = in_place();
        let (fs, sent) = written(&config);
        let name = first_segment(&fs);
        fs.damage(&name, |bytes| bytes[FIRST + 7] ^= 1).unwrap();
        let config = LogConfig {
            compaction_percent: 90,
            ..config
        };
        let (log, recovered, _) = open(&fs, &config).unwrap();
        assert!(!recovered.damage.intervals.is_empty());
        if is_mended {
            assert!(repair(&log, &sent, key(1), 0));
        }
        log.release(key(2), Offset(i64::MAX));
        log.release(key(3), Offset(i64::MAX));
        // Once to rewrite it, once more to remove what no checkpoint names any more.
        for _ in 0..3 {
            log.reclaim().unwrap();
            log.checkpoint().unwrap();
        }
        assert_eq!(
            fs.contents(&name).is_err(),
            is_mended,
            "the file stays while it may hide something"
        );
        let sent: Sent = sent.into_iter().filter(|((of, _), _)| *of == key(1)).collect();
        let served = sent.len() - usize::from(!is_mended);
        assert_eq!(check_served(&log, &sent).len(), served);
        drop(log);
        assert_eq!(check_served(&after_a_cut(&fs, &config), &sent).len(), served);
    }
}

#[test]
fn a_damaged_file_is_read_once_for_all_that_is_asked_of_it_and_again_after_a_minute() {
    let config = in_place();
    let (fs, sent) = written(&config);
    // The head of a batch, and another batch.
    fs.damage(&first_segment(&fs), |bytes| {
        bytes[FIRST - 40] ^= 1;
        bytes[BLOCK + FIRST + 7] ^= 1;
    })
    .unwrap();
    let clock = Arc::new(ManualClock::default());
    let opened = Log::open(
        Arc::new(fs.clone()),
        Arc::<ManualClock>::clone(&clock),
        config,
        Arc::new(Acks::default()),
    );
    let (log, _) = opened.unwrap();
    assert!(!repair(&log, &sent, key(1), 0), "nothing tells what was there");
    assert!(repair(&log, &sent, key(2), 0));
    fs.damage(&first_segment(&fs), |bytes| bytes[FIRST - 40] ^= 1).unwrap();
    assert!(!repair(&log, &sent, key(1), 0));
    clock.advance(Duration::from_secs(60));
    assert!(repair(&log, &sent, key(1), 0), "the disk has given it back");
    assert_eq!((check_served(&log, &sent).len(), log.damaged_ranges()), (sent.len(), 0));
}

#[test]
fn what_was_released_is_not_put_back() {
    let config = in_place();
    let (fs, sent) = written(&config);
    fs.damage(&first_segment(&fs), |bytes| bytes[FIRST + 7] ^= 1).unwrap();
    let (log, ..) = open(&fs, &config).unwrap();
    log.release(key(1), Offset(2));
    assert!(!repair(&log, &sent, key(1), 0));
    assert_eq!(check_served(&log, &sent).len(), sent.len() - 1);
}

#[test]
fn after_any_repair_nothing_wrong_is_served_and_nothing_is_left_out_silently() {
    let config = small_config();
    let (fs, sent) = written(&config);
    let (mut tried, mut repaired, mut complete) = (0, 0, 0);
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = fs.power_cut(Survival::Everything);
        if random.bool() {
            open(&disk, &config).unwrap().0.shutdown().unwrap();
        }
        let mut names = disk.list(Path::new("/log")).unwrap();
        names.retain(|name| name.starts_with("segment-"));
        let name = Path::new("/log").join(&names[random.usize(..names.len())]);
        disk.damage(&name, |bytes| vandalise(bytes, &mut random)).unwrap();
        let Ok((log, ..)) = open(&disk, &config) else { continue };
        let good = check_served(&log, &sent);
        if good.len() == sent.len() {
            continue;
        }
        tried += 1;
        let mut now = good.clone();
        for (key, offset) in sent.keys().filter(|batch| !good.contains(batch)) {
            if repair(&log, &sent, *key, *offset) {
                now.push((*key, *offset));
            }
        }
        now.sort_unstable();
        repaired += now.len() - good.len();
        complete += u64::from(now.len() == sent.len());
        assert_eq!(check_served(&log, &sent), now, "seed {seed}");
        log.checkpoint().unwrap();
        drop(log);
        let log = after_a_cut(&disk, &config);
        assert_eq!(check_served(&log, &sent), now, "seed {seed}, after a restart");
    }
    assert!(
        tried > 50 && repaired > 20 && complete > 10,
        "{tried} tried, {repaired} batches, {complete} complete"
    );
}
