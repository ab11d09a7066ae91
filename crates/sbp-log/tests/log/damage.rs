//! Damage behind the log's back: what is torn is cut, what is corrupt is refused or marked, nothing wrong is served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sbp_log::{Durability, FileSystem, Log, LogConfig, LogError, OpenError, ReadError};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Offset, RangeKey};

use crate::common::{batch, entry, key, open, small_config};

pub(crate) type Sent = BTreeMap<(RangeKey, i64), (i64, Vec<u8>)>;

/// Where groups begin.
const BLOCK: usize = 4096;

fn segments(fs: &SimFileSystem) -> Vec<PathBuf> {
    let mut names = fs.list(Path::new("/log")).unwrap();
    names.retain(|name| name.starts_with("segment-"));
    names.sort();
    names.into_iter().map(|name| Path::new("/log").join(name)).collect()
}

/// Appends batches, each a group of its own, and leaves the log without a shutdown, everything synced.
fn written(config: &LogConfig, batches: &[(i64, i64, usize)]) -> (SimFileSystem, Sent) {
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, batches, &mut sent);
    fs.power_off();
    drop(log);
    (fs.power_cut(Survival::Everything), sent)
}

pub(crate) fn append(log: &Log<u64>, acks: &crate::common::Acks, batches: &[(i64, i64, usize)], sent: &mut Sent) {
    for (stream, count, length) in batches {
        let number = sent.len() as u64;
        let bytes = batch(number, *length);
        let end = log.synced_end(key(*stream)).unwrap_or_default().0;
        sent.insert((key(*stream), end), (*count, bytes.to_vec()));
        let before = acks.all().len();
        log.append(vec![entry(*stream, end, *count, number, bytes)]).unwrap();
        acks.wait(before + 1);
        assert!(acks.all().iter().all(|(_, outcome)| outcome.is_ok()));
    }
}

/// Reads every offset that was sent; whatever is served must be what was sent. The offsets that were served.
pub(crate) fn check_served(log: &Log<u64>, sent: &Sent) -> Vec<(RangeKey, i64)> {
    let mut good = Vec::new();
    for ((key, offset), (count, bytes)) in sent {
        match log.read(*key, Offset(*offset), 0, true) {
            Ok(got) => {
                let Some(stored) = got.first() else { continue };
                assert_eq!((stored.base_offset.0, stored.count), (*offset, *count), "{key}");
                assert_eq!(stored.bytes.clone().into_contiguous(), bytes, "{key} at {offset}");
                good.push((*key, *offset));
            }
            Err(ReadError::Damaged { from, to, .. }) => {
                assert!(
                    from.0 <= *offset && *offset < to.0,
                    "{key} at {offset}: marked {from}..{to}"
                );
            }
            Err(ReadError::Released { first, .. }) => assert!(first.0 > *offset),
            Err(other) => panic!("{key} at {offset}: {other}"),
        }
    }
    good
}

const THREE: &[(i64, i64, usize)] = &[(1, 2, 1_000), (2, 1, 700), (1, 3, 1_800)];

#[test]
fn a_segment_cut_at_any_byte_of_its_last_block_is_refused() {
    let config = small_config();
    let (fs, _) = written(&config, THREE);
    let newest = segments(&fs)[0].clone();
    let length = fs.contents(&newest).unwrap().len();
    for keep in (length - BLOCK..length).step_by(61).chain([length - 1]) {
        let disk = fs.power_cut(Survival::Everything);
        disk.damage(&newest, |bytes| bytes.truncate(keep)).unwrap();
        let refused = open(&disk, &config);
        assert!(
            matches!(refused, Err(OpenError::Corrupt { .. })),
            "cut at {keep}: {refused:?}"
        );
    }
}

#[test]
fn the_last_group_cut_at_any_byte_is_never_served_wrong() {
    let config = small_config();
    let (fs, sent) = written(&config, THREE);
    let newest = segments(&fs)[0].clone();
    // Groups 1 to 3 are a block each, behind the header's.
    let group = 3 * BLOCK;
    let full = 64 + 96 + 1_800;
    for keep in 0..=full {
        let disk = fs.power_cut(Survival::Everything);
        disk.damage(&newest, |bytes| bytes[group + keep..group + BLOCK].fill(0))
            .unwrap();
        let (log, recovered, _) = open(&disk, &config).unwrap();
        let good = check_served(&log, &sent);
        assert!(
            good.contains(&(key(1), 0)) && good.contains(&(key(2), 0)),
            "cut at {keep}"
        );
        let whole = recovered.damage == sbp_log::Damage::default();
        if good.len() == 3 {
            assert_eq!(keep, full);
        } else if keep % 512 == 0 {
            // What a torn write looks like.
            assert!(whole, "cut at {keep}: {recovered:?}");
            assert_eq!(log.synced_end(key(1)), Some(Offset(2)));
        } else {
            // No disk does this: either way nothing may be appended where something was.
            let open_end = log.append(vec![entry(1, 2, 1, 9, batch(9, 10))]);
            assert!(whole || open_end.is_err(), "cut at {keep}: {recovered:?}");
        }
    }
}

#[test]
fn each_missing_sector_of_the_last_group_is_a_torn_write() {
    let config = small_config();
    let (fs, sent) = written(&config, THREE);
    let newest = segments(&fs)[0].clone();
    for sector in 0..4 {
        let disk = fs.power_cut(Survival::Everything);
        disk.damage(&newest, |bytes| bytes[3 * BLOCK + sector * 512..][..512].fill(0))
            .unwrap();
        let (log, recovered, acks) = open(&disk, &config).unwrap();
        assert_eq!(recovered.damage, sbp_log::Damage::default(), "sector {sector}");
        assert_eq!(recovered.notes.len(), 1, "{:?}", recovered.notes);
        assert_eq!(check_served(&log, &sent), [(key(1), 0), (key(2), 0)]);
        // The place is used again, and nothing of the old write comes back.
        let mut now = sent.clone();
        now.remove(&(key(1), 2));
        append(&log, &acks, &[(2, 1, 100)], &mut now);
        drop(log);
        let (log, ..) = open(&disk.power_cut(Survival::Nothing), &config).unwrap();
        assert_eq!(check_served(&log, &now).len(), 3);
        assert_eq!(log.synced_end(key(1)), Some(Offset(2)));
    }
}

#[test]
fn each_missing_sector_of_an_earlier_group_is_corruption() {
    let config = small_config();
    let (fs, sent) = written(&config, THREE);
    let newest = segments(&fs)[0].clone();
    for sector in 0..3 {
        let disk = fs.power_cut(Survival::Everything);
        // The first group holds offsets 0 and 1 of stream 1.
        disk.damage(&newest, |bytes| bytes[BLOCK + sector * 512..][..512].fill(0))
            .unwrap();
        let before = disk.contents(&newest).unwrap();
        let (log, recovered, _) = open(&disk, &config).unwrap();
        assert_eq!(check_served(&log, &sent), [(key(1), 2), (key(2), 0)], "sector {sector}");
        if sector == 0 {
            // Its heads are gone: what stream 1 has first is at 2, and streams never heard of may have lost all they had.
            assert!(recovered.damage.unlisted_ranges);
            assert!(matches!(
                log.read(key(1), Offset(0), 0, true),
                Err(ReadError::Damaged { to: Offset(2), .. })
            ));
        } else {
            assert!(!recovered.damage.unlisted_ranges);
            assert!(matches!(
                log.read(key(1), Offset(0), 0, true),
                Err(ReadError::Damaged { to: Offset(2), .. })
            ));
        }
        // Both streams have later records: their ends are certain.
        assert!(recovered.ranges.iter().all(|(_, end)| end.proven));
        assert_eq!(disk.contents(&newest).unwrap(), before, "nothing is cut");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let config = small_config();
    let (fs, sent) = written(&config, THREE);
    let newest = segments(&fs)[0].clone();
    let mut marked = 0;
    // Group headers, record heads, some of the batches, and the segment's header.
    let places = (BLOCK..BLOCK + 200)
        .chain(3 * BLOCK..3 * BLOCK + 200)
        .chain((3 * BLOCK + 200..3 * BLOCK + 1_960).step_by(97));
    for at in places.chain(0..64) {
        let disk = fs.power_cut(Survival::Everything);
        disk.damage(&newest, |bytes| bytes[at] ^= 1 << (at % 8)).unwrap();
        let Ok((log, recovered, _)) = open(&disk, &config) else {
            assert!(at < 64, "refused for byte {at}");
            continue;
        };
        assert!(at >= 64, "the segment's header is wrong at {at}, and nobody noticed");
        let good = check_served(&log, &sent);
        // A wrong header alone hides nothing.
        assert!(good.len() >= 2, "byte {at}");
        assert!(
            recovered.notes.iter().any(|note| note.contains("damage")),
            "byte {at}: {:?}",
            recovered.notes
        );
        marked += 1;
        if at >= 3 * BLOCK && good.len() == 2 {
            // The last record of stream 1 is hidden or marked; offset 2 must not be given to another one.
            let again = log.append(vec![entry(1, 2, 1, 9, batch(9, 10))]);
            let refused = matches!(again, Err(LogError::EndUnknown { .. } | LogError::OutOfOrder { .. }));
            assert!(refused, "byte {at}: {again:?}");
        }
        let first = recovered;
        let ranges: Vec<_> = log.ranges().into_iter().map(|key| (key, log.synced_end(key))).collect();
        drop(log);
        let (log, again, _) = open(&disk.power_cut(Survival::Nothing), &config).unwrap();
        assert_eq!(again.damage, first.damage, "byte {at}: the marks outlive a restart");
        assert_eq!(again.ranges, first.ranges, "byte {at}");
        assert_eq!(check_served(&log, &sent), good, "byte {at}");
        assert_eq!(
            log.ranges()
                .into_iter()
                .map(|key| (key, log.synced_end(key)))
                .collect::<Vec<_>>(),
            ranges
        );
    }
    assert!(marked > 400);
}

#[test]
fn a_damaged_batch_marks_its_own_offsets_and_the_log_goes_on() {
    let config = small_config();
    let (fs, mut sent) = written(&config, THREE);
    let newest = segments(&fs)[0].clone();
    fs.damage(&newest, |bytes| bytes[3 * BLOCK + 1_000] ^= 4).unwrap();
    let (log, recovered, acks) = open(&fs, &config).unwrap();
    let [mark] = recovered.damage.intervals.as_slice() else {
        panic!("{recovered:?}")
    };
    assert_eq!((mark.key, mark.from, mark.to), (key(1), Offset(2), Offset(5)));
    // Its head was readable, so the end is certain.
    append(&log, &acks, &[(1, 1, 50), (2, 1, 50)], &mut sent);
    let good = [(key(1), 0), (key(1), 5), (key(2), 0), (key(2), 1)];
    assert_eq!(check_served(&log, &sent), good);
    assert_eq!(
        log.read(key(1), Offset(0), usize::MAX, true).unwrap().len(),
        1,
        "what lies before is served"
    );
    drop(log);
    let (log, recovered, _) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
    assert_eq!(recovered.damage.intervals.len(), 1);
    assert_eq!(check_served(&log, &sent), good);
}

/// Enough for several segments, each with a footer.
pub(crate) fn many() -> Vec<(i64, i64, usize)> {
    (0..24)
        .map(|number| {
            (
                1 + number % 3,
                1 + number % 2,
                3_000 + usize::try_from(number).unwrap() * 100,
            )
        })
        .collect()
}

#[test]
fn a_wrong_or_missing_footer_is_rebuilt() {
    let config = small_config();
    let (fs, sent) = written(&config, &many());
    let sealed = segments(&fs)[0].clone();
    let length = fs.contents(&sealed).unwrap().len();
    for checkpointed in [false, true] {
        for at in (1..600).step_by(37) {
            let disk = fs.power_cut(Survival::Everything);
            if checkpointed {
                let (log, ..) = open(&disk, &config).unwrap();
                log.checkpoint().unwrap();
            }
            disk.damage(&sealed, |bytes| bytes[length - at] ^= 16).unwrap();
            let (log, recovered, _) = open(&disk, &config).unwrap();
            assert_eq!(recovered.damage, sbp_log::Damage::default(), "byte -{at}");
            assert_eq!(check_served(&log, &sent).len(), sent.len(), "byte -{at}");
        }
    }
}

#[test]
fn a_batch_that_rots_in_a_sealed_segment_is_found_by_its_reader() {
    let config = small_config();
    let (fs, sent) = written(&config, &many());
    let (log, ..) = open(&fs, &config).unwrap();
    log.shutdown().unwrap();
    let (log, ..) = open(&fs, &config).unwrap();
    let sealed = segments(&fs)[0].clone();
    fs.damage(&sealed, |bytes| bytes[BLOCK + 300] ^= 1).unwrap();
    drop(log);
    let (log, recovered, _) = open(&fs, &config).unwrap();
    assert_eq!(
        recovered.damage,
        sbp_log::Damage::default(),
        "a covered segment is not read at the start"
    );
    let good = check_served(&log, &sent);
    assert_eq!(good.len(), sent.len() - 1);
    assert_eq!(log.damage(key(1)).len(), 1, "the mark stays");
}

#[test]
fn what_a_checkpoint_lists_must_be_there() {
    let config = small_config();
    let (fs, _) = written(&config, &many());
    let (log, ..) = open(&fs, &config).unwrap();
    log.shutdown().unwrap();
    let sealed = segments(&fs)[0].clone();
    fs.remove(&sealed).unwrap();
    let refused = open(&fs, &config);
    assert!(matches!(refused, Err(OpenError::Corrupt { .. })), "{refused:?}");
}

#[test]
fn behind_a_clean_mark_nothing_is_torn() {
    let config = small_config();
    let (fs, sent) = written(&config, THREE);
    let (log, ..) = open(&fs, &config).unwrap();
    log.shutdown().unwrap();
    let newest = segments(&fs)[0].clone();
    // As a torn write would leave it; but the log was shut down properly.
    fs.damage(&newest, |bytes| bytes[3 * BLOCK..4 * BLOCK].fill(0)).unwrap();
    let (log, recovered, _) = open(&fs, &config).unwrap();
    assert!(!recovered.clean);
    assert_eq!(recovered.damage.intervals.len(), 1, "{recovered:?}");
    assert_eq!(check_served(&log, &sent), [(key(1), 0), (key(2), 0)]);
    assert_eq!(log.synced_end(key(1)), Some(Offset(5)), "the checkpoint proves the end");
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let config = small_config();
    let (fs, _) = written(&config, THREE);
    fs.damage(Path::new("/log/superblock"), |bytes| {
        bytes[8..12].copy_from_slice(&9u32.to_le_bytes())
    })
    .unwrap();
    let refused = open(&fs, &config);
    let Err(
        error @ OpenError::NewerFormat {
            found: 9, supported: 3, ..
        },
    ) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(
        error.to_string(),
        "/log/superblock has format version 9; this release reads up to 3"
    );
}

#[test]
fn an_unreadable_checkpoint_falls_back_to_the_one_before() {
    let config = small_config();
    let (fs, mut sent) = written(&config, THREE);
    let (log, _, acks) = open(&fs, &config).unwrap();
    log.checkpoint().unwrap();
    append(&log, &acks, &many(), &mut sent);
    log.checkpoint().unwrap();
    drop(log);
    let mut names = fs.list(Path::new("/log")).unwrap();
    names.retain(|name| name.starts_with("checkpoint-"));
    names.sort();
    assert_eq!(names.len(), 2);
    fs.damage(&Path::new("/log").join(&names[1]), |bytes| bytes[40] ^= 1)
        .unwrap();
    let (log, recovered, _) = open(&fs, &config).unwrap();
    assert!(
        recovered
            .notes
            .iter()
            .any(|note| note.contains("the one before is used")),
        "{:?}",
        recovered.notes
    );
    assert_eq!(check_served(&log, &sent).len(), sent.len());
}

#[test]
fn what_lived_and_died_between_two_checkpoints_stays_for_the_older_one() {
    let config = LogConfig {
        checkpoint_bytes: 1 << 30,
        ..small_config()
    };
    let (fs, mut sent) = written(&config, THREE);
    let (log, _, acks) = open(&fs, &config).unwrap();
    log.checkpoint().unwrap();
    append(&log, &acks, &[(5, 1, 9_000); 12], &mut sent);
    append(&log, &acks, &[(1, 1, 9_000); 6], &mut sent);
    log.release(key(5), Offset(12));
    log.checkpoint().unwrap();
    assert!(log.holds(key(5)), "a start from the older checkpoint would find it");
    drop(log);
    let newest = Path::new("/log").join(newest_checkpoint(&fs));
    fs.damage(&newest, |bytes| bytes[40] ^= 1).unwrap();
    let (log, recovered, _) = open(&fs, &config).unwrap();
    assert_eq!(recovered.damage, sbp_log::Damage::default());
    assert_eq!(check_served(&log, &sent).len(), sent.len());
    let before = segments(&fs).len();
    log.release(key(5), Offset(12));
    for _ in 0..3 {
        log.checkpoint().unwrap();
    }
    assert!(segments(&fs).len() + 4 <= before, "room comes back all the same");
}

fn newest_checkpoint(fs: &SimFileSystem) -> String {
    checkpoints(fs).pop().unwrap()
}

/// The names of the checkpoints, oldest first.
fn checkpoints(fs: &SimFileSystem) -> Vec<String> {
    let mut names = fs.list(Path::new("/log")).unwrap();
    names.retain(|name| name.starts_with("checkpoint-") && !name.ends_with(".tmp"));
    names.sort();
    names
}

/// The first life of a log, from its first byte on: stream 1 is given up again and again, so that its segments go and
/// what is left of the others in them is rewritten; stream 2 stays. What was acknowledged of that.
fn first_life(fs: &SimFileSystem, config: &LogConfig) -> Sent {
    let mut kept = Sent::new();
    let Ok((log, _, acks)) = open(fs, config) else {
        return kept;
    };
    for number in 0..30_u64 {
        let (stream, length) = if number % 5 == 4 { (2, 500) } else { (1, 8_000) };
        let end = log.synced_end(key(stream)).unwrap_or_default().0;
        let bytes = batch(number, length);
        if log.append(vec![entry(stream, end, 1, number, bytes.clone())]).is_err() {
            return kept;
        }
        acks.wait(usize::try_from(number).unwrap() + 1);
        if acks.all().last().unwrap().1.is_err() {
            return kept;
        }
        if stream == 2 {
            kept.insert((key(2), end), (1, bytes.to_vec()));
        }
        if number % 6 == 5 {
            log.release(key(1), log.synced_end(key(1)).unwrap());
            if log.reclaim().is_err() {
                return kept;
            }
        }
    }
    kept
}

#[test]
fn a_log_begins_with_its_first_segment_however_often_it_was_opened_before() {
    let config = LogConfig {
        checkpoint_bytes: 1 << 30,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    for _ in 0..3 {
        // The segment that each of them prepares is never used.
        drop(open(&fs, &config).unwrap());
    }
    let (log, _, acks) = open(&fs, &config).unwrap();
    let mut sent = Sent::new();
    append(&log, &acks, THREE, &mut sent);
    log.checkpoint().unwrap();
    drop(log);
    let only = Path::new("/log").join(newest_checkpoint(&fs));
    fs.damage(&only, |bytes| bytes[40] ^= 1).unwrap();
    let (log, ..) = open(&fs, &config).unwrap();
    assert_eq!(check_served(&log, &sent).len(), sent.len());
}

#[test]
fn the_newest_checkpoint_may_be_damaged_from_the_first_one_on() {
    let config = LogConfig {
        checkpoint_bytes: 1 << 30,
        ..small_config()
    };
    let whole = SimFileSystem::new();
    let all = first_life(&whole, &config);
    assert_eq!(all.len(), 6);
    assert!(!segments(&whole)[0].ends_with("segment-0000000000000001"), "files went");
    for operation in 1..=whole.operations() {
        let fs = SimFileSystem::new();
        fs.power_off_at(operation);
        let kept = first_life(&fs, &config);
        for survival in [Survival::Nothing, Survival::Everything, Survival::Random(operation)] {
            let mut disk = fs.power_cut(survival);
            // The second time it is the one that the start from the one before it has written.
            for again in 0..2 {
                if let Some(newest) = checkpoints(&disk).pop() {
                    disk.damage(&Path::new("/log").join(newest), |bytes| bytes[40] ^= 1)
                        .unwrap();
                }
                let (log, recovered, _) = open(&disk, &config)
                    .unwrap_or_else(|error| panic!("power off at {operation}, {survival:?}, {again}: {error}"));
                assert_eq!(recovered.damage, sbp_log::Damage::default(), "power off at {operation}");
                assert_eq!(check_served(&log, &kept).len(), kept.len(), "power off at {operation}");
                log.checkpoint().unwrap();
                disk = disk.power_cut(Survival::Everything);
            }
        }
    }
}

#[test]
fn without_durability_damage_cuts_and_is_no_corruption() {
    let config = LogConfig {
        durability: Durability::None,
        ..small_config()
    };
    let (fs, sent) = written(&config, THREE);
    let newest = segments(&fs)[0].clone();
    let disk = fs.power_cut(Survival::Everything);
    disk.damage(&newest, |bytes| bytes[2 * BLOCK + 300] ^= 1).unwrap();
    let (log, recovered, _) = open(&disk, &config).unwrap();
    assert_eq!(recovered.damage, sbp_log::Damage::default());
    assert_eq!(check_served(&log, &sent), [(key(1), 0)]);
    drop(log);

    // Opened in the other mode it goes on in a new segment, and what was found is synced.
    let strict = LogConfig {
        durability: Durability::Fsync,
        ..config
    };
    let mut sent = sent;
    let (log, _, acks) = open(&fs, &strict).unwrap();
    append(&log, &acks, &[(1, 1, 10)], &mut sent);
    assert!(segments(&fs).len() >= 2, "the old one is not continued");
    fs.power_off();
    drop(log);
    let (log, recovered, _) = open(&fs.power_cut(Survival::Nothing), &strict).unwrap();
    assert_eq!(recovered.damage, sbp_log::Damage::default());
    assert_eq!(check_served(&log, &sent).len(), 4);
    drop(log);
    // From now on the old groups are promised too: damage in them is corruption, and nothing is cut.
    fs.damage(&newest, |_| {}).ok();
    let disk = fs.power_cut(Survival::Everything);
    disk.damage(&newest, |bytes| bytes[2 * BLOCK + 300] ^= 1).unwrap();
    let (log, recovered, _) = open(&disk, &strict).unwrap();
    assert_eq!(recovered.damage.intervals.len(), 1);
    assert_eq!(check_served(&log, &sent).len(), 3);
}

/// Something a disk, or somebody with a disk editor, might do to a file.
pub(crate) fn vandalise(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let sectors = bytes.len() / 512;
    match random.u8(..6) {
        // The file that is locked.
        _ if bytes.is_empty() => {}
        _ if sectors < 16 => {
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
        }
        0 => bytes.truncate(random.usize(..bytes.len())),
        1 => {
            let at = random.usize(..sectors) * 512;
            bytes[at..at + 512].fill(0);
        }
        2 => {
            // A write that went to the wrong place.
            let (from, to) = (random.usize(..sectors / 8) * BLOCK, random.usize(..sectors / 8) * BLOCK);
            bytes.copy_within(from..from + BLOCK, to);
        }
        3 => {
            let from = random.usize(..sectors) * 512;
            bytes[from..].fill(0);
        }
        _ => {
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u8(..8);
            }
        }
    }
}

#[test]
fn whatever_happens_to_the_files_nothing_wrong_is_served() {
    for durability in [Durability::Fsync, Durability::None] {
        let config = LogConfig {
            durability,
            ..small_config()
        };
        let (fs, sent) = written(&config, &many());
        let (mut opened, mut complete) = (0, 0);
        for seed in 200..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let disk = fs.power_cut(Survival::Everything);
            if random.bool() {
                let (log, ..) = open(&disk, &config).unwrap();
                if random.bool() {
                    log.shutdown().unwrap()
                } else {
                    log.checkpoint().unwrap()
                }
            }
            let names: Vec<_> = disk.list(Path::new("/log")).unwrap();
            let name = Path::new("/log").join(&names[random.usize(..names.len())]);
            if random.u8(..8) == 0 {
                disk.remove(&name).unwrap();
            } else {
                disk.damage(&name, |bytes| vandalise(bytes, &mut random)).unwrap();
            }
            let Ok((log, recovered, _)) = open(&disk, &config) else {
                continue;
            };
            opened += 1;
            let good = check_served(&log, &sent);
            complete += u64::from(good.len() == sent.len());
            let ends: Vec<_> = log.ranges().into_iter().map(|key| (key, log.synced_end(key))).collect();
            drop(log);
            let (log, ..) = open(&disk.power_cut(Survival::Nothing), &config).unwrap_or_else(|error| {
                panic!("seed {seed}, {}: {error}, first {:?}", name.display(), recovered.notes)
            });
            assert_eq!(check_served(&log, &sent), good, "seed {seed}, {}", name.display());
            assert_eq!(
                log.ranges()
                    .into_iter()
                    .map(|key| (key, log.synced_end(key)))
                    .collect::<Vec<_>>(),
                ends
            );
        }
        assert!(
            opened > 100 && complete > 20 && complete < opened,
            "{opened} opened, {complete} complete"
        );
    }
}
