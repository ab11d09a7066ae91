//! Checks every checksum of a directory that no log uses, and changes nothing.
//!
//! Each byte of a file of records is either covered by a checksum or has to be zero, so every changed byte is found:
//! those of the group, or the footer, that it is in, and of no other. What recovery would cut off as the write that a
//! power cut interrupted is no damage and becomes a note.

mod file;
mod judge;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sbp_types::{Offset, RangeKey};

use crate::OpenError;
use crate::format::checkpoint::{Checkpoint, SegmentItem};
use crate::format::clean::GroupMark;
use crate::format::superblock::Superblock;
use crate::format::{Unreadable, is_sealed};
use crate::fs::{FileLock, FileSystem, OpenMode};
use crate::segments::files::{
    ASIDE, CLEAN, LOCK, SUPERBLOCK, SegmentId, at, checkpoint_sequence, corrupt, read_small, unreadable,
};
use file::Checked;
use judge::Judge;
pub use report::{Fault, Verified};

/// A directory that is being checked. No server can start on it meanwhile.
#[derive(Debug)]
pub struct Verification<'fs> {
    fs: &'fs dyn FileSystem,
    directory: PathBuf,
    files: Vec<(SegmentId, u64)>,
    small: Vec<String>,
    begins: BTreeMap<RangeKey, Offset>,
    _lock: Option<Box<dyn FileLock>>,
}

/// The small files.
#[derive(Default)]
struct Small {
    /// By sequence; `None` for one that cannot be read.
    checkpoints: BTreeMap<u64, Option<Checkpoint>>,
    clean: Option<GroupMark>,
}

impl Small {
    /// The newest checkpoint that can be read.
    fn newest(&self) -> Option<&Checkpoint> {
        self.checkpoints.values().rev().flatten().next()
    }

    /// What any checkpoint says about a file, the newest first.
    fn item(&self, id: SegmentId) -> Option<&SegmentItem> {
        let of = |checkpoint: &'_ Checkpoint| match id {
            SegmentId::Chain(number) => checkpoint.segments.iter().position(|item| item.number == number),
            SegmentId::Compacted(number) => {
                let mut compacted = checkpoint.compacted.iter();
                compacted.position(|item| item.segment.number == number)
            }
        };
        self.checkpoints.values().rev().flatten().find_map(|checkpoint| {
            let at = of(checkpoint)?;
            match id {
                SegmentId::Chain(_) => checkpoint.segments.get(at),
                SegmentId::Compacted(_) => checkpoint.compacted.get(at).map(|item| &item.segment),
            }
        })
    }
}

impl<'fs> Verification<'fs> {
    /// Locks a directory that exists. [`OpenError::Locked`] if a server uses it.
    pub fn begin(fs: &'fs dyn FileSystem, directory: &Path) -> Result<Self, OpenError> {
        let names = fs.list(directory).map_err(at(directory))?;
        let path = directory.join(LOCK);
        // A directory that no server ever used has no such file, and none is made here.
        let lock = match names.iter().any(|name| name == LOCK).then(|| fs.lock(&path)) {
            None => None,
            Some(Ok(lock)) => Some(lock),
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                let directory = directory.to_owned();
                return Err(OpenError::Locked { directory });
            }
            Some(Err(error)) => return Err(at(&path)(error)),
        };
        let is_log = |name: &String| name == SUPERBLOCK || SegmentId::parse(name).is_some();
        if !names.iter().any(is_log) {
            return Err(corrupt(
                directory,
                "this is no data directory: it has no superblock and no log",
            ));
        }
        let mut files = Vec::new();
        let mut small = Vec::new();
        for name in names {
            match SegmentId::parse(&name) {
                Some(id) => {
                    let path = directory.join(&name);
                    let file = fs.open(&path, OpenMode::Reading).map_err(at(&path))?;
                    files.push((id, file.len().map_err(at(&path))?));
                }
                None => small.push(name),
            }
        }
        files.sort_unstable();
        small.sort_unstable();
        Ok(Self {
            fs,
            directory: directory.to_owned(),
            files,
            small,
            begins: BTreeMap::new(),
            _lock: lock,
        })
    }

    /// Where ranges begin, as the log's owner knows it: what is missing before the first record that is found of one is lost
    /// then. Without that a log does not know where a range began of which no checkpoint tells.
    #[must_use]
    pub fn knowing(self, begins: impl IntoIterator<Item = (RangeKey, Offset)>) -> Self {
        Self {
            begins: begins.into_iter().collect(),
            ..self
        }
    }

    /// The bytes of all files of records, which [`run`](Self::run) reads.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, length)| length).sum()
    }

    /// Reads and checks everything; `read` is told how many bytes were read each time.
    pub fn run(&self, read: &mut dyn FnMut(u64)) -> Result<Verified, OpenError> {
        let mut verified = Verified::default();
        let small = self.small(&mut verified)?;
        let mut judge = Judge::new(&small, &self.begins);
        for (id, length) in &self.files {
            let path = self.directory.join(id.file_name());
            let bytes = self.contents(&path, *length).map_err(at(&path))?;
            let checked = Checked::new(*id, path, &bytes, small.item(*id))?;
            verified.files += 1;
            verified.bytes += length;
            verified.groups += checked.groups;
            verified.batches += checked.records.iter().filter(|record| record.sound).count() as u64;
            judge.add(checked, &bytes);
            read(*length);
        }
        judge.finish(&self.directory, &mut verified);
        Ok(verified)
    }

    fn contents(&self, path: &Path, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.fs.open(path, OpenMode::Reading)?.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the small files.
    fn small(&self, verified: &mut Verified) -> Result<Small, OpenError> {
        let mut found = Small::default();
        let mut has_superblock = false;
        for name in &self.small {
            let path = self.directory.join(name);
            let sequence = checkpoint_sequence(name);
            if name.ends_with(ASIDE) {
                verified
                    .notes
                    .push(format!("{}: not complete; the next start removes it", path.display()));
                continue;
            }
            if sequence.is_none() && name != CLEAN && name != SUPERBLOCK {
                continue;
            }
            let Some(bytes) = read_small(self.fs, &path).map_err(at(&path))? else {
                continue;
            };
            let why = match (sequence, name.as_str()) {
                (Some(sequence), _) => {
                    let parsed = Checkpoint::parse(&bytes);
                    found.checkpoints.insert(sequence, parsed.as_ref().ok().cloned());
                    parsed.err()
                }
                (None, CLEAN) => match GroupMark::parse_clean(&bytes) {
                    Ok(mark) => {
                        found.clean = Some(mark);
                        None
                    }
                    Err(why) => Some(why),
                },
                (None, _) => {
                    has_superblock = true;
                    let parsed = Superblock::parse(&bytes);
                    verified.starts = parsed.as_ref().map_or(0, |superblock| superblock.boot_id);
                    parsed.err()
                }
            };
            match why {
                None => {}
                Some(newer @ Unreadable::Newer { .. }) if is_sealed(&bytes) => return Err(unreadable(&path, newer)),
                Some(why) => verified
                    .faults
                    .push(Fault::of_file(path, bytes.len() as u64, why.what())),
            }
        }
        if !has_superblock {
            let path = self.directory.join(SUPERBLOCK);
            verified
                .faults
                .push(Fault::of_file(path, 0, "missing, and there is a log"));
        }
        Ok(found)
    }
}
