//! Metadata read from a copy of its file's bytes, so that the file stays as it is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::Database;
use sbp_locks::RwLock;
use xxhash_rust::xxh3::xxh3_128;

use super::redb_store::{load, prepare};
use super::{MetadataChange, MetadataError};

/// What a copy of the file holds.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Everything stored, as changes to an empty state.
    pub(crate) changes: Vec<MetadataChange>,
    /// Whether the newest transaction in it is whole. If not, what is here is the one before.
    pub(crate) newest: bool,
    /// Whether all checksums are right, and what counts the used pages too.
    pub(crate) whole: bool,
}

/// Reads the bytes of a metadata file and checks all their checksums.
///
/// # Errors
///
/// [`MetadataError`] if neither the newest transaction nor the one before is whole, or a record cannot be read.
pub(crate) fn read_copy(bytes: Vec<u8>) -> Result<Copied, MetadataError> {
    // The database asserts about structures that a damaged file may break.
    let read = std::panic::catch_unwind(|| read(bytes));
    read.unwrap_or_else(|_panic| {
        let what = "the database: its structure is broken".to_owned();
        Err(MetadataError::Unreadable { what })
    })
}

fn read(bytes: Vec<u8>) -> Result<Copied, MetadataError> {
    let header = header_is_sound(&bytes);
    let fell_back = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&fell_back);
    let mut builder = Database::builder();
    builder.set_repair_callback(move |session| {
        // 0.0 says that the file was not closed, 0.3 that its newest transaction is not whole.
        if (0.1..0.5).contains(&session.progress()) {
            noted.store(true, Ordering::Relaxed);
        }
    });
    let mut database = builder.create_with_backend(Memory(RwLock::new(bytes)))?;
    let whole = database.check_integrity()? && header;
    prepare(&database)?;
    Ok(Copied {
        changes: load(&database)?,
        newest: !fell_back.load(Ordering::Relaxed),
        whole,
    })
}

/// Whether the file's header names the newer one of its two transactions, and both entries have the right checksum. The
/// database takes the one that is sound without a word, which may be the older one.
///
/// The header is written as a whole, within a sector: an interrupted write leaves the one before.
fn header_is_sound(bytes: &[u8]) -> bool {
    /// Where the byte is whose lowest bit says which entry is the newer one, behind the file's magic.
    const NEWER: usize = 9;
    const ENTRIES: [std::ops::Range<usize>; 2] = [64..192, 192..320];
    let transaction = |place: std::ops::Range<usize>| {
        let (entry, sum) = bytes.get(place)?.split_last_chunk::<16>()?;
        let id = entry.split_last_chunk::<8>()?.1;
        (xxh3_128(entry) == u128::from_le_bytes(*sum)).then_some(u64::from_le_bytes(*id))
    };
    let [first, second] = ENTRIES.map(transaction);
    match (first, second, bytes.get(NEWER)) {
        (Some(first), Some(second), Some(flags)) => (second > first) == (flags & 1 == 1),
        _ => false,
    }
}

/// A file in memory.
#[derive(Debug)]
struct Memory(RwLock<Vec<u8>>);

fn outside() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

fn place(offset: u64, length: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(|_| outside())?;
    Ok(start..start.checked_add(length).ok_or_else(outside)?)
}

impl redb::StorageBackend for Memory {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.read().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let bytes = self.0.read();
        let read = bytes.get(place(offset, out.len())?).ok_or_else(outside)?;
        out.copy_from_slice(read);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        // A damaged file may ask for any length.
        let mut bytes = self.0.write();
        let length = usize::try_from(len)
            .ok()
            .filter(|length| *length <= bytes.len().saturating_mul(4).max(64 << 20));
        bytes.resize(length.ok_or_else(outside)?, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut bytes = self.0.write();
        let written = bytes.get_mut(place(offset, data.len())?).ok_or_else(outside)?;
        written.copy_from_slice(data);
        Ok(())
    }
}
