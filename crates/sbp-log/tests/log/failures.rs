//! Disks that say no: failed syncs are final, a full disk is not.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sbp_log::{FileSystem, Helpers, Log, LogConfig, LogError, ReadError};
use sbp_sim::{ManualClock, Operation, SimFileSystem, Survival};
use sbp_types::Offset;

use crate::common::{Acks, SEGMENT, batch, entry, key, open, served, small_config};

fn append(log: &Log<u64>, acks: &Acks, stream: i64, length: usize) -> Result<(), Arc<LogError>> {
    let number = acks.all().len();
    let end = log.synced_end(key(stream)).unwrap_or_default().0;
    let bytes = batch(number as u64, length);
    log.append(vec![entry(stream, end, 1, number as u64, bytes)])
        .map_err(Arc::new)?;
    acks.wait(number + 1);
    acks.all()[number].1.clone()
}

#[test]
fn a_failed_sync_is_final_and_leaves_what_was_synced() {
    for helpers in [Helpers::Inline, Helpers::Threads] {
        let config = LogConfig {
            helpers,
            ..small_config()
        };
        let fs = SimFileSystem::new();
        let (log, _, acks) = open(&fs, &config).unwrap();
        append(&log, &acks, 1, 500).unwrap();
        append(&log, &acks, 1, 20_000).unwrap();
        // With helper threads another segment may be prepared just now; its sync may be the one that fails.
        fs.fail(Operation::Sync, 0, ErrorKind::Other);
        let (mut waiting, mut refused) = (None, None);
        for _ in 0..8 {
            match append(&log, &acks, 1, 20_000) {
                Ok(()) => {}
                Err(error) if error.may_have_been_done() => waiting = Some(error),
                Err(error) => refused = Some(error),
            }
        }
        assert!(
            matches!(waiting.as_deref(), Some(LogError::Indeterminate { .. })),
            "{waiting:?}"
        );
        assert!(
            matches!(refused.as_deref(), Some(LogError::Failed { .. })),
            "{refused:?}"
        );
        assert!(matches!(log.failure().as_deref(), Some(LogError::Failed { .. })));
        let readable = served(&log);
        assert!(readable.len() >= 2, "synced batches stay readable");
        assert!(matches!(log.barrier(99), Err(LogError::Failed { .. })));
        assert!(matches!(log.shutdown(), Err(LogError::Failed { .. })));

        // Whatever became of the waiting append, what was acknowledged is there.
        for survival in [Survival::Nothing, Survival::Everything, Survival::Random(1)] {
            let (log, ..) = open(&fs.power_cut(survival), &config).unwrap();
            let now = served(&log);
            assert!(readable.iter().all(|(place, content)| now.get(place) == Some(content)));
        }

        // A new process finds the group whose sync failed: in memory it looks whole, and the kernel takes it for clean.
        let disk = fs.process_death();
        let (log, ..) = open(&disk, &config).unwrap();
        let now = served(&log);
        disk.power_off();
        drop(log);
        let (log, ..) = open(&disk.power_cut(Survival::Nothing), &config).unwrap();
        assert_eq!(served(&log), now, "what was served once stays");
    }
}

#[test]
fn a_failed_write_is_final_too() {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &small_config()).unwrap();
    append(&log, &acks, 1, 500).unwrap();
    // Behind this the next segment is prepared, and the next write is an append's.
    log.barrier(1).unwrap();
    acks.wait(2);
    fs.fail(Operation::Write, 0, ErrorKind::Other);
    let waiting = append(&log, &acks, 1, 500).unwrap_err();
    assert!(waiting.may_have_been_done());
    assert_eq!(served(&log).len(), 1);
    assert!(matches!(
        *append(&log, &acks, 1, 500).unwrap_err(),
        LogError::Failed { .. }
    ));
}

#[test]
fn everybody_who_waits_hears_of_a_failure_once_and_in_order() {
    let fs = SimFileSystem::new();
    let config = LogConfig {
        helpers: Helpers::Threads,
        group_bytes: 4_096,
        // No footer and no checkpoint may be what the sync that fails belongs to: nobody waits for those.
        segment_bytes: 8 << 20,
        checkpoint_bytes: u64::MAX,
        ..small_config()
    };
    let (log, _, acks) = open(&fs, &config).unwrap();
    append(&log, &acks, 1, 900).unwrap();
    while fs
        .list(Path::new("/log"))
        .unwrap()
        .iter()
        .filter(|name| name.starts_with("segment-") && !name.ends_with(".tmp"))
        .count()
        < 2
    {
        std::thread::yield_now();
    }
    fs.fail(Operation::Sync, 12, ErrorKind::Other);
    let mut accepted = 1;
    for number in 1..500i64 {
        let bytes = batch(number.unsigned_abs(), 900);
        if log
            .append(vec![entry(1, number, 1, number.unsigned_abs(), bytes)])
            .is_err()
        {
            break;
        }
        accepted += 1;
    }
    acks.wait(accepted);
    let ended = acks.all();
    assert_eq!(
        ended.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        (0..accepted as u64).collect::<Vec<_>>()
    );
    let good = ended.iter().take_while(|(_, outcome)| outcome.is_ok()).count();
    assert!(good < accepted, "the sync failed");
    assert!(
        ended[good..]
            .iter()
            .all(|(_, outcome)| outcome.as_ref().is_err_and(|error| error.may_have_been_done()))
    );
    assert_eq!(log.pending_bytes(), 0);
    assert_eq!(log.synced_end(key(1)).unwrap_or_default(), Offset(good as i64));
}

#[test]
fn whichever_sync_fails_who_waits_is_told_the_truth_and_what_was_acknowledged_is_kept() {
    // Syncs of groups, next segments, the reserve, footers and checkpoints: the last two cost nobody anything.
    let mut forgiven = 0;
    for helpers in [Helpers::Inline, Helpers::Threads] {
        let config = LogConfig {
            helpers,
            group_bytes: 4_096,
            ..small_config()
        };
        for after in 0..60 {
            let fs = SimFileSystem::new();
            let (log, _, acks) = open(&fs, &config).unwrap();
            fs.fail(Operation::Sync, after, ErrorKind::Other);
            let mut accepted = 0;
            for number in 0..150_u64 {
                let bytes = batch(number, 900);
                let offset = i64::try_from(number).unwrap();
                if log.append(vec![entry(1, offset, 1, number, bytes)]).is_err() {
                    break;
                }
                accepted += 1;
            }
            acks.wait(accepted);
            let ended = acks.all();
            assert_eq!(
                ended.len(),
                accepted,
                "sync {after}, {helpers:?}: everybody is told once"
            );
            let good = ended.iter().take_while(|(_, outcome)| outcome.is_ok()).count();
            assert!(
                ended[good..]
                    .iter()
                    .all(|(_, outcome)| outcome.as_ref().is_err_and(|error| error.may_have_been_done())),
                "sync {after}, {helpers:?}"
            );
            assert_eq!(log.failure().is_some(), good < accepted, "sync {after}, {helpers:?}");
            forgiven += usize::from(good == accepted);
            drop(log);
            fs.power_off();
            for survival in [Survival::Nothing, Survival::Everything, Survival::Random(after)] {
                let (log, ..) = open(&fs.power_cut(survival), &config)
                    .unwrap_or_else(|error| panic!("sync {after}, {helpers:?}, {survival:?}: {error}"));
                let found = served(&log);
                assert!(
                    (0..good).all(|number| found.contains_key(&(key(1), i64::try_from(number).unwrap()))),
                    "sync {after}, {helpers:?}, {survival:?}"
                );
            }
        }
    }
    assert!(forgiven > 0, "the fault reached footers and checkpoints");
}

#[test]
fn a_full_disk_refuses_before_it_writes_and_recovers() {
    let fs = SimFileSystem::new();
    let config = small_config();
    let clock = Arc::new(ManualClock::default());
    let acks = Arc::new(Acks::default());
    let (log, _) = Log::open(Arc::new(fs.clone()), clock.clone(), config.clone(), acks.clone()).unwrap();
    append(&log, &acks, 1, 5_000).unwrap();
    let reserve = Path::new("/log/reserve");
    assert!(fs.contents(reserve).is_ok());
    fs.set_capacity(Some(SEGMENT * 3));
    let mut good = 1;
    let refused = loop {
        match append(&log, &acks, 1, 5_000) {
            Ok(()) => good += 1,
            Err(error) => break error,
        }
        assert!(good < 50, "the disk is never full");
    };
    assert!(matches!(*refused, LogError::DiskFull), "{refused}");
    assert!(!refused.may_have_been_done());
    assert!(log.failure().is_none(), "a full disk is no failure");
    assert_eq!(served(&log).len(), good, "reads go on");
    assert!(fs.contents(reserve).is_err(), "the reserve is given up");
    // Seals and metadata fit where the reserve was.
    fs.open(Path::new("/log/metadata"), sbp_log::OpenMode::Truncate)
        .unwrap()
        .preallocate(4_096)
        .unwrap();
    log.checkpoint().unwrap();

    let before = fs.operations();
    assert!(matches!(
        *append(&log, &acks, 1, 5_000).unwrap_err(),
        LogError::DiskFull
    ));
    assert_eq!(
        fs.operations(),
        before,
        "nothing is written, and the disk is left alone"
    );

    // There is room again, and the log finds out by itself.
    fs.set_capacity(None);
    clock.advance(Duration::from_secs(2));
    let again = append(&log, &acks, 1, 5_000);
    assert!(again.is_err(), "this call asks for another attempt");
    let mut tries = 0;
    while append(&log, &acks, 1, 5_000).is_err() {
        tries += 1;
        assert!(tries < 1_000_000, "never accepted again");
        std::thread::yield_now();
    }
    assert_eq!(served(&log).len(), good + 1);
    assert!(fs.contents(reserve).is_ok(), "the reserve is back");
    let all = served(&log);
    fs.power_off();
    drop(log);
    let (log, ..) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
    assert_eq!(served(&log), all);
}

#[test]
fn a_disk_that_cannot_be_read_is_told_and_forgiven() {
    let fs = SimFileSystem::new();
    let config = LogConfig {
        hot_tail_bytes: 0,
        ..small_config()
    };
    let (log, _, acks) = open(&fs, &config).unwrap();
    append(&log, &acks, 1, 500).unwrap();
    fs.fail(Operation::Read, 0, ErrorKind::Other);
    assert!(matches!(
        log.read(key(1), Offset(0), 0, true),
        Err(ReadError::Io { .. })
    ));
    assert_eq!(log.read(key(1), Offset(0), 0, true).unwrap().len(), 1);
}

#[test]
fn released_segments_go_when_no_checkpoint_lists_them() {
    let fs = SimFileSystem::new();
    let config = small_config();
    let (log, _, acks) = open(&fs, &config).unwrap();
    for _ in 0..12 {
        append(&log, &acks, 1, 10_000).unwrap();
    }
    append(&log, &acks, 2, 100).unwrap();
    let segments = |fs: &SimFileSystem| {
        fs.list(Path::new("/log"))
            .unwrap()
            .iter()
            .filter(|name| name.starts_with("segment-"))
            .count()
    };
    let all = segments(&fs);
    log.release(key(1), Offset(9));
    assert_eq!(segments(&fs), all, "nothing goes before a checkpoint says so");
    log.checkpoint().unwrap();
    log.checkpoint().unwrap();
    let left = segments(&fs);
    assert!(left < all, "{left} of {all} segments");
    assert!(
        matches!(log.read(key(1), Offset(0), 0, true), Err(ReadError::Released { first, .. }) if first <= Offset(9))
    );
    assert_eq!(log.read(key(1), Offset(9), usize::MAX, true).unwrap().len(), 3);
    log.release(key(1), Offset(i64::MAX));
    log.release(key(2), Offset(1));
    for _ in 0..4 {
        append(&log, &acks, 2, 10_000).unwrap();
    }
    log.checkpoint().unwrap();
    log.checkpoint().unwrap();
    assert!(!log.holds(key(1)) && log.holds(key(2)));
    log.shutdown().unwrap();
    let (log, recovered, _) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
    assert_eq!(recovered.damage, sbp_log::Damage::default());
    assert_eq!(log.ranges(), [key(2)]);
    assert_eq!(log.read(key(2), Offset(1), usize::MAX, true).unwrap().len(), 4);
}

#[test]
fn a_full_disk_does_not_keep_a_log_from_opening() {
    let fs = SimFileSystem::new();
    let config = small_config();
    let (log, _, acks) = open(&fs, &config).unwrap();
    append(&log, &acks, 1, 5_000).unwrap();
    log.shutdown().unwrap();
    // Nothing more fits.
    fs.set_capacity(Some(fs.used()));
    let (log, recovered, acks) = open(&fs, &config).unwrap();
    assert!(recovered.clean);
    let given_up = fs.trace().iter().any(|step| step.ends_with("Remove reserve"));
    assert!(
        !given_up,
        "the superblock needs no room, and the reserve is kept for others"
    );
    assert_eq!(served(&log).len(), 1);
    // The room that is reserved for the segment being written is there all the same.
    append(&log, &acks, 1, 5_000).unwrap();
    assert_eq!(served(&log).len(), 2);
}

/// A log with some batches on a disk without a byte left, its reserve spent: as it was shut down, or as it crashed.
fn full_to_the_brim(clean: bool) -> (SimFileSystem, usize) {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &small_config()).unwrap();
    for _ in 0..5 {
        append(&log, &acks, 1, 5_000).unwrap();
    }
    let there = served(&log).len();
    match clean {
        true => log.shutdown().unwrap(),
        false => drop(log),
    }
    fs.remove(Path::new("/log/reserve")).unwrap();
    fs.sync_dir(Path::new("/log")).unwrap();
    fs.set_capacity(Some(fs.used()));
    (fs, there)
}

#[test]
fn a_disk_without_a_byte_left_does_not_keep_a_log_from_opening() {
    for clean in [true, false] {
        let (fs, there) = full_to_the_brim(clean);
        // Twice: what the first start wrote is in nobody's way.
        for _ in 0..2 {
            let (log, recovered, _) = open(&fs, &small_config()).unwrap();
            assert_eq!(served(&log).len(), there, "reads go on");
            // When its threads have ended, one of which still looks for room.
            log.shutdown().expect("nothing is lost");
            let litter = fs.list(Path::new("/log")).unwrap();
            assert!(!litter.iter().any(|name| name.ends_with(".tmp")), "{litter:?}");
            assert!(recovered.boot_id > 1);
        }
        // There is room again.
        fs.set_capacity(None);
        let (log, recovered, acks) = open(&fs, &small_config()).unwrap();
        assert_eq!(recovered.boot_id, 4, "each start was counted");
        append(&log, &acks, 1, 5_000).unwrap();
        assert_eq!(served(&log).len(), there + 1);
    }
}

#[test]
fn wherever_a_start_on_a_full_disk_ends_the_next_one_goes_on() {
    let (fs, there) = full_to_the_brim(false);
    let before = fs.operations();
    drop(open(&fs, &small_config()).unwrap());
    for operation in before + 1..=fs.operations() {
        let (fs, _) = full_to_the_brim(false);
        fs.power_off_at(operation);
        drop(open(&fs, &small_config()));
        for survival in [Survival::Nothing, Survival::Everything, Survival::Random(operation)] {
            let (log, recovered, _) = open(&fs.power_cut(survival), &small_config()).unwrap();
            assert_eq!(served(&log).len(), there, "power off at {operation}");
            assert!((2..=3).contains(&recovered.boot_id));
        }
    }
}
