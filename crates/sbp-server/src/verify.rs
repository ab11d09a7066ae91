//! Checks a data directory that no server uses: every checksum of log and metadata, and that they belong together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sbp_log::{DamagedInterval, FileSystem, OpenMode, RealFileSystem, Recovered, Verification, Verified};
use sbp_types::{Offset, RangeKey, StreamId};

use crate::error::StartError;
use crate::meta::{self, Copied, read_copy};
use crate::storage::{Stored, check_together, install, log_error};

/// The file that says what the log is, and how often it was started.
pub(crate) const SUPERBLOCK: &str = "superblock";

/// What a check of a data directory found.
#[derive(Clone, Debug, Default)]
pub struct DirectoryReport {
    /// Files that hold records.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Groups of batches that are whole.
    pub groups: u64,
    /// Batches that are whole.
    pub batches: u64,
    /// Streams in the metadata.
    pub streams: u64,
    /// What is damaged. Empty: every byte that means anything is what was written.
    pub faults: Vec<DirectoryFault>,
    /// What is as a crash leaves it, and no damage.
    pub notes: Vec<String>,
}

/// A damaged place of a data directory.
#[derive(Clone, Debug)]
pub struct DirectoryFault {
    /// The file.
    pub file: PathBuf,
    /// The first byte of the place.
    pub from: u64,
    /// The byte behind it.
    pub to: u64,
    /// What is wrong there.
    pub what: String,
    /// The records that cannot be read.
    pub lost: Vec<LostRecords>,
    /// Whether records may be lost of which nothing tells the offsets.
    pub more_lost: bool,
    /// Whether the server knew of it: it answers reads of these records with 2502, and serves the others.
    pub known: bool,
}

/// Records of a stream that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecords {
    /// The stream's id.
    pub stream: i64,
    /// Its name, if it has one and the metadata can be read.
    pub name: Option<String>,
    /// The range within the stream.
    pub range: i32,
    /// The first offset.
    pub from: i64,
    /// The first offset behind them.
    pub to: i64,
}

/// Checks every checksum in a data directory, and changes nothing. `progress` is told the bytes read so far and all
/// bytes there are.
///
/// # Errors
///
/// [`StartError::DirectoryLocked`] if a server uses the directory, and other errors if it cannot be read at all. Damage
/// is no error, but in the report.
pub fn verify(directory: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<DirectoryReport, StartError> {
    verify_on(&RealFileSystem, directory, progress)
}

pub(crate) fn verify_on(
    files: &dyn FileSystem,
    directory: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<DirectoryReport, StartError> {
    let failed = |error| log_error(directory, error);
    let verification = Verification::begin(files, directory)
        .map_err(failed)?
        .knowing(begins(files, directory));
    let (mut done, all) = (0, verification.bytes());
    progress(done, all);
    let log = verification.run(&mut |bytes| {
        done += bytes;
        progress(done, all);
    });
    let log = log.map_err(failed)?;
    let mut report = DirectoryReport::default();
    let metadata = read_metadata(files, directory, &log, &mut report);
    let names = metadata.as_ref().map(names).unwrap_or_default();
    report.add_log(log, &names);
    Ok(report)
}

/// Where the ranges of a directory begin, as its metadata say, if those can be read.
fn begins(files: &dyn FileSystem, directory: &Path) -> Vec<(RangeKey, Offset)> {
    let copied = contents(files, &directory.join(meta::FILE))
        .ok()
        .and_then(|bytes| read_copy(bytes).ok());
    let stored = copied.map(|copied| install(copied.changes));
    let held = stored.into_iter().flat_map(|stored| stored.held);
    held.map(|held| (held.key, held.start)).collect()
}

fn names(metadata: &Stored) -> BTreeMap<StreamId, String> {
    let streams = metadata.state.streams();
    let named = streams.filter_map(|stream| Some((stream.id, stream.name.as_ref()?.to_string())));
    named.collect()
}

/// Reads the metadata, and adds what is wrong with it to the report; `None` if it cannot be read.
fn read_metadata(
    files: &dyn FileSystem,
    directory: &Path,
    log: &Verified,
    report: &mut DirectoryReport,
) -> Option<Stored> {
    let path = directory.join(meta::FILE);
    let bytes = match contents(files, &path) {
        Ok(bytes) => bytes,
        Err(error) => {
            // A server that died before it wrote any has no records either.
            if !log.ends.is_empty() || error.kind() != std::io::ErrorKind::NotFound {
                report.fault(path, 0, format!("the metadata cannot be read: {error}"));
            }
            return None;
        }
    };
    let length = bytes.len() as u64;
    let copied = match read_copy(bytes) {
        Ok(copied) => copied,
        Err(error) => {
            report.fault(path, length, format!("the metadata cannot be read: {error}"));
            return None;
        }
    };
    let Copied { changes, newest, whole } = copied;
    if !whole {
        report.fault(
            path.clone(),
            length,
            "the metadata: a checksum is wrong; the records in it can be read".to_owned(),
        );
    } else if !newest {
        let note = "its newest change was interrupted, and is undone";
        report.notes.push(format!("{}: {note}", path.display()));
    }
    let stored = install(changes);
    report.streams = stored.state.stream_count() as u64;
    let recovered = Recovered {
        ranges: log.ends.iter().map(|(key, _)| (*key, Default::default())).collect(),
        // As the next start counts.
        boot_id: log.starts.saturating_add(1),
        ..Recovered::default()
    };
    // Without the superblock nobody knows how often the log was started, and so which of the two is older.
    let is_counted = !log.faults.iter().any(|fault| fault.file.ends_with(SUPERBLOCK));
    if is_counted
        && let Err(error) = check_together(
            directory,
            &stored.state,
            (&stored.held, &stored.let_go),
            stored.starts,
            &recovered,
        )
    {
        report.fault(path, length, error.to_string());
    }
    Some(stored)
}

fn contents(files: &dyn FileSystem, path: &Path) -> std::io::Result<Vec<u8>> {
    let file = files.open(path, OpenMode::Reading)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(std::io::Error::other)?];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

impl DirectoryFault {
    /// A fault of a whole file of `to` bytes.
    pub(crate) fn of_file(file: PathBuf, to: u64, what: String) -> Self {
        Self {
            file,
            from: 0,
            to,
            what,
            lost: Vec::new(),
            more_lost: false,
            known: false,
        }
    }
}

impl DirectoryReport {
    fn fault(&mut self, file: PathBuf, to: u64, what: String) {
        self.faults.push(DirectoryFault::of_file(file, to, what));
    }

    fn add_log(&mut self, log: Verified, names: &BTreeMap<StreamId, String>) {
        (self.files, self.bytes) = (log.files, log.bytes);
        (self.groups, self.batches) = (log.groups, log.batches);
        self.notes.extend(log.notes);
        let lost = |lost: DamagedInterval| {
            let DamagedInterval { key, from, to } = lost;
            let RangeKey { stream, range } = key;
            LostRecords {
                stream: stream.0,
                name: names.get(&stream).cloned(),
                range: range.0,
                from: from.0,
                to: to.0,
            }
        };
        let faults = log.faults.into_iter().map(|fault| DirectoryFault {
            file: fault.file,
            from: fault.from,
            to: fault.to,
            what: fault.what,
            lost: fault.lost.into_iter().map(lost).collect(),
            more_lost: fault.more_lost,
            known: fault.known,
        });
        self.faults.extend(faults);
    }
}
