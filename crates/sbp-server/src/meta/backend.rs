//! Runs the embedded database on the log's file system interface, so that simulated power losses hit both.

use std::io;
use std::sync::Arc;

use sbp_log::File;

/// One database file.
#[derive(Debug)]
pub(crate) struct FileBackend {
    file: Arc<dyn File>,
}

impl FileBackend {
    pub(crate) fn new(file: Arc<dyn File>) -> Self {
        Self { file }
    }
}

// Locks are left at their default, "unsupported": the data directory's own lock covers this file too.
impl redb::StorageBackend for FileBackend {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.file.write_at(offset, data)
    }
}
