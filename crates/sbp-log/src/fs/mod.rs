//! The file system interface of the log, narrow enough for tests to simulate power losses.
//!
//! The log, and an embedded metadata store beside it, access the disk only through these three traits. Their durability
//! rules are those of the kernel: bytes are durable after [`File::sync_data`], names after [`FileSystem::sync_dir`],
//! and nothing else is.

mod real;

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

pub use real::RealFileSystem;

/// What [`FileSystem::open`] does if the file exists or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist, and is only read. Works where nothing may be written.
    Reading,
    /// The file must exist.
    Existing,
    /// The file is created if it does not exist, and keeps its contents if it does.
    OrCreate,
    /// The file is created, and emptied if it exists.
    Truncate,
}

/// The operations on names: directories, opening, renaming, locking.
pub trait FileSystem: fmt::Debug + Send + Sync + 'static {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing one that has the new name. Atomic; durable after [`sync_dir`](Self::sync_dir).
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name. Refused where the file system cannot, or the names are on different ones.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file's name. Open handles keep working.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in no particular order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory and its parents, durably.
    fn create_dir_all(&self, directory: &Path) -> io::Result<()>;

    /// Makes the directory's names durable.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;

    /// Locks the file at `path` for this process alone, and creates it if needed. The lock is released when the result
    /// is dropped or the process ends. [`io::ErrorKind::WouldBlock`] means that another owner has the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// The room of the file system that has this directory. The disk may have to be asked: where that is gone, the answer
    /// does not come.
    fn space(&self, directory: &Path) -> io::Result<Space> {
        let _ = directory;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The room of a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What this user can still write.
    pub free: u64,
    /// Its size.
    pub size: u64,
}

/// The operations on one file, by position. Safe to use from several threads.
pub trait File: fmt::Debug + Send + Sync + 'static {
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `position` on; [`io::ErrorKind::UnexpectedEof`] when the file ends before.
    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `position`.
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes all parts one after the other from `position` on, in one system call where possible.
    fn write_vectored_at(&self, position: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Extends the file with zeros to `length` and reserves the space on the disk, so that later writes within it
    /// cannot fail because the disk is full.
    fn preallocate(&self, length: u64) -> io::Result<()>;

    /// Returns when the file's bytes and length are on stable storage. After an error, the state of the bytes written
    /// since the last success is unknown, and a later success does not change that.
    fn sync_data(&self) -> io::Result<()>;
}

/// A held lock. Dropping it releases the lock.
pub trait FileLock: fmt::Debug + Send + Sync + 'static {}
