//! The file system as the log sees it: a seam narrow enough to pull the plug on.
//!
//! Everything the log, and an embedded metadata store beside it, does to a disk goes through these three traits. The
//! rules are the kernel's, not the page cache's: bytes are durable after [`File::sync_data`], names after
//! [`FileSystem::sync_dir`], and nothing else is.

mod real;

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

pub use real::RealFileSystem;

/// How [`FileSystem::open`] treats a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file is made if it does not exist; its content is kept if it does.
    OrCreate,
    /// The file is made anew: what was there is emptied.
    Truncate,
}

/// Names: directories, opening, renaming, locking.
pub trait FileSystem: fmt::Debug + Send + Sync + 'static {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Gives a file another name, replacing what had it. Atomic, durable after [`sync_dir`](Self::sync_dir).
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a name. Open handles go on working.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in no particular order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory and its parents, durably.
    fn create_dir_all(&self, directory: &Path) -> io::Result<()>;

    /// Makes the directory's names durable.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;

    /// Takes the file at `path` for this process alone, making it if needed; released when the result is dropped or the
    /// process dies. [`io::ErrorKind::WouldBlock`] means that somebody else has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
}

/// Bytes: one file, addressed by position. Safe to share between threads.
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

    /// Writes all the parts, one behind the other, from `position` on: one system call where the system allows it.
    fn write_vectored_at(&self, position: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Extends the file with zeros to `length` and reserves the room on the disk, so that a later write within it
    /// cannot fail for want of space.
    fn preallocate(&self, length: u64) -> io::Result<()>;

    /// Returns when the file's bytes and length are on stable storage. After an error nothing is known about the bytes
    /// written since the last success, and a later success says nothing about them either.
    fn sync_data(&self) -> io::Result<()>;
}

/// Proof of sole ownership. Dropping it gives the lock back.
pub trait FileLock: fmt::Debug + Send + Sync + 'static {}
