//! The names in the data directory, and the replacement of small files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::OpenError;
use crate::format::Unreadable;
use crate::fs::{File, FileSystem, OpenMode};

pub(crate) const SUPERBLOCK: &str = "superblock";
pub(crate) const LOCK: &str = "lock";
pub(crate) const CLEAN: &str = "clean";
pub(crate) const RESERVE: &str = "reserve";
/// The ending of a file's name until it is complete. Leftovers are removed at the start.
pub(crate) const ASIDE: &str = ".tmp";

const SEGMENT: &str = "segment-";
const COMPACTED: &str = "remains-";
const CHECKPOINT: &str = "checkpoint-";

/// The size that a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// Longer files are not read into memory; small files of this format are far shorter.
const SMALL_FILE_LIMIT: u64 = 8 << 30;

/// A file with records. Files of both kinds share one sequence of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SegmentId {
    /// A segment, part of the chain of groups.
    Chain(u64),
    /// A compacted file, made from what was needed of older files.
    Compacted(u64),
}

impl SegmentId {
    pub(crate) fn file_name(self) -> String {
        match self {
            Self::Chain(number) => format!("{SEGMENT}{number:016x}"),
            Self::Compacted(number) => format!("{COMPACTED}{number:016x}"),
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let chain = number(name, SEGMENT).map(Self::Chain);
        chain.or_else(|| number(name, COMPACTED).map(Self::Compacted))
    }

    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Chain(number) | Self::Compacted(number) => number,
        }
    }
}

pub(crate) fn checkpoint_name(sequence: u64) -> String {
    format!("{CHECKPOINT}{sequence:016x}")
}

pub(crate) fn checkpoint_sequence(name: &str) -> Option<u64> {
    number(name, CHECKPOINT)
}

fn number(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    if digits.len() != 16 {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// Reads a small file; `None` if it does not exist.
pub(crate) fn read_small(fs: &dyn FileSystem, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs.open(path, OpenMode::Reading) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.len()?;
    if length > SMALL_FILE_LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "file is far too long"));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Creates or replaces a file: has it written and synced under another name, renames it, syncs the directory. After a
/// crash either the old or the new file is there.
pub(crate) fn create<R, E: From<io::Error>>(
    fs: &dyn FileSystem,
    directory: &Path,
    name: &str,
    write_and_sync: impl FnOnce(Arc<dyn File>) -> Result<R, E>,
) -> Result<R, E> {
    let aside = directory.join(format!("{name}{ASIDE}"));
    let file = fs.open(&aside, OpenMode::Truncate).map_err(E::from);
    let result = file.and_then(write_and_sync).inspect_err(|_| {
        // An incomplete file would take up space on a full disk.
        let _ = remove_if_there(fs, &aside);
    })?;
    fs.rename(&aside, &directory.join(name))?;
    fs.sync_dir(directory)?;
    Ok(result)
}

/// Creates or replaces a small file with these bytes.
pub(crate) fn write_small(fs: &dyn FileSystem, directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    create(fs, directory, name, |file| {
        file.write_at(0, bytes)?;
        file.sync_data()
    })
}

/// As [`write_small`], for files that must be written even when the disk is full: removes the reserve file if needed.
pub(crate) fn write_small_always(fs: &dyn FileSystem, directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    match write_small(fs, directory, name, bytes) {
        Err(error) if is_full(&error) => {
            remove_if_there(fs, &directory.join(RESERVE))?;
            fs.sync_dir(directory)?;
            write_small(fs, directory, name, bytes)
        }
        other => other,
    }
}

/// As [`write_small`], for a file that is smaller than a sector and never changes its length. If the disk has no room
/// for a second file, it is overwritten in place, which needs no space and which a disk does as a whole or not at all.
/// So this works without the reserve and saves it for other files.
pub(crate) fn write_sector_always(fs: &dyn FileSystem, directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    match write_small(fs, directory, name, bytes) {
        Err(error) if is_full(&error) => match write_in_place(fs, &directory.join(name), bytes) {
            Ok(true) => Ok(()),
            _ => write_small_always(fs, directory, name, bytes),
        },
        other => other,
    }
}

/// Overwrites a file in place; false if it does not exist or has another length.
fn write_in_place(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let file = match fs.open(path, OpenMode::Existing) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    if file.len()? != bytes.len() as u64 || bytes.len() > SECTOR {
        return Ok(false);
    }
    file.write_at(0, bytes)?;
    file.sync_data()?;
    Ok(true)
}

/// Whether an error says that the disk is full, and not that something is broken.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Removes a file that may not exist any more.
pub(crate) fn remove_if_there(fs: &dyn FileSystem, path: &Path) -> io::Result<()> {
    match fs.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Adds the path to an error of the file system.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path = path.to_owned();
    move |source| OpenError::Io { path, source }
}

/// The error for a file that contradicts the others.
pub(crate) fn corrupt(path: impl Into<PathBuf>, what: impl Into<String>) -> OpenError {
    OpenError::Corrupt {
        path: path.into(),
        what: what.into(),
    }
}

/// Turns a parser's error into one for opening.
pub(crate) fn unreadable(path: &Path, why: Unreadable) -> OpenError {
    match why {
        Unreadable::Bad(what) => corrupt(path, what),
        Unreadable::Newer { found, supported } => OpenError::NewerFormat {
            path: path.to_owned(),
            found,
            supported,
        },
    }
}
