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
/// No transaction writes over a page of the last one that was completed, and every page has a checksum in the one above it. So
/// the transaction that the header named when it was read is whole in what was read, unless so many others were completed
/// meanwhile that one of its pages was used again; then a checksum is wrong, and the file is read once more.
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
            Ok(copied) if (copied.newest && copied.whole) || (same && interrupted) => {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use sbp_log::{FileSystem, RealFileSystem};
    use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId};

    use super::read_in_use;
    use crate::meta::{MetadataChange, MetadataStore, RedbStore};
    use crate::range::{CopyRecord, HeldRange, ReplicaSet};

    /// Enough for a file of some MiB.
    const RANGES: i32 = 30_000;

    #[test]
    fn metadata_is_read_while_one_change_follows_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let files: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
        let mut store = RedbStore::open(&files, directory.path()).unwrap();
        let held = |range| {
            MetadataChange::Hold(HeldRange {
                key: RangeKey {
                    stream: StreamId(1),
                    range: RangeIndex(range),
                },
                epoch: Epoch(2),
                start: Offset(0),
                end: None,
                set: ReplicaSet::alone(),
                copy: CopyRecord::default(),
            })
        };
        store.commit(&(0..RANGES).map(held).collect::<Vec<_>>()).unwrap();
        let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1.. {
                    store.commit(&[MetadataChange::Started(number)]).unwrap();
                    committed.store(number, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
            for _ in 0..10 {
                let before = committed.load(Ordering::SeqCst);
                let read = read_in_use(directory.path());
                stop.store(read.is_err(), Ordering::SeqCst);
                let (_, stored) = read.unwrap();
                let after = committed.load(Ordering::SeqCst) + 1;
                assert!(
                    (before..=after).contains(&stored.starts),
                    "{before} {} {after}",
                    stored.starts
                );
                assert_eq!(stored.held.len(), usize::try_from(RANGES).unwrap());
            }
            stop.store(true, Ordering::SeqCst);
        });
        assert!(committed.load(Ordering::SeqCst) > 10, "it was changed meanwhile");
    }
}
