//! Copies a log while it is written, up to a whole group.
//!
//! Nothing is asked of the log's owner. What a checkpoint covers never changes, so it is linked; what lies behind it is
//! copied group by group, for as long as the chain of groups goes. A file may be removed meanwhile only after the
//! checkpoint that needs it, so a copy was whole if its checkpoint is still there at its end.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use sbp_types::{Offset, RangeKey};

use crate::format::checkpoint::Checkpoint;
use crate::format::footer::Trailer;
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::format::segment::{FIRST_GROUP, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::format::{block_up, bytes_from, crc32c};
use crate::fs::{FileSystem, OpenMode};
use crate::segments::files::{SUPERBLOCK, SegmentId, at, checkpoint_name, checkpoint_sequence, corrupt, unreadable};
use crate::{DamagedInterval, Durability, OpenError};

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its name, in the log's directory and in the backup.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The first byte that is summed, and the byte behind the last. Of a linked file, whose bytes were not read, these
    /// are the end of its footer; behind those of a copied one are zeros.
    pub summed: (u64, u64),
    /// Their CRC-32C.
    pub crc32c: u32,
    /// Whether it is the same file as the log's, under a second name.
    pub linked: bool,
}

/// What a backup of a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogBackup {
    /// Its files.
    pub files: Vec<BackupFile>,
    /// The last group in it.
    pub last_group: u64,
    /// One past the last record of each range, ordered.
    pub ends: Vec<(RangeKey, Offset)>,
    /// Records that were known to be damaged before.
    pub damaged: Vec<DamagedInterval>,
}

/// A backup of a log that is under way.
#[derive(Debug)]
pub struct BackingUp<'a> {
    fs: &'a dyn FileSystem,
    source: &'a Path,
    target: &'a Path,
    /// Whether files may be linked.
    link: bool,
    checkpoint: Option<Checkpoint>,
    done: LogBackup,
}

/// The outcome of a step: `None` if a file that it needs has been removed meanwhile. Then the backup begins anew.
pub type Step<T> = Result<Option<T>, OpenError>;

/// What the groups of one file are, as far as they continue the chain.
struct Walked {
    header: SegmentHeader,
    /// The end of the last group.
    end: u64,
    /// Whether the file is sealed and all its groups belong to the backup.
    whole: bool,
    /// Whether a group was left out because of its records.
    cut: bool,
}

impl<'a> BackingUp<'a> {
    /// Takes over what the newest checkpoint covers: from the log in `source` to the empty directory `target`. With
    /// `link`, files that never change again are linked where the file system can.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if a file cannot be read or written, or is damaged where that hides what belongs to the log.
    pub fn begin(fs: &'a dyn FileSystem, source: &'a Path, target: &'a Path, link: bool) -> Step<Self> {
        let mut sequences: Vec<u64> = fs
            .list(source)
            .map_err(at(source))?
            .iter()
            .filter_map(|name| checkpoint_sequence(name))
            .collect();
        sequences.sort_unstable();
        let mut backup = Self {
            fs,
            source,
            target,
            link,
            checkpoint: None,
            done: LogBackup::default(),
        };
        let any = !sequences.is_empty();
        while let (None, Some(sequence)) = (&backup.checkpoint, sequences.pop()) {
            let Some(bytes) = backup.contents(&checkpoint_name(sequence))? else {
                return Ok(None);
            };
            // One that cannot be read is passed over, as a start does.
            if let Ok(checkpoint) = Checkpoint::parse(&bytes) {
                backup.write(&checkpoint_name(sequence), &bytes, bytes.len() as u64)?;
                backup.checkpoint = Some(checkpoint);
            }
        }
        if any && backup.checkpoint.is_none() {
            return Err(corrupt(source, "no checkpoint can be read"));
        }
        let checkpoint = backup.checkpoint.clone().unwrap_or_default();
        let chain = checkpoint
            .segments
            .iter()
            .filter(|item| item.number != checkpoint.covered.segment);
        let chain = chain.map(|item| SegmentId::Chain(item.number));
        let compacted = checkpoint
            .compacted
            .iter()
            .map(|item| SegmentId::Compacted(item.segment.number));
        for id in chain.chain(compacted) {
            if !backup.take_covered(id)? {
                return Ok(None);
            }
        }
        for item in &checkpoint.ranges {
            backup.done.ends.push((item.key, item.end));
            let damage = item.damage.iter().map(|&(from, to)| DamagedInterval {
                key: item.key,
                from,
                to,
            });
            backup.done.damaged.extend(damage);
        }
        Ok(Some(backup))
    }

    /// Copies the groups behind the checkpoint, up to the first with a record that `belongs` refuses, and what else a
    /// start needs.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    pub fn finish(mut self, belongs: &dyn Fn(RangeKey) -> bool) -> Step<LogBackup> {
        let checkpoint = self.checkpoint.take().unwrap_or_default();
        let names = self.fs.list(self.source).map_err(at(self.source))?;
        let chain = names.iter().filter_map(|name| match SegmentId::parse(name) {
            Some(SegmentId::Chain(number)) => Some(number),
            _ => None,
        });
        let mut later: Vec<u64> = chain.filter(|number| *number >= checkpoint.covered.segment).collect();
        later.sort_unstable();
        let mut ends: BTreeMap<RangeKey, Offset> = self.done.ends.drain(..).collect();
        let mut items = checkpoint.segments.iter();
        let item = items.find(|item| item.number == checkpoint.covered.segment);
        let mut last = item.map_or(0, |item| item.first_group.saturating_sub(1));
        let mut sum = None;
        for number in later {
            let name = SegmentId::Chain(number).file_name();
            let Some(bytes) = self.contents(&name)? else {
                return Ok(None);
            };
            let before = last;
            let path = self.source.join(&name);
            let walked = walk(
                &path,
                &bytes,
                (&mut last, &mut sum),
                checkpoint.covered.number,
                &mut ends,
                belongs,
            )?;
            if last == before {
                break;
            }
            if !(walked.whole && self.link_file(&name, &bytes)?) {
                let end = usize::try_from(walked.end).unwrap_or(usize::MAX).min(bytes.len());
                let used = if walked.whole {
                    &bytes[..]
                } else {
                    bytes.get(..end).unwrap_or_default()
                };
                let length = if walked.whole {
                    bytes.len() as u64
                } else {
                    walked.header.capacity
                };
                self.write(&name, used, length)?;
            }
            if walked.cut {
                break;
            }
        }
        if last < checkpoint.covered.number {
            let what = format!(
                "the log ends with group {last}, and a checkpoint knows of group {}",
                checkpoint.covered.number
            );
            return Err(corrupt(self.source, what));
        }
        // Read last: it may only be newer than what it belongs to.
        let Some(superblock) = self.contents(SUPERBLOCK)? else {
            return Err(corrupt(self.source.join(SUPERBLOCK), "missing"));
        };
        Superblock::parse(&superblock).map_err(|why| unreadable(&self.source.join(SUPERBLOCK), why))?;
        self.write(SUPERBLOCK, &superblock, superblock.len() as u64)?;
        self.fs.sync_dir(self.target).map_err(at(self.target))?;
        if !self.nothing_was_removed(checkpoint.sequence)? {
            return Ok(None);
        }
        self.done.last_group = last;
        self.done.ends = ends.into_iter().collect();
        Ok(Some(self.done))
    }

    /// Files go only after the checkpoints that need them; without one, when two have been written.
    fn nothing_was_removed(&self, sequence: u64) -> Result<bool, OpenError> {
        let names = self.fs.list(self.source).map_err(at(self.source))?;
        let kept: Vec<u64> = names.iter().filter_map(|name| checkpoint_sequence(name)).collect();
        Ok(match sequence {
            0 => kept.iter().all(|sequence| *sequence <= 1),
            sequence => kept.contains(&sequence),
        })
    }

    /// Takes over a file that a checkpoint covers.
    fn take_covered(&mut self, id: SegmentId) -> Result<bool, OpenError> {
        let name = id.file_name();
        let path = self.source.join(&name);
        let trailer = match self.fs.open(&path, OpenMode::Reading) {
            Ok(file) => {
                let length = file.len().map_err(at(&path))?;
                let mut trailer = vec![0; Trailer::LEN];
                let from = length.checked_sub(Trailer::LEN as u64);
                from.map(|from| file.read_at(from, &mut trailer))
                    .transpose()
                    .map_err(at(&path))?;
                trailer
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(at(&path)(error)),
        };
        // A file whose footer is still to be written would change under its second name.
        if Trailer::parse(&trailer).is_some() && self.link_file(&name, &trailer)? {
            return Ok(true);
        }
        let Some(bytes) = self.contents(&name)? else {
            return Ok(false);
        };
        self.write(&name, &bytes, bytes.len() as u64)?;
        Ok(true)
    }

    /// Links a file whose bytes end with `end`; false where that is not possible.
    fn link_file(&mut self, name: &str, end: &[u8]) -> Result<bool, OpenError> {
        let (from, to) = (self.source.join(name), self.target.join(name));
        if !self.link || self.fs.link(&from, &to).is_err() {
            // It is copied instead. If it has gone, that says so.
            return Ok(false);
        }
        let file = self.fs.open(&to, OpenMode::Reading).map_err(at(&to))?;
        file.sync_data().map_err(at(&to))?;
        let trailer = end.len().saturating_sub(Trailer::LEN);
        let bytes = file.len().map_err(at(&to))?;
        self.done.files.push(BackupFile {
            name: name.to_owned(),
            bytes,
            summed: (bytes.saturating_sub(Trailer::LEN as u64), bytes),
            crc32c: crc32c(end.get(trailer..).unwrap_or_default()),
            linked: true,
        });
        Ok(true)
    }

    /// A file's bytes; `None` if it has gone.
    fn contents(&self, name: &str) -> Result<Option<Vec<u8>>, OpenError> {
        let path = self.source.join(name);
        let read = || {
            let file = self.fs.open(&path, OpenMode::Reading)?;
            let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
            match file.read_at(0, &mut bytes) {
                // It got its footer, and was cut behind it, since its length was asked for.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    bytes.truncate(usize::try_from(file.len()?).map_err(io::Error::other)?);
                    file.read_at(0, &mut bytes)?;
                }
                read => read?,
            }
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        }
    }

    /// Writes a file of the backup: `bytes`, and zeros up to `length`.
    fn write(&mut self, name: &str, bytes: &[u8], length: u64) -> Result<(), OpenError> {
        let path = self.target.join(name);
        let written = self.fs.open(&path, OpenMode::Truncate).and_then(|file| {
            file.write_at(0, bytes)?;
            if length > bytes.len() as u64 {
                file.set_len(length)?;
            }
            file.sync_data()
        });
        written.map_err(at(&path))?;
        self.done.files.push(BackupFile {
            name: name.to_owned(),
            bytes: length,
            summed: (0, bytes.len() as u64),
            crc32c: crc32c(bytes),
            linked: false,
        });
        Ok(())
    }
}

/// Follows the chain of groups through a file, and the ends of ranges behind `covered`.
fn walk(
    path: &Path,
    bytes: &[u8],
    (last, sum): (&mut u64, &mut Option<u32>),
    covered: u64,
    ends: &mut BTreeMap<RangeKey, Offset>,
    belongs: &dyn Fn(RangeKey) -> bool,
) -> Result<Walked, OpenError> {
    let header = SegmentHeader::parse(bytes).map_err(|why| unreadable(path, why))?;
    let mask = RecordHead::mask(header.salt);
    let mut walked = Walked {
        header,
        end: FIRST_GROUP,
        whole: false,
        cut: false,
    };
    loop {
        let group = bytes_from(bytes, walked.end);
        let found = GroupHeader::parse(group, header.salt).filter(|found| {
            let follows = found.number == *last + 1 && sum.is_none_or(|sum| sum == found.previous);
            follows && found.is_whole(group)
        });
        let Some(found) = found else { break };
        let mut records = Vec::new();
        let mut position = GroupHeader::LEN as u64;
        for _ in 0..found.records {
            let Some(record) = RecordHead::parse(bytes_from(group, position), mask) else {
                return Err(corrupt(
                    path,
                    format!("group {} is whole, its records are not", found.number),
                ));
            };
            position += RecordHead::stored_len(record.batch_len as usize) as u64;
            records.push(record.head);
        }
        if found.number > covered {
            if !records.iter().all(|head| belongs(head.key)) {
                walked.cut = true;
                return Ok(walked);
            }
            for head in &records {
                let end = ends.entry(head.key).or_insert(head.base_offset);
                *end = head.end_offset().unwrap_or(*end).max(*end);
            }
        }
        (*last, *sum) = (found.number, Some(found.checksum));
        walked.end = block_up(walked.end + u64::from(found.length));
    }
    let trailer = bytes
        .len()
        .checked_sub(Trailer::LEN)
        .and_then(|at| Trailer::parse(&bytes[at..]));
    // With durability none a crash may take back even what is sealed.
    let settled = header.durability == Durability::Fsync;
    walked.whole =
        settled && trailer.is_some_and(|trailer| trailer.salt == header.salt && trailer.last.number == *last);
    Ok(walked)
}

/// The files that a restored log begins with, those first without which a start refuses the directory.
#[must_use]
pub fn restore_order(mut names: Vec<String>) -> Vec<String> {
    let rank = |name: &str| match name {
        SUPERBLOCK => 2,
        name if SegmentId::parse(name).is_some() || checkpoint_sequence(name).is_some() => 0,
        _ => 1,
    };
    names.sort_by_key(|name| (rank(name), name.clone()));
    names
}

impl BackupFile {
    /// A file of a backup that the log knows nothing of.
    #[must_use]
    pub fn other(name: &str, bytes: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            summed: (0, bytes.len() as u64),
            crc32c: crc32c(bytes),
            linked: false,
        }
    }

    /// Whether these are the file's bytes, as far as it is summed.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let summed = bytes.get(place(self.summed.0)..place(self.summed.1));
        bytes.len() as u64 == self.bytes && summed.is_some_and(|summed| crc32c(summed) == self.crc32c)
    }
}

/// The length that a segment was made with, if the file is one that is still that long: such a file has zeros behind its
/// groups, whose room a restored log has to reserve.
#[must_use]
pub fn unsealed_length(path: &Path, bytes: &[u8]) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let is_chain = matches!(SegmentId::parse(name), Some(SegmentId::Chain(_)));
    let header = SegmentHeader::parse(bytes).ok().filter(|_| is_chain)?;
    (header.capacity == bytes.len() as u64).then_some(header.capacity)
}
