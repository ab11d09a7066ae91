//! What is left of old segments is put in order: room comes back, reads become sequential, and nothing is lost whenever
//! the power goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sbp_log::{Damage, DamagedInterval, Durability, FileSystem, Helpers, Log, LogConfig, RealFileSystem, SystemClock};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Offset, RangeKey, TimestampMs};

use crate::common::{Acks, batch, entry, key, open, served, small_config};
use crate::damage;

type Content = BTreeMap<(RangeKey, i64), (i64, Vec<u8>)>;

fn append(log: &Log<u64>, acks: &Acks, batches: &[(i64, usize)]) {
    let first = acks.all().len();
    let mut ends = BTreeMap::new();
    let mut entries = Vec::new();
    for (number, (stream, length)) in (first as u64..).zip(batches) {
        let end = ends
            .entry(*stream)
            .or_insert_with(|| log.synced_end(key(*stream)).unwrap_or_default().0);
        entries.push(entry(*stream, *end, 1, number, batch(number, *length)));
        *end += 1;
    }
    log.append(entries).unwrap();
    acks.wait(first + batches.len());
}

fn files(fs: &SimFileSystem, kind: &str) -> usize {
    let names = fs.list(Path::new("/log")).unwrap();
    names.iter().filter(|name| name.starts_with(kind)).count()
}

/// Stream 1 keeps everything, few bytes of each segment; the others are given up.
fn mostly_dead(log: &Log<u64>, acks: &Acks) {
    for _ in 0..12 {
        append(log, acks, &[(1, 700), (2, 9_000), (3, 9_000)]);
    }
    let end = |stream| log.synced_end(key(stream)).unwrap_or_default().0;
    log.release(key(2), Offset(end(2)));
    log.release(key(3), Offset(end(3) - 1));
}

fn quiet() -> LogConfig {
    LogConfig {
        checkpoint_bytes: 1 << 30,
        hot_tail_bytes: 0,
        ..small_config()
    }
}

/// What is still needed of a content.
fn needed(content: &Content, released: &[(i64, i64)]) -> Content {
    let gone = |(range, base): &(RangeKey, i64)| {
        let below = released.iter().find(|(stream, _)| range.stream.0 == *stream);
        below.is_some_and(|(_, below)| base < below)
    };
    let stays = content.iter().filter(|(place, _)| !gone(place));
    stays.map(|(place, content)| (*place, content.clone())).collect()
}

#[test]
fn room_comes_back_and_everything_needed_stays() {
    for helpers in [Helpers::Inline, Helpers::Threads] {
        let config = LogConfig { helpers, ..quiet() };
        let fs = SimFileSystem::new();
        // A segment takes part once it has its footer, which another thread writes: all full ones have theirs before a log begins
        // whose helpers are threads.
        let (log, _, acks) = open(&fs, &quiet()).unwrap();
        mostly_dead(&log, &acks);
        log.shutdown().unwrap();
        let (log, ..) = open(&fs, &config).unwrap();
        let before = needed(&served(&log), &[(2, 12), (3, 11)]);
        let (used, segments) = (fs.used(), files(&fs, "segment-"));
        let freed = log.reclaim().unwrap();
        assert!(freed > used / 2, "{freed} of {used}");
        assert!(fs.used() < used / 2, "{} of {used}", fs.used());
        assert!(files(&fs, "segment-") <= 3 && segments > 8, "{segments}");
        assert_eq!(files(&fs, "remains-"), 1);
        assert_eq!(needed(&served(&log), &[(2, 12), (3, 11)]), before);
        assert_eq!(log.reclaim().unwrap(), 0, "done is done");
        assert!(log.stats().compacted_bytes > 0);
        drop(log);

        let (log, recovered, _) = open(&fs, &config).unwrap();
        assert_eq!(recovered.damage, Damage::default());
        assert_eq!(served(&log), before);
        log.shutdown().unwrap();
        let (log, ..) = open(&fs, &config).unwrap();
        assert_eq!(served(&log), before);
        // Compacted files that nobody needs go like any segment.
        log.release(key(1), Offset(12));
        log.reclaim().unwrap();
        assert_eq!(files(&fs, "remains-"), 0);
    }
}

#[test]
fn a_long_read_of_one_stream_among_a_thousand_is_sequential() {
    let config = LogConfig {
        segment_bytes: 1 << 20,
        group_bytes: 256 << 10,
        compaction_percent: 100,
        ..quiet()
    };
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let round: Vec<(i64, usize)> = (1..=1_000).map(|stream| (stream, 200)).collect();
    for _ in 0..12 {
        append(&log, &acks, &round);
    }
    append(&log, &acks, &[(0, 900 << 10); 2]);
    let read = || {
        let before = log.stats().disk_reads;
        let mut got = Vec::new();
        // An answer may end where the next footer is not in memory.
        while got.len() < 12 {
            let from = Offset(got.len().try_into().unwrap());
            let more = log.read(key(500), from, usize::MAX, true).unwrap();
            got.extend(more.into_iter().map(|stored| stored.bytes.into_contiguous()));
        }
        (got, log.stats().disk_reads - before)
    };
    let (first, scattered) = read();
    log.reclaim().unwrap();
    let (second, together) = read();
    assert_eq!(first, second);
    assert!(scattered == 12 && together <= 5, "{scattered} reads, then {together}");
}

#[test]
fn what_stays_is_not_written_again_and_again() {
    let config = LogConfig {
        segment_bytes: 64 << 10,
        ..quiet()
    };
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let mut freed = 0;
    for _ in 0..80 {
        append(&log, &acks, &[(1, 3_000), (2, 9_000), (2, 9_000), (2, 9_000)]);
        log.release(key(2), log.synced_end(key(2)).unwrap());
        freed += log.reclaim().unwrap();
    }
    let stats = log.stats();
    assert!(freed > 1 << 20 && stats.compacted_bytes > 240_000, "{freed} {stats:?}");
    assert!(stats.compacted_bytes < freed * 3 / 2, "{freed} {stats:?}");
    // 240 kB stay: in as few files as hold them, and the one being written.
    assert!(stats.segments <= 8, "{stats:?}");
    assert!(fs.used() < 700_000, "{}", fs.used());
}

#[test]
fn every_operation_of_a_rewrite_and_of_what_follows() {
    pull_the_plug(&quiet());
}

#[test]
fn every_operation_of_a_rewrite_without_durability() {
    // What is on the disk already stays, although nothing new is promised.
    pull_the_plug(&LogConfig {
        durability: Durability::None,
        ..quiet()
    });
}

fn pull_the_plug(config: &LogConfig) {
    let run = |fs: &SimFileSystem| -> Option<Content> {
        let (log, _, acks) = open(fs, config).ok()?;
        mostly_dead(&log, &acks);
        Some(served(&log))
    };
    let fs = SimFileSystem::new();
    let all = run(&fs).unwrap();
    let before = needed(&all, &[(2, 12), (3, 11)]);
    let start = fs.operations();
    let work = |log: &Log<u64>, acks: &Acks| {
        log.release(key(2), Offset(12));
        log.release(key(3), Offset(11));
        log.reclaim().ok()?;
        // A compacted file and a segment become a compacted file again.
        append(log, acks, &[(1, 700), (2, 9_000), (2, 9_000), (2, 9_000), (1, 9_000)]);
        acks.all().iter().all(|(_, outcome)| outcome.is_ok()).then_some(())?;
        log.release(key(2), Offset(i64::MAX));
        log.reclaim().ok()
    };
    let disk = fs.power_cut(Survival::Everything);
    let (log, _, acks) = open(&disk, config).unwrap();
    let opened = disk.operations();
    work(&log, &acks).unwrap();
    drop(log);
    let total = disk.operations();
    assert!(start > 100 && total > opened + 40, "{opened} {total}");
    for at in opened..=total {
        let disk = fs.power_cut(Survival::Everything);
        disk.power_off_at(at);
        if let Ok((log, _, acks)) = open(&disk, config) {
            let _ = work(&log, &acks);
        }
        for (way, disk) in disk.power_cuts(5, at).into_iter().enumerate() {
            let (log, recovered, acks) = open(&disk, config).unwrap_or_else(|e| panic!("{at}, {way}: {e}"));
            assert_eq!(recovered.damage, Damage::default(), "{at}, {way}");
            let now = served(&log);
            for (place, content) in &before {
                assert_eq!(now.get(place), Some(content), "{at}, {way}: {place:?}");
            }
            for place in now.keys().filter(|place| all.contains_key(place)) {
                assert_eq!(now[place], all[place], "{at}, {way}");
            }
            // And it can be done again from here.
            append(&log, &acks, &[(1, 10)]);
            log.release(key(2), Offset(12));
            log.release(key(3), Offset(11));
            log.reclaim().unwrap();
            let later = served(&log);
            assert!(before.iter().all(|(place, content)| later.get(place) == Some(content)));
            drop(log);
            let (log, recovered, _) = open(&disk.power_cut(Survival::Nothing), config).unwrap();
            assert_eq!(recovered.damage, Damage::default(), "{at}, {way}");
            let last = served(&log);
            let stays = |(place, content): (&(RangeKey, i64), &(i64, Vec<u8>))| last.get(place) == Some(content);
            assert!(before.iter().all(stays), "{at}, {way}");
            if config.durability == Durability::Fsync {
                let released = [(2, 12), (3, 11)];
                assert!(needed(&last, &released) == needed(&later, &released), "{at}, {way}");
            }
        }
    }
}

/// Segments and compacted files as they are after two checkpoints, and what is needed of them.
fn rewritten() -> (SimFileSystem, Content) {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &quiet()).unwrap();
    mostly_dead(&log, &acks);
    log.reclaim().unwrap();
    let content = served(&log);
    drop(log);
    assert_eq!(files(&fs, "remains-"), 1);
    (fs, content)
}

fn compacted(fs: &SimFileSystem) -> std::path::PathBuf {
    let names = fs.list(Path::new("/log")).unwrap();
    let name = names.into_iter().find(|name| name.starts_with("remains-")).unwrap();
    Path::new("/log").join(name)
}

#[test]
fn remains_without_a_footer_are_read_group_by_group() {
    let (fs, content) = rewritten();
    fs.damage(&compacted(&fs), |bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
    })
    .unwrap();
    let (log, recovered, acks) = open(&fs, &quiet()).unwrap();
    assert_eq!(recovered.damage, Damage::default());
    assert!(
        recovered.notes.iter().any(|note| note.contains("footer rebuilt")),
        "{:?}",
        recovered.notes
    );
    assert_eq!(served(&log), content);
    append(&log, &acks, &[(1, 10)]);
}

#[test]
fn remains_that_a_checkpoint_lists_must_be_there() {
    let (fs, _) = rewritten();
    fs.remove(&compacted(&fs)).unwrap();
    let error = open(&fs, &quiet()).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    // And no checkpoint at all means that nobody can say what they are.
    let (fs, _) = rewritten();
    for name in fs.list(Path::new("/log")).unwrap() {
        if name.starts_with("checkpoint-") {
            fs.damage(&Path::new("/log").join(name), |bytes| bytes[30] ^= 1)
                .unwrap();
        }
    }
    let error = open(&fs, &quiet()).unwrap_err().to_string();
    assert!(error.contains("no checkpoint is readable"), "{error}");
}

#[test]
fn a_batch_that_rots_in_remains_marks_its_own_offsets() {
    let (fs, content) = rewritten();
    let path = compacted(&fs);
    // The first record of the first group: a byte of its batch.
    fs.damage(&path, |bytes| bytes[4_096 + 64 + 96 + 5] ^= 1).unwrap();
    let (log, ..) = open(&fs, &quiet()).unwrap();
    let error = log.read(key(1), Offset(0), 1 << 20, true).unwrap_err();
    assert!(
        matches!(
            error,
            sbp_log::ReadError::Damaged {
                from: Offset(0),
                to: Offset(1),
                ..
            }
        ),
        "{error}"
    );
    let rest = log.read(key(1), Offset(1), 1 << 20, true).unwrap();
    assert_eq!(
        rest.len() + 1,
        content.keys().filter(|(range, _)| *range == key(1)).count()
    );
}

#[test]
fn a_source_with_a_rotten_batch_stays_as_it_is() {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &quiet()).unwrap();
    mostly_dead(&log, &acks);
    let first = Path::new("/log").join("segment-0000000000000001");
    fs.damage(&first, |bytes| bytes[4_096 + 64 + 96 + 5] ^= 1).unwrap();
    log.reclaim().unwrap();
    log.reclaim().unwrap();
    assert!(fs.contents(&first).is_ok(), "whoever can read more of it shall have it");
    assert_eq!(files(&fs, "remains-"), 1, "its neighbours go on without it");
    assert!(log.read(key(1), Offset(0), 1 << 20, true).is_err());
    assert_eq!(
        log.read(key(1), Offset(1), 1 << 20, true).unwrap()[0].base_offset,
        Offset(1)
    );
}

#[test]
fn a_disk_without_room_for_remains_keeps_everything() {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &quiet()).unwrap();
    mostly_dead(&log, &acks);
    let before = needed(&served(&log), &[(2, 12), (3, 11)]);
    fs.set_capacity(Some(fs.used() + 1_000));
    assert!(log.reclaim().is_err());
    assert_eq!(files(&fs, "remains-"), 0);
    fs.set_capacity(None);
    assert!(log.reclaim().unwrap() > 0);
    assert_eq!(needed(&served(&log), &[(2, 12), (3, 11)]), before);
}

#[test]
fn readers_and_appends_go_on_while_files_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let config = LogConfig {
        segment_bytes: 64 << 10,
        group_bytes: 16 << 10,
        hot_tail_bytes: 0,
        checkpoint_bytes: 1 << 30,
        compaction_percent: 80,
        ..LogConfig::temporary(directory.path())
    };
    let acks = Arc::new(Acks::default());
    let clock = Arc::new(SystemClock::new());
    let (log, _) = Log::open(Arc::new(RealFileSystem), clock, config, acks.clone()).unwrap();
    append(&log, &acks, &[(1, 700)]);
    let done = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = || {
            let mut reads = 0u64;
            while !done.load(Ordering::Acquire) {
                let end = log.synced_end(key(1)).unwrap();
                let mut at = Offset(0);
                while at < end {
                    let got = log.read(key(1), at, 4_000, true).unwrap();
                    assert_eq!(got.first().map(|stored| stored.base_offset), Some(at));
                    at = Offset(at.0 + got.len() as i64);
                    reads += 1;
                }
                assert_eq!(
                    log.offset_appended_since(key(1), TimestampMs(1_000 + end.0 - 1))
                        .unwrap(),
                    Offset(end.0 - 1)
                );
                log.find_timestamp(key(1), Offset(0), TimestampMs(1_000 + end.0 / 2))
                    .unwrap()
                    .unwrap();
            }
            reads
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for round in 0..60 {
            append(&log, &acks, &[(1, 700), (2, 9_000), (1, 10), (2, 9_000)]);
            log.release(key(2), log.synced_end(key(2)).unwrap());
            if round % 4 == 3 {
                log.reclaim().unwrap();
            }
        }
        done.store(true, Ordering::Release);
        readers.map(|reader| reader.join().unwrap()).iter().sum::<u64>()
    });
    let stats = log.stats();
    assert!(
        stats.compacted_bytes > 0 && stats.segments < 12 && reads > 100,
        "{stats:?} {reads}"
    );
}

#[test]
fn whatever_happens_to_remains_nothing_wrong_is_served() {
    // Everything that can be is compacted, and every file may be hit.
    let config = LogConfig {
        compaction_percent: 100,
        ..quiet()
    };
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let mut sent = damage::Sent::new();
    damage::append(&log, &acks, &damage::many(), &mut sent);
    log.reclaim().unwrap();
    drop(log);
    assert!(files(&fs, "remains-") >= 2 && files(&fs, "segment-") <= 3);
    let (mut opened, mut complete) = (0, 0);
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = fs.power_cut(Survival::Everything);
        let names = disk.list(Path::new("/log")).unwrap();
        let name = Path::new("/log").join(&names[random.usize(..names.len())]);
        disk.damage(&name, |bytes| damage::vandalise(bytes, &mut random))
            .unwrap();
        let Ok((log, recovered, _)) = open(&disk, &config) else {
            continue;
        };
        opened += 1;
        let good = damage::check_served(&log, &sent);
        complete += u64::from(good.len() == sent.len());
        assert!(
            good.len() == sent.len() || log.ranges().into_iter().any(|range| !log.damage(range).is_empty()),
            "seed {seed}, {}: something is gone and nobody says so",
            name.display()
        );
        let _ = log.reclaim();
        assert_eq!(
            damage::check_served(&log, &sent),
            good,
            "seed {seed}, {}",
            name.display()
        );
        drop(log);
        let (log, ..) = open(&disk.power_cut(Survival::Nothing), &config)
            .unwrap_or_else(|error| panic!("seed {seed}, {}: {error}, first {:?}", name.display(), recovered.notes));
        assert_eq!(
            damage::check_served(&log, &sent),
            good,
            "seed {seed}, {}",
            name.display()
        );
    }
    assert!(
        opened > 50 && complete > 20 && complete < opened,
        "{opened} opened, {complete} complete"
    );
}

#[test]
fn scrubbing_finds_what_nobody_reads_and_remembers_it() {
    let config = quiet();
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    mostly_dead(&log, &acks);
    log.reclaim().unwrap();
    append(
        &log,
        &acks,
        &[(1, 9_000), (1, 9_000), (1, 9_000), (1, 9_000), (1, 9_000)],
    );
    let scrub = |log: &Log<u64>| {
        let (mut after, mut all) = (0, Vec::new());
        while let Some(done) = log.scrub(after).unwrap() {
            assert!(done.file > after);
            after = done.file;
            all.push(done);
        }
        all
    };
    let sound = scrub(&log);
    assert!(
        sound.iter().all(|done| done.complete && done.damaged.is_empty()),
        "{sound:?}"
    );
    assert!(
        sound.len() >= 2 && sound.iter().map(|done| done.batches).sum::<u64>() >= 12,
        "{sound:?}"
    );

    fs.damage(&compacted(&fs), |bytes| bytes[4_096 + 64 + 96 + 5] ^= 1)
        .unwrap();
    let found: Vec<_> = scrub(&log).into_iter().flat_map(|done| done.damaged).collect();
    let expected = DamagedInterval {
        key: key(1),
        from: Offset(0),
        to: Offset(1),
    };
    assert_eq!(found, [expected]);
    assert_eq!(log.damage(key(1)), [expected]);
    assert_eq!(log.damaged_ranges(), 1);
    drop(log);
    let (log, recovered, _) = open(&fs, &config).unwrap();
    assert_eq!(
        recovered.damage.intervals,
        [expected],
        "without anybody reading it again"
    );
    assert!(log.read(key(1), Offset(1), 9_000, true).is_ok());
}
