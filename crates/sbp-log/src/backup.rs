//! Copies a log while it is written, up to a whole group.
//!
//! Nothing is asked of the log's owner. What a checkpoint covers never changes, so it is linked; what lies behind it is
//! copied group by group, for as long as the chain of groups goes. A file may be removed meanwhile only after the
//! checkpoint that needs it. So all files are opened first: if the checkpoint is still there then, nothing was missing, and
//! copying may take as long as it likes, because an open file can be read also when it has lost its name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sbp_types::{Offset, RangeKey};

use crate::format::checkpoint::Checkpoint;
use crate::format::clean::GroupMark;
use crate::format::footer::Trailer;
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::format::segment::{FIRST_GROUP, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::format::{BLOCK, block_up, bytes_from, crc32c};
use crate::fs::{File, FileSystem, OpenMode};
use crate::segments::files::{
    SUPERBLOCK, SegmentId, at, checkpoint_name, checkpoint_sequence, corrupt, read_small, unreadable,
};
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
    /// Files that the checkpoint covers, and that are still to be copied.
    covered: Vec<Source>,
    done: LogBackup,
}

/// A file of the log, open.
#[derive(Debug)]
struct Source {
    id: SegmentId,
    path: PathBuf,
    file: Arc<dyn File>,
}

/// The outcome of a step: `None` if a file that it needs has been removed meanwhile. Then the backup begins anew.
pub type Step<T> = Result<Option<T>, OpenError>;

/// The chain of groups behind a checkpoint, as far as it belongs to the backup.
struct Chain<'b> {
    belongs: &'b dyn Fn(RangeKey) -> bool,
    /// No group behind this one is taken.
    until: u64,
    /// The last group that was taken, and its checksum.
    last: u64,
    sum: u32,
    ends: BTreeMap<RangeKey, Offset>,
    taken: Vec<Taken>,
}

/// A file of the chain.
struct Taken {
    number: u64,
    capacity: u64,
    /// The end of its last group.
    end: u64,
    /// Whether it has a footer, and all its groups belong to the backup.
    sealed: bool,
    /// Whether it is covered, and damage hides where its last group ends: then it is copied as it is.
    as_is: bool,
}

/// What follows the groups of a file that were taken.
enum Next {
    /// Perhaps groups in the next file.
    File,
    /// Nothing that belongs to the backup.
    End,
    /// A group that is not the next one, or the word of a footer or checkpoint that there is one.
    Gap { found: u64, position: u64 },
}

/// Where a group is missing, and which later one is there.
struct Gap {
    path: PathBuf,
    from: u64,
    missing: u64,
    found: u64,
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
            covered: Vec::new(),
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
        let Some(mut files) = self.open_chain(&checkpoint)? else {
            return Ok(None);
        };
        let ends: BTreeMap<RangeKey, Offset> = self.done.ends.drain(..).collect();
        let mut until = u64::MAX;
        let chain = loop {
            let mut chain = Chain::new(checkpoint.covered, until, ends.clone(), belongs);
            let Some(gap) = follow(&files, &checkpoint, &mut chain)? else {
                break chain;
            };
            // The log's owner may have written the missing group after it was looked for. Groups are written one after
            // the other, so now it is there.
            if until != u64::MAX {
                let what = format!(
                    "group {} cannot be read at byte {}, and group {} is there: the backup would lack acknowledged records",
                    gap.missing, gap.from, gap.found
                );
                return Err(corrupt(gap.path, what));
            }
            until = gap.found;
            // Nor need a list of a directory have a file that was made while it was read.
            let Some(again) = self.open_chain(&checkpoint)? else {
                return Ok(None);
            };
            files = again;
        };
        for covered in std::mem::take(&mut self.covered) {
            let bytes = covered.contents()?;
            self.write(&covered.id.file_name(), &bytes, bytes.len() as u64)?;
        }
        self.take_chain(&files, &chain.taken)?;
        // Read last: it may only be newer than what it belongs to.
        let Some(superblock) = self.contents(SUPERBLOCK)? else {
            return Err(corrupt(self.source.join(SUPERBLOCK), "missing"));
        };
        Superblock::parse(&superblock).map_err(|why| unreadable(&self.source.join(SUPERBLOCK), why))?;
        self.write(SUPERBLOCK, &superblock, superblock.len() as u64)?;
        self.fs.sync_dir(self.target).map_err(at(self.target))?;
        self.done.last_group = chain.last;
        self.done.ends = chain.ends.into_iter().collect();
        Ok(Some(self.done))
    }

    /// Opens the files of the chain from the checkpoint on, in their order; `None` if one has gone.
    fn open_chain(&self, checkpoint: &Checkpoint) -> Step<Vec<Source>> {
        let covered = checkpoint.covered;
        let names = self.fs.list(self.source).map_err(at(self.source))?;
        let later = names.iter().filter_map(|name| match SegmentId::parse(name) {
            Some(SegmentId::Chain(number)) if number >= covered.segment => Some(number),
            _ => None,
        });
        let mut later: BTreeSet<u64> = later.collect();
        let items = checkpoint.segments.iter().map(|item| item.number);
        later.extend(items.filter(|number| *number == covered.segment));
        let opened = later.into_iter().map(|number| self.open(SegmentId::Chain(number)));
        let Some(opened) = opened.collect::<Step<Vec<Source>>>()? else {
            return Ok(None);
        };
        Ok(self.nothing_was_removed(checkpoint.sequence)?.then_some(opened))
    }

    /// Opens a file; `None` if it has gone.
    fn open(&self, id: SegmentId) -> Step<Source> {
        let path = self.source.join(id.file_name());
        match self.fs.open(&path, OpenMode::Reading) {
            Ok(file) => Ok(Some(Source { id, path, file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        }
    }

    /// Takes over the files of the chain.
    fn take_chain(&mut self, sources: &[Source], files: &[Taken]) -> Result<(), OpenError> {
        for (index, file) in files.iter().enumerate() {
            let id = SegmentId::Chain(file.number);
            let Some(source) = sources.iter().find(|source| source.id == id) else {
                continue;
            };
            let (name, bytes) = (id.file_name(), source.contents()?);
            // A start takes a last segment with a footer for one whose successor was lost.
            let whole = file.sealed && index + 1 < files.len();
            if whole && self.link_file(&name, &bytes)? {
                continue;
            }
            if whole || file.as_is {
                self.write(&name, &bytes, bytes.len() as u64)?;
            } else {
                let end = usize::try_from(file.end).unwrap_or(usize::MAX).min(bytes.len());
                self.write(&name, bytes.get(..end).unwrap_or_default(), file.capacity)?;
            }
        }
        Ok(())
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

    /// Takes over a file that a checkpoint covers: links it, or has it open until it is copied. False if it has gone.
    fn take_covered(&mut self, id: SegmentId) -> Result<bool, OpenError> {
        let Some(source) = self.open(id)? else {
            return Ok(false);
        };
        let length = source.file.len().map_err(at(&source.path))?;
        let mut trailer = vec![0; Trailer::LEN];
        let from = length.checked_sub(Trailer::LEN as u64);
        from.map(|from| source.file.read_at(from, &mut trailer))
            .transpose()
            .map_err(at(&source.path))?;
        // A file whose footer is still to be written would change under its second name.
        if Trailer::parse(&trailer).is_none() || !self.link_file(&id.file_name(), &trailer)? {
            self.covered.push(source);
        }
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

    /// A small file's bytes; `None` if it has gone.
    fn contents(&self, name: &str) -> Step<Vec<u8>> {
        let path = self.source.join(name);
        read_small(self.fs, &path).map_err(at(&path))
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

impl Source {
    /// The file's bytes.
    fn contents(&self) -> Result<Vec<u8>, OpenError> {
        let read = || {
            let mut bytes = vec![0; usize::try_from(self.file.len()?).map_err(io::Error::other)?];
            match self.file.read_at(0, &mut bytes) {
                // It got its footer, and was cut behind it, since its length was asked for.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    bytes.truncate(usize::try_from(self.file.len()?).map_err(io::Error::other)?);
                    self.file.read_at(0, &mut bytes)?;
                }
                read => read?,
            }
            Ok(bytes)
        };
        read().map_err(at(&self.path))
    }
}

/// Follows the chain of groups through its files; returns where it breaks off although later groups are there.
fn follow(files: &[Source], checkpoint: &Checkpoint, chain: &mut Chain<'_>) -> Result<Option<Gap>, OpenError> {
    for source in files {
        let (number, path) = (source.id.number(), &source.path);
        let before = chain.taken.len();
        let covered = Some(checkpoint.covered).filter(|mark| mark.segment == number);
        match chain.walk(path, number, &source.contents()?, covered)? {
            Next::File => {}
            Next::End => break,
            Next::Gap { found, position } => {
                // At the beginning of a file it is the file before that lacks its last group.
                let here = chain.taken.len() == before && position != FIRST_GROUP;
                let file = chain.taken.last().filter(|_| !here);
                let path_of = |number| path.with_file_name(SegmentId::Chain(number).file_name());
                return Ok(Some(Gap {
                    path: file.map_or_else(|| path.clone(), |file| path_of(file.number)),
                    from: file.map_or(FIRST_GROUP, |file| file.end),
                    missing: chain.last + 1,
                    found,
                }));
            }
        }
    }
    Ok(None)
}

impl<'b> Chain<'b> {
    fn new(
        covered: GroupMark,
        until: u64,
        ends: BTreeMap<RangeKey, Offset>,
        belongs: &'b dyn Fn(RangeKey) -> bool,
    ) -> Self {
        Self {
            belongs,
            until,
            last: covered.number,
            sum: covered.checksum,
            ends,
            taken: Vec::new(),
        }
    }

    /// Follows the chain through a file. Of the file that holds the last covered group that group's mark is given.
    fn walk(&mut self, path: &Path, number: u64, bytes: &[u8], covered: Option<GroupMark>) -> Result<Next, OpenError> {
        let header = SegmentHeader::parse(bytes).map_err(|why| unreadable(path, why))?;
        let covered_end = covered.and_then(|mark| {
            let found = valid_at(bytes, mark.position, header.salt)?;
            (found.number == mark.number).then(|| mark.position + block_up(u64::from(found.length)))
        });
        let mut end = covered_end.unwrap_or(FIRST_GROUP);
        let before = self.last;
        let mut next = loop {
            let Some((position, found)) = next_valid(bytes, end, header.salt, self.last) else {
                break Next::File;
            };
            if self.last >= self.until {
                break Next::End;
            }
            if found.number != self.last + 1 || found.previous != self.sum {
                break Next::Gap {
                    found: found.number,
                    position,
                };
            }
            if !self.take(path, bytes_from(bytes, position), &found, RecordHead::mask(header.salt))? {
                break Next::End;
            }
            end = position + block_up(u64::from(found.length));
        };
        let trailer = bytes
            .len()
            .checked_sub(Trailer::LEN)
            .and_then(|at| Trailer::parse(&bytes[at..]));
        // With durability none a crash may take back even what is sealed.
        let settled = header.durability == Durability::Fsync;
        let trailer = trailer.filter(|trailer| settled && trailer.salt == header.salt);
        if let (Next::File, Some(trailer)) = (&next, &trailer)
            && trailer.last.number > self.last
        {
            next = Next::Gap {
                found: trailer.last.number,
                position: end,
            };
        }
        let grown = self.last != before;
        if grown || covered.is_some() {
            self.taken.push(Taken {
                number,
                capacity: header.capacity,
                end,
                sealed: trailer.is_some_and(|trailer| trailer.last.number == self.last),
                as_is: covered_end.is_none() && !grown,
            });
        }
        Ok(next)
    }

    /// Takes a group; false if one of its records does not belong to the backup.
    fn take(&mut self, path: &Path, group: &[u8], header: &GroupHeader, mask: u32) -> Result<bool, OpenError> {
        let mut heads = Vec::new();
        let mut position = GroupHeader::LEN as u64;
        for _ in 0..header.records {
            let Some(record) = RecordHead::parse(bytes_from(group, position), mask) else {
                let what = format!("group {} is whole, its records are not", header.number);
                return Err(corrupt(path, what));
            };
            position += RecordHead::stored_len(record.batch_len as usize) as u64;
            heads.push(record.head);
        }
        if !heads.iter().all(|head| (self.belongs)(head.key)) {
            return Ok(false);
        }
        for head in heads {
            let end = self.ends.entry(head.key).or_insert(head.base_offset);
            *end = head.end_offset().unwrap_or(*end).max(*end);
        }
        (self.last, self.sum) = (header.number, header.checksum);
        Ok(true)
    }
}

fn valid_at(bytes: &[u8], position: u64, salt: u64) -> Option<GroupHeader> {
    let group = bytes_from(bytes, position);
    GroupHeader::parse(group, salt).filter(|header| header.is_whole(group))
}

/// The first whole group from a position on whose number is above `last`.
fn next_valid(bytes: &[u8], mut position: u64, salt: u64, last: u64) -> Option<(u64, GroupHeader)> {
    while position < bytes.len() as u64 {
        if let Some(found) = valid_at(bytes, position, salt).filter(|found| found.number > last) {
            return Some((position, found));
        }
        position += BLOCK;
    }
    None
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

/// The superblock of a directory that is restored without the id of its server, and says so; `None` if these bytes are no superblock,
/// or the server had no id.
#[must_use]
pub fn restored_without_id(superblock: &[u8]) -> Option<Vec<u8>> {
    let superblock = Superblock::parse(superblock).ok()?;
    superblock.server_id?;
    let without = Superblock {
        server_id: None,
        restored: true,
        ..superblock
    };
    Some(without.encode())
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
