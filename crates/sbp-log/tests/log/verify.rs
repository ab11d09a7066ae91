//! `Verification`: every changed byte is found, at its place, with the records it costs; and nothing is changed.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

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

/// How many bytes of a directory are flipped at most, as `make test-long` has it: enough for all of them. Without it, some of
/// each file are. Which they are says a seed that differs from run to run; `SBP_FLIP_SEED` repeats one.
fn most_flips() -> Option<usize> {
    std::env::var("SBP_FLIPS").ok().map(|most| most.parse().unwrap())
}

/// Which bytes of a file are flipped, of those that are not left out later.
fn positions(length: usize, random: &mut fastrand::Rng) -> Vec<usize> {
    let all = length < 200 || most_flips().is_some();
    (0..length).filter(|_| all || random.u32(..400) == 0).collect()
}

/// A byte that is flipped.
struct Flip<'a> {
    path: &'a Path,
    position: usize,
    /// Behind the last group of a log that was not shut down everything looks like an interrupted write.
    is_behind: bool,
}

/// What came of flipped bytes: how many there were, how many were found, and how many of those cost records.
#[derive(Default)]
struct Tally {
    flipped: AtomicUsize,
    found: AtomicUsize,
    costly: AtomicUsize,
    /// The half minutes after which something was said.
    told: AtomicUsize,
}

#[test]
fn each_flipped_byte_is_found_where_it_is_with_the_records_it_costs() {
    let seed = std::env::var("SBP_FLIP_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    for clean in [true, false] {
        let (fs, sent) = directory(clean);
        let files = contents(&fs);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut flips = Vec::new();
        for (path, bytes) in &files {
            let name = path.file_name().unwrap().to_str().unwrap();
            if name == "lock" || name == "reserve" {
                continue;
            }
            let end = bytes.iter().rposition(|byte| *byte != 0);
            let end = end.map_or(0, |last| (last + 1).next_multiple_of(4_096));
            flips.extend(positions(bytes.len(), &mut random).into_iter().map(|position| Flip {
                path,
                position,
                is_behind: !clean && name.starts_with("segment-") && position >= end,
            }));
        }
        if let Some(most) = most_flips() {
            random.shuffle(&mut flips);
            flips.truncate(most);
        }
        let tally = Tally::default();
        let (next, began) = (AtomicUsize::new(0), Instant::now());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(flip) = flips.get(next.fetch_add(1, Ordering::Relaxed)) {
                        try_flip(
                            &fs,
                            &sent,
                            flip,
                            &format!("clean {clean}, SBP_FLIP_SEED={seed}"),
                            &tally,
                        );
                        tell_progress(&tally, flips.len(), began);
                    }
                });
            }
        });
        let (found, costly) = (tally.found.into_inner(), tally.costly.into_inner());
        assert!(found > 100 && costly > 50, "{found} found, {costly} cost records");
    }
}

/// Says every half minute how far a long run is, past what captures the output of tests.
fn tell_progress(tally: &Tally, all: usize, began: Instant) {
    let flipped = tally.flipped.fetch_add(1, Ordering::Relaxed) + 1;
    let halves = usize::try_from(began.elapsed().as_secs() / 30).unwrap();
    if tally.told.fetch_max(halves, Ordering::Relaxed) < halves {
        let seconds = began.elapsed().as_secs();
        // Nobody may be there to read it.
        let _ = writeln!(
            std::io::stderr(),
            "{flipped} of {all} bytes were flipped, in {seconds} s"
        );
    }
}

/// Flips one byte: it is found at its place, alone, and nothing is lost but what the check names.
fn try_flip(fs: &SimFileSystem, sent: &Sent, flip: &Flip<'_>, how: &str, tally: &Tally) {
    let &Flip { path, position, .. } = flip;
    let what = format!("{} at {position}, {how}", path.display());
    let broken = fs.power_cut(Survival::Everything);
    broken
        .damage(path, |bytes| bytes[position] ^= 1 << (position % 8))
        .unwrap();
    let verified = verify(&broken);
    let fault = verified.faults.iter().find(|fault| fault.file == path);
    if fault.is_none() && flip.is_behind {
        assert_eq!(verified.notes.len(), 1, "{what}: {verified:?}");
        return;
    }
    let fault = fault.unwrap_or_else(|| panic!("{what}: {verified:?}"));
    let around = fault.from as usize <= position && position < (fault.to as usize).next_multiple_of(4_096);
    assert!(around, "{what}: {fault:?}");
    assert_eq!(verified.faults.len(), 1, "{what}: {:?}", verified.faults);
    tally.found.fetch_add(1, Ordering::Relaxed);
    tally
        .costly
        .fetch_add(usize::from(!fault.lost.is_empty()), Ordering::Relaxed);
    at_most_these_are_lost(&broken, &verified, sent, &what);
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
