//! `Verification`: every changed byte is found, at its place, with the records it costs; and nothing is changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sbp_log::{FileSystem, Log, LogConfig, OpenError, Verification, Verified};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::Offset;

use crate::common::{Acks, key, open, small_config};
use crate::damage::{Sent, append, check_served};

const DIRECTORY: &str = "/log";

fn verify(fs: &SimFileSystem) -> Verified {
    let before = contents(fs);
    let verification = Verification::begin(fs, Path::new(DIRECTORY)).expect("not in use");
    let mut read = 0;
    let verified = verification.run(&mut |bytes| read += bytes).expect("readable");
    assert_eq!((read, verified.bytes), (verification.bytes(), verification.bytes()));
    drop(verification);
    assert!(before == contents(fs), "verification has changed something");
    verified
}

fn contents(fs: &SimFileSystem) -> Vec<(PathBuf, Vec<u8>)> {
    let mut names = fs.list(Path::new(DIRECTORY)).unwrap();
    names.sort();
    let paths = names.into_iter().map(|name| Path::new(DIRECTORY).join(name));
    paths.map(|path| (path.clone(), fs.contents(&path).unwrap())).collect()
}

fn config() -> LogConfig {
    LogConfig {
        checkpoint_bytes: 64 << 10,
        ..small_config()
    }
}

/// A log with sealed segments, a compacted file, two checkpoints and a part behind them.
fn filled(log: &Log<u64>, acks: &Acks) -> Sent {
    let mut sent = Sent::new();
    let batches: Vec<_> = (0..60)
        .map(|number| (1 + number % 3, 1 + number % 4, 700 + 97 * number as usize % 4_000))
        .collect();
    append(log, acks, &batches, &mut sent);
    let end = log.synced_end(key(1)).unwrap();
    log.release(key(1), end);
    log.release(key(2), Offset(log.synced_end(key(2)).unwrap().0 / 2));
    log.reclaim().unwrap();
    append(
        log,
        acks,
        &[(1, 2, 5_000), (2, 1, 60), (3, 2, 900), (3, 1, 12_000), (1, 3, 300)],
        &mut sent,
    );
    sent
}

/// The directory after a proper shutdown, or as a killed process leaves it; without `used` on top of it.
fn directory(clean: bool) -> (SimFileSystem, Sent) {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config()).unwrap();
    let sent = filled(&log, &acks);
    if clean {
        log.shutdown().unwrap();
        return (fs.power_cut(Survival::Everything), sent);
    }
    fs.power_off();
    drop(log);
    (fs.power_cut(Survival::Everything), sent)
}

#[test]
fn a_whole_directory_has_no_faults() {
    for clean in [true, false] {
        let (fs, sent) = directory(clean);
        assert!(
            contents(&fs)
                .iter()
                .any(|(path, _)| path.to_string_lossy().contains("remains-")),
            "compacted"
        );
        let verified = verify(&fs);
        assert_eq!(verified.faults, [], "clean: {clean}");
        assert_eq!(verified.notes, Vec::<String>::new(), "clean: {clean}");
        assert!(verified.files > 3 && verified.groups > 10 && verified.batches > 10);
        let ends: Vec<_> = (1..=3).map(|stream| (key(stream), end(&sent, stream))).collect();
        assert_eq!(verified.ends, ends);
    }
}

fn end(sent: &Sent, stream: i64) -> Offset {
    let of = sent.iter().filter(|((range, _), _)| *range == key(stream));
    Offset(of.map(|((_, base), (count, _))| base + count).max().unwrap())
}

/// Which bytes are flipped: all of them with `SBP_THOROUGH`, else some of each file, drawn anew in each run.
fn positions(length: usize, seed: u64) -> Vec<usize> {
    if std::env::var_os("SBP_THOROUGH").is_some() {
        return (0..length).collect();
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let small = length < 200;
    (0..length).filter(|_| small || random.u32(..400) == 0).collect()
}

#[test]
fn each_flipped_byte_is_found_where_it_is_with_the_records_it_costs() {
    let seed = fastrand::u64(..);
    for clean in [true, false] {
        let (fs, sent) = directory(clean);
        let (mut found, mut costly) = (0, 0);
        for (path, bytes) in contents(&fs) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if name == "lock" || name == "reserve" {
                continue;
            }
            // Behind the last group of a log that was not shut down everything looks like an interrupted write.
            let end = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| (last + 1).next_multiple_of(4_096));
            for position in positions(bytes.len(), seed) {
                let name = format!("{name}, seed {seed},");
                let broken = fs.power_cut(Survival::Everything);
                broken
                    .damage(&path, |bytes| bytes[position] ^= 1 << (position % 8))
                    .unwrap();
                let verified = verify(&broken);
                let fault = verified.faults.iter().find(|fault| fault.file == path);
                if fault.is_none() && !clean && name.starts_with("segment-") && position >= end {
                    assert_eq!(verified.notes.len(), 1, "{name} at {position}: {verified:?}");
                    continue;
                }
                let fault = fault.unwrap_or_else(|| panic!("{name} at {position}, clean {clean}: {verified:?}"));
                let around = fault.from as usize <= position && position < (fault.to as usize).next_multiple_of(4_096);
                assert!(around, "{name} at {position}: {fault:?}");
                assert_eq!(verified.faults.len(), 1, "{name} at {position}: {:?}", verified.faults);
                found += 1;
                costly += usize::from(!fault.lost.is_empty());
                at_most_these_are_lost(
                    &broken,
                    &verified,
                    &sent,
                    &format!("{name} at {position}, clean {clean}"),
                );
            }
        }
        assert!(found > 100 && costly > 50, "{found} found, {costly} cost records");
    }
}

/// A log that starts on the directory serves everything but what the check has named, and that is little.
fn at_most_these_are_lost(fs: &SimFileSystem, verified: &Verified, sent: &Sent, what: &str) {
    let named: BTreeSet<_> = verified.faults.iter().flat_map(|fault| &fault.lost).collect();
    let lost = |stream, offset: i64| {
        let mut named = named.iter();
        named.any(|lost| lost.key == stream && lost.from.0 <= offset && offset < lost.to.0)
    };
    let batches = sent.keys().filter(|(stream, offset)| lost(*stream, *offset)).count();
    assert!(
        batches <= 1,
        "{what}: {batches} batches are named for one byte: {:?}",
        verified.faults
    );
    let (log, _, _) = match open(fs, &config()) {
        Ok(opened) => opened,
        Err(OpenError::Corrupt { .. } | OpenError::NewerFormat { .. }) => return,
        Err(error) => panic!("{what}: {error}"),
    };
    let served: BTreeSet<_> = check_served(&log, sent).into_iter().collect();
    let more = verified.faults.iter().any(|fault| fault.more_lost);
    for (stream, offset) in sent.keys() {
        let released = log.read(*stream, Offset(*offset), 0, true);
        let released = matches!(released, Err(sbp_log::ReadError::Released { .. }));
        let is_served = served.contains(&(*stream, *offset));
        assert!(
            is_served || released || more || lost(*stream, *offset),
            "{what}: {stream} at {offset} is not named"
        );
    }
}

#[test]
fn a_directory_in_use_is_refused_and_a_missing_one_too() {
    let fs = SimFileSystem::new();
    let (log, _, _) = open(&fs, &config()).unwrap();
    let refused = Verification::begin(&fs, Path::new(DIRECTORY)).expect_err("in use");
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    log.shutdown().unwrap();
    let verification = Verification::begin(&fs, Path::new(DIRECTORY)).expect("free");
    assert!(
        matches!(open(&fs, &config()), Err(OpenError::Locked { .. })),
        "no server starts meanwhile"
    );
    drop(verification);
    assert!(Verification::begin(&fs, Path::new("/elsewhere")).is_err());
}

#[test]
fn what_a_crash_leaves_is_no_damage() {
    for seed in 0..if std::env::var_os("SBP_THOROUGH").is_some() {
        2_000
    } else {
        60
    } {
        let fs = SimFileSystem::new();
        let (log, _, acks) = open(&fs, &config()).unwrap();
        fs.power_off_at(fs.operations() + seed * 5);
        let batches: Vec<_> = (0..40i64)
            .map(|number| (1 + number % 3, 1, 500 + 131 * number as usize))
            .collect();
        let mut ends = [0; 4];
        for (number, (stream, count, length)) in batches.iter().enumerate() {
            let bytes = crate::common::batch(number as u64, *length);
            let offset = ends[*stream as usize];
            let appended = crate::common::entry(*stream, offset, *count, number as u64, bytes);
            if log.append(vec![appended]).is_err() {
                break;
            }
            ends[*stream as usize] += count;
        }
        drop(log);
        let _ = acks;
        let cut = fs.power_cut(Survival::Random(seed));
        if cut
            .list(Path::new(DIRECTORY))
            .unwrap()
            .iter()
            .any(|name| name == "superblock")
        {
            let verified = verify(&cut);
            assert_eq!(verified.faults, [], "seed {seed}");
        }
    }
}
