//! Backups of a log: nothing acknowledged is left out in silence, and what was damaged before can be copied.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sbp_log::{BackingUp, File, FileLock, FileSystem, LogBackup, LogConfig, OpenError, OpenMode, Verification};
use sbp_sim::{Operation, SimFileSystem, Survival};
use sbp_types::{Offset, RangeKey};

use crate::common::{key, open, served, small_config};
use crate::damage::{Sent, append, check_served, many};

const SOURCE: &str = "/log";
const TARGET: &str = "/backup";

/// Where groups begin.
const BLOCK: usize = 4096;

fn back_up(fs: &SimFileSystem, belongs: impl Fn(RangeKey) -> bool) -> Result<LogBackup, OpenError> {
    back_up_with(fs, true, belongs)
}

fn back_up_with(fs: &SimFileSystem, link: bool, belongs: impl Fn(RangeKey) -> bool) -> Result<LogBackup, OpenError> {
    let (source, target) = (Path::new(SOURCE), Path::new(TARGET));
    fs.create_dir_all(target).unwrap();
    for name in fs.list(target).unwrap() {
        fs.remove(&target.join(name)).unwrap();
    }
    let begun = BackingUp::begin(fs, source, target, link)?.expect("nothing is removed");
    Ok(begun.finish(&belongs)?.expect("nothing is removed"))
}

fn copied(config: &LogConfig) -> LogConfig {
    LogConfig {
        directory: PathBuf::from(TARGET),
        ..config.clone()
    }
}

/// Several segments and no checkpoint of them.
fn config() -> LogConfig {
    LogConfig {
        checkpoint_bytes: 64 << 20,
        ..small_config()
    }
}

/// A log as a killed process leaves it.
fn killed(config: &LogConfig, batches: &[(i64, i64, usize)]) -> (SimFileSystem, Sent) {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, batches, &mut sent);
    fs.power_off();
    drop(log);
    (fs.power_cut(Survival::Everything), sent)
}

fn place(fs: &SimFileSystem, wanted: &[u8]) -> (PathBuf, usize) {
    for number in 1.. {
        let path = Path::new(SOURCE).join(format!("segment-{number:016x}"));
        let bytes = fs.contents(&path).unwrap();
        if let Some(at) = bytes.windows(wanted.len()).position(|bytes| bytes == wanted) {
            return (path, at);
        }
    }
    unreachable!()
}

#[test]
fn a_group_that_cannot_be_read_before_others_ends_no_backup_in_silence() {
    let (fs, sent) = killed(&config(), &many());
    let whole = back_up(&fs, |_| true).unwrap();
    let groups = sent.len() as u64;
    assert_eq!(whole.last_group, groups);
    for (number, (_, bytes)) in sent.values().enumerate() {
        let (path, at) = place(&fs, bytes);
        fs.damage(&path, |bytes| bytes[at] ^= 1).unwrap();
        match back_up(&fs, |_| true) {
            Err(OpenError::Corrupt { path: named, what }) => {
                assert_eq!(named, path, "{what}");
                let byte = at / BLOCK * BLOCK;
                assert!(what.contains(&format!("cannot be read at byte {byte},")), "{what}");
            }
            // The last group of all looks like one that is being written.
            Ok(backup) => assert_eq!(backup.last_group, groups - 1, "batch {number}"),
            Err(other) => panic!("{other}"),
        }
        fs.damage(&path, |bytes| bytes[at] ^= 1).unwrap();
    }
    assert_eq!(back_up(&fs, |_| true).unwrap(), whole);
}

/// A directory whose first lists lack a file, as those may that are read while the file is made.
#[derive(Debug)]
struct Behind {
    fs: SimFileSystem,
    lacks: String,
    lists: AtomicUsize,
}

impl FileSystem for Behind {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.fs.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = self.fs.list(directory)?;
        if self.lists.fetch_add(1, Ordering::Relaxed) < 2 {
            names.retain(|name| *name != self.lacks);
        }
        Ok(names)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        self.fs.create_dir_all(directory)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.fs.sync_dir(directory)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.fs.lock(path)
    }
}

#[test]
fn a_file_that_a_list_lacks_while_it_is_made_is_looked_for_again() {
    let (fs, sent) = killed(&config(), &many());
    let whole = back_up(&fs, |_| true).unwrap();
    let segments = fs.list(Path::new(SOURCE)).unwrap();
    let mut segments: Vec<_> = segments
        .into_iter()
        .filter(|name| name.starts_with("segment-"))
        .collect();
    segments.sort_unstable();
    let lacks = segments[segments.len() / 2].clone();
    for name in fs.list(Path::new(TARGET)).unwrap() {
        fs.remove(&Path::new(TARGET).join(name)).unwrap();
    }
    let behind = Behind {
        fs: fs.clone(),
        lacks,
        lists: AtomicUsize::new(0),
    };
    let begun = BackingUp::begin(&behind, Path::new(SOURCE), Path::new(TARGET), true)
        .unwrap()
        .unwrap();
    let again = begun.finish(&|_| true).unwrap().unwrap();
    assert!(again.last_group > 1 && again.last_group <= whole.last_group);
    let (log, ..) = open(&fs, &copied(&config())).unwrap();
    assert!(!served(&log).is_empty() && served(&log).len() <= sent.len());
}

#[test]
fn a_backup_never_ends_with_a_sealed_segment() {
    let config = config();
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, &[(1, 1, 3_000); 12], &mut sent);
    let first = fs
        .contents(&Path::new(SOURCE).join("segment-0000000000000001"))
        .unwrap();
    assert!(first.len() as u64 != config.segment_bytes, "it has its footer");
    let all = sent.len() as u64;
    // Also exactly at the end of the first segment.
    for kept in 1..all {
        let taken = std::cell::Cell::new(0);
        let backup = back_up(&fs, |_| {
            taken.set(taken.get() + 1);
            taken.get() <= kept
        })
        .unwrap();
        assert_eq!(backup.last_group, kept);
        let verified = Verification::begin(&fs, Path::new(TARGET))
            .unwrap()
            .run(&mut |_| {})
            .unwrap();
        assert_eq!(verified.faults, [], "{kept} groups");
        let (log, recovered, _) = open(&fs, &copied(&config)).unwrap();
        assert!(recovered.damage.intervals.is_empty(), "{kept} groups: {recovered:?}");
        assert!(
            recovered.notes.iter().all(|note| !note.contains("damage")),
            "{recovered:?}"
        );
        assert_eq!(log.synced_end(key(1)), Some(Offset(kept.cast_signed())));
        assert_eq!(served(&log).len() as u64, kept);
    }
}

#[test]
fn damage_that_a_checkpoint_covers_is_copied_as_it_is() {
    let config = config();
    let (fs, mut sent) = killed(&config, &[(1, 1, 3_000), (1, 2, 3_000), (1, 3, 3_000)]);
    let (path, at) = place(&fs, &sent[&(key(1), 3)].1);
    fs.damage(&path, |bytes| bytes[at] ^= 1).unwrap();
    let (log, recovered, acks) = open(&fs, &config).unwrap();
    let damaged = recovered.damage.intervals.clone();
    assert_eq!(
        (damaged.len(), damaged[0].from, damaged[0].to),
        (1, Offset(3), Offset(6))
    );
    for round in 0..2 {
        let backup = back_up(&fs, |_| true).unwrap();
        assert_eq!(backup.damaged, damaged, "round {round}");
        let (copy, recovered, _) = open(&fs, &copied(&config)).unwrap();
        assert_eq!(recovered.damage.intervals, damaged, "round {round}");
        assert_eq!(check_served(&copy, &sent), check_served(&log, &sent), "round {round}");
        assert_eq!(copy.synced_end(key(1)), log.synced_end(key(1)));
        drop(copy);
        append(&log, &acks, &[(1, 4, 200), (2, 1, 200)], &mut sent);
    }
}

#[test]
fn a_copy_may_take_longer_than_checkpoints_and_files_live() {
    let config = config();
    let first = "segment-0000000000000001";
    let is_there = |fs: &SimFileSystem| fs.contents(&Path::new(SOURCE).join(first)).is_ok();
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, &many(), &mut sent);
    log.checkpoint().unwrap();
    // Behind the checkpoint, in several segments.
    append(&log, &acks, &many(), &mut sent);
    let acknowledged = sent.clone();
    let all = served(&log);
    let slow = fs.hold(Operation::Write, first);
    let copy = std::thread::scope(|scope| {
        let copying = scope.spawn(|| back_up_with(&fs, false, |_| true));
        slow.wait_until_reached();
        for stream in 1..=3 {
            log.release(key(stream), log.synced_end(key(stream)).unwrap());
        }
        for _ in 0..3 {
            append(&log, &acks, &many(), &mut sent);
            log.checkpoint().unwrap();
        }
        assert!(!is_there(&fs), "the first segment is removed while it is copied");
        drop(slow);
        copying.join().unwrap().unwrap()
    });
    assert!(copy.files.iter().any(|file| file.name == first));
    assert_eq!(copy.last_group, acknowledged.len() as u64);
    let verified = Verification::begin(&fs, Path::new(TARGET)).unwrap();
    assert_eq!(verified.run(&mut |_| {}).unwrap().faults, []);
    let (copy, recovered, _) = open(&fs, &copied(&config)).unwrap();
    assert_eq!(recovered.damage, sbp_log::Damage::default());
    assert_eq!(served(&copy), all);
}

#[test]
fn a_backup_begins_anew_where_its_checkpoint_goes_before_every_file_is_open() {
    let config = config();
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, &many(), &mut sent);
    log.checkpoint().unwrap();
    fs.create_dir_all(Path::new(TARGET)).unwrap();
    let begun = BackingUp::begin(&fs, Path::new(SOURCE), Path::new(TARGET), false)
        .unwrap()
        .unwrap();
    for _ in 0..2 {
        append(&log, &acks, &many(), &mut sent);
        log.checkpoint().unwrap();
    }
    assert!(begun.finish(&|_| true).unwrap().is_none());
    assert_eq!(back_up(&fs, |_| true).unwrap().last_group, sent.len() as u64);
}

#[test]
fn a_full_disk_at_the_target_ends_a_backup_and_costs_the_log_nothing() {
    let config = config();
    let (source, target) = (Path::new(SOURCE), Path::new(TARGET));
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, &many(), &mut sent);
    log.checkpoint().unwrap();
    append(&log, &acks, &many(), &mut sent);
    fs.create_dir_all(target).unwrap();
    let needed = back_up_with(&fs, false, |_| true).unwrap().files;
    let needed: u64 = needed.iter().map(|file| file.bytes).sum();
    for name in fs.list(target).unwrap() {
        fs.remove(&target.join(name)).unwrap();
    }
    let used = fs.used();
    for room in (0..needed).step_by(usize::try_from(needed / 20).unwrap()) {
        fs.set_capacity(Some(used + room));
        let made = BackingUp::begin(&fs, source, target, false).and_then(|begun| begun.unwrap().finish(&|_| true));
        let error = made.expect_err("there is no room").to_string();
        assert!(error.contains(TARGET), "{room}: {error}");
        for name in fs.list(target).unwrap() {
            fs.remove(&target.join(name)).unwrap();
        }
    }
    fs.set_capacity(None);
    assert_eq!(back_up(&fs, |_| true).unwrap().last_group, sent.len() as u64);
    assert!(log.failure().is_none());
}
