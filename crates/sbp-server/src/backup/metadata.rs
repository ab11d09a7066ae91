//! Reads metadata that a server may be changing.

use std::fs;
use std::io::{Read, Seek};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{BackupError, at};
use crate::meta::{self, MetadataChange, read_copy};
use crate::storage::{Stored, install, metadata_error};

/// The part of the file that names the newest transaction. It is written as a whole when a transaction ends.
const HEADER: usize = 4_096;
/// For how long reads that met a change are repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// If the file has stayed the same for this long, its newest transaction was interrupted, and the one before counts.
const INTERRUPTED: Duration = Duration::from_secs(2);
/// How long to wait before the next read.
const PAUSE: Duration = Duration::from_millis(5);

/// Everything in the metadata at one moment between this call and its return.
///
/// No transaction writes over a page of the last one that was completed. So if none was completed while the file was read,
/// that one is whole in what was read; every page of it has a checksum, which says so.
pub(super) fn read_in_use(directory: &Path) -> Result<(Vec<MetadataChange>, Stored), BackupError> {
    let path = directory.join(meta::FILE);
    let begun = Instant::now();
    let (mut seen, mut since) = (Vec::new(), begun);
    loop {
        let (bytes, same) = read_once(&path).map_err(at(&path))?;
        let header = bytes.get(..HEADER).unwrap_or_default().to_vec();
        if header != seen {
            (seen, since) = (header, Instant::now());
        }
        let interrupted = since.elapsed() >= INTERRUPTED;
        match read_copy(bytes) {
            Ok(copied) if same && ((copied.newest && copied.whole) || interrupted) => {
                let stored = install(copied.changes.clone());
                return Ok((copied.changes, stored));
            }
            Ok(_) => {}
            Err(error) if (same && interrupted) || begun.elapsed() >= PATIENCE => {
                return Err(BackupError::Directory(metadata_error(directory, error)));
            }
            Err(_) => {}
        }
        if begun.elapsed() >= PATIENCE {
            return Err(BackupError::Restless {
                path: directory.to_owned(),
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reads the file, and says whether no transaction was completed meanwhile.
fn read_once(path: &Path) -> std::io::Result<(Vec<u8>, bool)> {
    let mut file = fs::File::open(path)?;
    let mut before = [0; HEADER];
    file.read_exact(&mut before)?;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    file.rewind()?;
    let mut after = [0; HEADER];
    file.read_exact(&mut after)?;
    let same = before == after && bytes.starts_with(&before);
    Ok((bytes, same))
}
