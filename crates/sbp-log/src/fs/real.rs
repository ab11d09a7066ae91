//! The machine's file system.

use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fdatasync, flock, statvfs};

use super::{File, FileLock, FileSystem, OpenMode, Space};

/// The most parts that most systems accept in one vectored write (`IOV_MAX`).
const PARTS_PER_CALL: usize = 1024;

/// The machine's file system, through positioned reads and writes and `fdatasync`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

/// The permissions of new files and directories: what is stored is for the user of the server alone. Those that are there
/// keep what they have.
const OWNER_READS_AND_WRITES: u32 = 0o600;
const OWNER_ENTERS: u32 = 0o700;

#[derive(Debug)]
struct RealFile(fs::File);

#[derive(Debug)]
struct RealLock(fs::File);

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).mode(OWNER_READS_AND_WRITES);
        match mode {
            OpenMode::Reading => options.write(false),
            OpenMode::Existing => &mut options,
            OpenMode::OrCreate => options.create(true).truncate(false),
            OpenMode::Truncate => options.create(true).truncate(true),
        };
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // The log creates no names that are not UTF-8.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        if directory.is_dir() {
            return Ok(());
        }
        match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                self.create_dir_all(parent)?;
                create_dir_if_missing(directory)?;
                self.sync_dir(parent)
            }
            _ => create_dir_if_missing(directory),
        }
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let made = options.mode(OWNER_READS_AND_WRITES).open(path);
        let file = match made {
            // The lock needs no writing; who is to write will be told soon enough.
            Err(error) if is_read_only(&error) => fs::File::open(path)?,
            made => made?,
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealLock(file)))
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        let told = statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
        Ok(Space {
            free: bytes(told.f_bavail),
            size: bytes(told.f_blocks),
        })
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
    )
}

fn create_dir_if_missing(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(OWNER_ENTERS).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

impl File for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, position)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn write_vectored_at(&self, mut position: u64, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let now = &parts[..parts.len().min(PARTS_PER_CALL)];
            match rustix::io::pwritev(&self.0, now, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    position += written as u64;
                    IoSlice::advance_slices(&mut parts, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            // The file system does not support the call; writing zeros reserves the space as well.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.write_zeros(length),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        // Not repeated after an error, not even an interruption: the state of the dirty pages is unknown then.
        Ok(fdatasync(&self.0)?)
    }
}

impl RealFile {
    fn write_zeros(&self, length: u64) -> io::Result<()> {
        const BLOCK: usize = 1 << 20;
        let zeros = vec![0u8; BLOCK];
        let mut position = self.len()?;
        while position < length {
            let step = (length - position).min(BLOCK as u64);
            self.0.write_all_at(&zeros[..step as usize], position)?;
            position += step;
        }
        Ok(())
    }
}

impl FileLock for RealLock {}

/// Releases the lock. Closing the descriptor alone would not, while a forked child still has a copy of it.
impl Drop for RealLock {
    fn drop(&mut self) {
        // Should it fail, closing the descriptor is all that is left.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_dropped_is_free_although_a_forked_child_has_a_copy_of_its_descriptor() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lock");
        let file = fs::File::create(&path).expect("created");
        let copy = file.try_clone().expect("a copy of the descriptor");
        flock(&file, FlockOperation::NonBlockingLockExclusive).expect("free");
        let lock = RealLock(file);
        let refused = RealFileSystem.lock(&path).expect_err("locked");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        let again = RealFileSystem.lock(&path);
        assert!(again.is_ok(), "{again:?}");
        drop(copy);
    }
}
