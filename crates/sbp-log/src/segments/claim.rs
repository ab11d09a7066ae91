//! Locks a data directory and checks its format.

use std::io;
use std::path::Path;

use crate::OpenError;
use crate::format::superblock::Superblock;
use crate::fs::{FileLock, FileSystem};
use crate::segments::files::{
    LOCK, SUPERBLOCK, SegmentId, at, checkpoint_sequence, corrupt, read_small, unreadable, write_sector_always,
};

/// A locked directory.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) lock: Box<dyn FileLock>,
    pub(crate) superblock: Superblock,
}

/// Creates the directory if needed, locks it, and counts the start in its superblock.
pub(crate) fn claim(fs: &dyn FileSystem, directory: &Path) -> Result<Claimed, OpenError> {
    fs.create_dir_all(directory).map_err(at(directory))?;
    let path = directory.join(LOCK);
    let lock = match fs.lock(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(OpenError::Locked {
                directory: directory.to_owned(),
            });
        }
        Err(error) => return Err(at(&path)(error)),
    };
    let path = directory.join(SUPERBLOCK);
    let mut superblock = match read_small(fs, &path).map_err(at(&path))? {
        Some(bytes) => Superblock::parse(&bytes).map_err(|why| unreadable(&path, why))?,
        None => {
            let names = fs.list(directory).map_err(at(directory))?;
            if names
                .iter()
                .any(|name| SegmentId::parse(name).is_some() || checkpoint_sequence(name).is_some())
            {
                return Err(corrupt(path, "missing, and there is a log"));
            }
            Superblock {
                directory_id: fastrand::u64(..),
                ..Superblock::default()
            }
        }
    };
    superblock.boot_id = superblock.boot_id.saturating_add(1);
    write_sector_always(fs, directory, SUPERBLOCK, &superblock.encode()).map_err(at(&path))?;
    Ok(Claimed { lock, superblock })
}
