//! Recovery of damaged data directories: it ends, it does not panic, and what it takes in it can serve and continue.

use arbitrary::{Result, Unstructured};
use sbp_log::Log;
use sbp_sim::SimFileSystem;
use sbp_types::{Offset, Position, RangeIndex, RangeKey, StreamId};

use crate::disk::{self, Files, IMAGES};

/// More edits than this only take time.
const MAX_EDITS: usize = 24;

/// The first byte chooses a directory; the rest are edits of its files. The same bytes are also what a peer says of its
/// writers.
pub fn run(data: &[u8]) {
    if let Some(writers) = sbp_log::writers_in(StreamId(1), data) {
        assert!(writers.iter().all(|(_, state)| state.window.len() <= 64));
    }
    let mut script = Unstructured::new(data);
    let Ok(image) = script.arbitrary::<u8>() else { return };
    let is_shared = usize::from(image >> 7);
    let mut files = IMAGES[2 * is_shared + usize::from(image & 1)].clone();
    let mut forged = false;
    for _ in 0..MAX_EDITS {
        if script.is_empty() {
            break;
        }
        match edit(&mut files, &mut script) {
            Ok(mended) => forged |= mended,
            Err(_) => break,
        }
    }
    let fs = disk::disk(&files);
    // With forged checksums files may tell different stories. Then it is enough that nobody panics: readers notice.
    let taken = if forged { Taken::AsItIs } else { Taken::AtItsWord };
    if is_served(&fs, taken) {
        assert!(
            is_served(&fs, taken) || forged,
            "what was opened once can be opened again"
        );
    }
}

/// One edit of one file; tells whether its checksums were put right.
fn edit(files: &mut Files, script: &mut Unstructured<'_>) -> Result<bool> {
    let what: u8 = script.arbitrary()?;
    let which = usize::from(script.arbitrary::<u8>()?) % files.len().max(1);
    let Some(name) = files.keys().nth(which).cloned() else {
        return Ok(false);
    };
    let Some(bytes) = files.get_mut(&name) else {
        return Ok(false);
    };
    let place = usize::from(script.arbitrary::<u16>()?) % (bytes.len() + 1);
    match what & 0x07 {
        0..=2 => {
            let count = usize::from(script.arbitrary::<u8>()? & 0x1f).min(script.len());
            let new = script.bytes(count)?;
            bytes.iter_mut().skip(place).zip(new).for_each(|(old, new)| *old = *new);
        }
        3 => bytes.truncate(place),
        4 => {
            let count = usize::from(script.arbitrary::<u16>()?);
            bytes.iter_mut().skip(place).take(count).for_each(|byte| *byte = 0);
        }
        5 => {
            let from = usize::from(script.arbitrary::<u16>()?) % (bytes.len() + 1);
            let copy: Vec<u8> = bytes.iter().skip(from).take(512).copied().collect();
            bytes.iter_mut().skip(place).zip(copy).for_each(|(old, new)| *old = new);
        }
        6 => {
            let sign = script.arbitrary::<u8>()?;
            if let Some(byte) = bytes.get_mut(place) {
                *byte = byte.wrapping_add(sign);
            }
        }
        _ => {
            files.remove(&name);
            return Ok(false);
        }
    }
    let mended = what & 0x80 != 0;
    if mended {
        disk::mend(&name, bytes);
    }
    Ok(mended)
}

/// What is expected of a log that opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// What it serves has no gap.
    AtItsWord,
    /// Anything but a panic.
    AsItIs,
}

/// Opens the log and uses it; false when it is refused.
fn is_served(fs: &SimFileSystem, taken: Taken) -> bool {
    let Ok((log, recovered, ended)) = disk::open(fs) else {
        return false;
    };
    for (key, end) in &recovered.ranges {
        assert!(end.first_offset <= end.next_offset, "{key:?} ends before it begins");
        read_all(&log, *key, end.first_offset, end.next_offset, taken);
        read_entries(&log, *key, end.first_offset, taken);
        let _ = log.stored_bytes(*key);
    }
    for (key, writer) in &recovered.writers {
        assert!(writer.window.len() <= 64, "{key:?} remembers too much");
    }
    // A range that was not there before: its first batch is taken whatever the others look like.
    let key = RangeKey {
        stream: StreamId(i64::MAX - 1),
        range: RangeIndex(7),
    };
    let next = recovered.ranges.iter().find(|(known, _)| *known == key);
    let next = next.map_or(Offset(0), |(_, end)| end.next_offset);
    if next.0 < i64::MAX - 1 && log.append(vec![disk::entry(key, next, 1, vec![7; 100])]).is_ok() {
        ended.wait(1);
    }
    // A damaged directory may not be closed properly; that is no worse than a power cut.
    drop(log.shutdown());
    true
}

/// Reads what a range serves; what is damaged is refused, and the rest has no gap.
fn read_all(log: &Log<()>, key: RangeKey, first: Offset, end: Offset, taken: Taken) {
    let mut at = first;
    while at < end {
        let Ok(batches) = log.read(key, at, 4 << 10, true) else {
            return;
        };
        let Some(last) = batches.last() else { return };
        let next = last.base_offset.checked_add(last.count).expect("offsets that fit");
        assert!(next > at, "{key:?}: reading stands still at {at}");
        if taken == Taken::AsItIs {
            at = next;
            continue;
        }
        assert!(next <= end, "{key:?}: records behind the end");
        for pair in batches.windows(2) {
            let behind = pair[0].base_offset.checked_add(pair[0].count);
            assert_eq!(behind, Some(pair[1].base_offset), "{key:?}: a gap");
        }
        at = next;
    }
}

/// Reads all entries of a range, marks included, as far as they can be read: each continues the one before.
fn read_entries(log: &Log<()>, key: RangeKey, first: Offset, taken: Taken) {
    let mut at = Position::start(first);
    while let Ok(entries) = log.entries(key, at, 4 << 10) {
        let Some(last) = entries.last() else { return };
        let next = last.end();
        assert!(
            next > at || taken == Taken::AsItIs,
            "{key:?}: reading stands still at {at}"
        );
        if next <= at {
            return;
        }
        let follows = entries.windows(2).all(|pair| pair[0].end() == pair[1].position);
        assert!(follows || taken == Taken::AsItIs, "{key:?}: a gap behind {at}");
        at = next;
    }
}

/// Each kind of edit, on each kind of file, with and without right checksums.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1], vec![0x80], vec![0x81]];
    let mut place: u16 = 3;
    for image in [0_u8, 1, 0x80, 0x81] {
        for which in 0_u8..8 {
            for what in [0, 3, 4, 5, 6, 7, 0x80, 0x83, 0x84, 0x85, 0x86] {
                place = place.wrapping_mul(31).wrapping_add(17) % 12_288;
                let [low, high] = place.to_le_bytes();
                seeds.push(vec![image, what, which, low, high, 4, 1, 2, 3, 4]);
            }
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_are_served() {
        for files in IMAGES.iter() {
            assert!(is_served(&disk::disk(files), Taken::AtItsWord));
        }
    }

    /// Found by fuzzing: the number of the next start did not fit.
    #[test]
    fn a_superblock_with_the_last_boot_is_no_end() {
        let mut files = IMAGES[1].clone();
        let superblock = files.get_mut("superblock").expect("a superblock");
        superblock[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        disk::mend("superblock", superblock);
        assert!(is_served(&disk::disk(&files), Taken::AsItIs));
    }

    /// Found by fuzzing: the next group had no number.
    #[test]
    fn a_group_with_the_last_number_is_no_end() {
        let mut files = IMAGES[1].clone();
        let (name, bytes) = files
            .iter_mut()
            .rfind(|(name, bytes)| name.starts_with("segment-") && bytes[4096..].starts_with(b"SBPG"))
            .expect("a segment with a group");
        bytes[4104..4112].copy_from_slice(&u64::MAX.to_le_bytes());
        disk::mend(name, bytes);
        is_served(&disk::disk(&files), Taken::AsItIs);
    }

    #[test]
    fn mended_files_are_as_good_as_new() {
        for files in IMAGES.iter() {
            let mut mended = files.clone();
            for (name, bytes) in &mut mended {
                if name != "lock" && name != "reserve" {
                    disk::mend(name, bytes);
                }
            }
            for (name, bytes) in &mended {
                let same = bytes.iter().zip(&files[name]).position(|(new, old)| new != old);
                assert_eq!(same, None, "{name}: the log puts another checksum there");
            }
        }
    }

    #[test]
    fn damage_is_refused_or_served_around() {
        let mut files = IMAGES[0].clone();
        let superblock = files.get_mut("superblock").expect("a superblock");
        superblock[30] ^= 1;
        assert!(
            !is_served(&disk::disk(&files), Taken::AsItIs),
            "a garbled superblock is no superblock"
        );
    }
}
