//! Files that are open only while they are used, because a log has more segments than a process may have descriptors.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use sbp_locks::Mutex;

use crate::fs::{File, FileSystem, OpenMode};

/// How many segments may be open besides those that are being written.
const OPEN_AT_ONCE: usize = 128;

/// The open segments of a log, in the order in which they were opened.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    fs: Arc<dyn FileSystem>,
    mode: OpenMode,
    open: Mutex<VecDeque<Weak<SegmentHandle>>>,
}

/// A segment's file: opened when needed, closed when other files need the descriptor.
#[derive(Debug)]
pub(crate) struct SegmentHandle {
    me: Weak<Self>,
    pool: Arc<OpenFiles>,
    path: PathBuf,
    file: Mutex<Option<Arc<dyn File>>>,
    /// Whether the file must stay open: a descriptor that is opened later does not report earlier write errors.
    pinned: AtomicBool,
}

impl OpenFiles {
    pub(crate) fn new(fs: Arc<dyn FileSystem>) -> Arc<Self> {
        Self::with_mode(fs, OpenMode::Existing)
    }

    /// Files that are only read.
    pub(crate) fn reading(fs: Arc<dyn FileSystem>) -> Arc<Self> {
        Self::with_mode(fs, OpenMode::Reading)
    }

    fn with_mode(fs: Arc<dyn FileSystem>, mode: OpenMode) -> Arc<Self> {
        Arc::new(Self {
            fs,
            mode,
            open: Mutex::default(),
        })
    }

    /// The handle of a file that has this name, or is about to get it. It stays open while it is pinned.
    pub(crate) fn handle(self: &Arc<Self>, path: &Path, file: Option<Arc<dyn File>>) -> Arc<SegmentHandle> {
        Arc::new_cyclic(|me| SegmentHandle {
            me: me.clone(),
            pool: self.clone(),
            path: path.to_owned(),
            pinned: AtomicBool::new(file.is_some()),
            file: Mutex::new(file),
        })
    }

    fn opened(&self, handle: Weak<SegmentHandle>) {
        // Closed without a lock, because closing a file that was removed frees its space, which takes the disk's time.
        let mut over = Vec::new();
        {
            let mut open = self.open.lock();
            open.push_back(handle);
            // A pinned file leaves the queue; it is added again when it is unpinned.
            while open.len() > OPEN_AT_ONCE {
                over.extend(open.pop_front().and_then(|oldest| oldest.upgrade()));
            }
        }
        for oldest in over {
            oldest.close();
        }
    }
}

impl SegmentHandle {
    /// Opens the file and keeps it open from now on.
    pub(crate) fn pin(&self) -> io::Result<()> {
        self.pinned.store(true, Ordering::Release);
        self.file().map(drop)
    }

    /// Allows the file to be closed, because it will not be written any more.
    pub(crate) fn unpin(&self) {
        if self.pinned.swap(false, Ordering::AcqRel) {
            self.pool.opened(self.me.clone());
        }
    }

    /// Writes bytes over those that are there, durably.
    pub(crate) fn rewrite(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        // One descriptor, because another one would not report that the bytes could not be written.
        let file = self.file()?;
        file.write_at(position, bytes)?;
        file.sync_data()
    }

    fn close(&self) {
        if !self.pinned.load(Ordering::Acquire) {
            let file = self.file.lock().take();
            drop(file);
        }
    }

    fn file(&self) -> io::Result<Arc<dyn File>> {
        let file = {
            let mut slot = self.file.lock();
            if let Some(file) = &*slot {
                return Ok(file.clone());
            }
            let file = self.pool.fs.open(&self.path, self.pool.mode)?;
            *slot = Some(file.clone());
            file
        };
        self.pool.opened(self.me.clone());
        Ok(file)
    }
}

impl File for SegmentHandle {
    fn len(&self) -> io::Result<u64> {
        self.file()?.len()
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file()?.read_at(position, buffer)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_at(position, bytes)
    }

    fn write_vectored_at(&self, position: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.file()?.write_vectored_at(position, parts)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file()?.set_len(length)
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        self.file()?.preallocate(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file()?.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::{OPEN_AT_ONCE, OpenFiles};
    use crate::RealFileSystem;
    use crate::fs::File;

    #[test]
    fn descriptors_are_bounded_and_pinned_files_stay_open() {
        let directory = tempfile::tempdir().expect("a directory");
        let pool = OpenFiles::new(Arc::new(RealFileSystem));
        let open = |name: usize| {
            let path = directory.path().join(name.to_string());
            std::fs::write(&path, name.to_string()).expect("written");
            pool.handle(&path, None)
        };
        let handles: Vec<_> = (0..OPEN_AT_ONCE * 2).map(open).collect();
        handles[0].pin().expect("there");
        for _ in 0..2 {
            for (name, handle) in handles.iter().enumerate() {
                assert_eq!(handle.len().expect("there"), name.to_string().len() as u64);
            }
        }
        let is_open = |number: usize| handles[number].file.lock().is_some();
        assert_eq!(
            (0..handles.len()).filter(|number| is_open(*number)).count(),
            OPEN_AT_ONCE + 1
        );
        assert!(is_open(0));
        handles[0].unpin();
        let _ = handles[1].len();
        assert!(handles[0].len().is_ok() && pool.handle(Path::new("/nowhere"), None).len().is_err());
    }
}
