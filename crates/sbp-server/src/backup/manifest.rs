//! What a backup says of itself. It is written last: a directory without it is no backup.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sbp_log::{BackupFile, DamagedInterval, FileSystem, LogBackup, OpenMode, RealFileSystem};
use sbp_types::{Offset, StreamId};
use serde::{Deserialize, Serialize};

use super::{BackupError, at};
use crate::storage::Stored;

/// The manifest's name in a backup.
pub(super) const MANIFEST: &str = "manifest.json";
/// The newest form of a manifest that this version can read.
const FORMAT: u32 = 1;

/// The point that a backup represents, and its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupManifest {
    /// The form of the manifest.
    pub format: u32,
    /// The version of the software that made it.
    pub version: String,
    /// When it was made, in milliseconds since 1970.
    pub made_at_ms: u64,
    /// The last group of the log in it.
    pub last_group: u64,
    /// Streams, ordered by their ids.
    pub streams: Vec<ManifestStream>,
    /// Files.
    pub files: Vec<ManifestFile>,
}

/// A stream in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ManifestStream {
    /// The stream's id.
    pub id: i64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// One past its last record in the backup.
    pub end: i64,
    /// Records that were damaged before the backup was made: offsets from, and to.
    pub damaged: Vec<(i64, i64)>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ManifestFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The first byte that is summed, and the byte behind the last.
    pub summed: (u64, u64),
    /// Their CRC-32C.
    pub crc32c: u32,
    /// Whether it was linked and not copied.
    pub linked: bool,
}

impl BackupManifest {
    pub(super) fn new(log: LogBackup, stored: &Stored) -> Self {
        let mut ends: HashMap<StreamId, Offset> = HashMap::new();
        let held = stored.held.iter();
        let held = held.map(|held| (held.key, held.end.unwrap_or(held.start)));
        for (key, end) in log.ends.iter().copied().chain(held) {
            let known = ends.entry(key.stream).or_default();
            *known = end.max(*known);
        }
        let mut damaged: HashMap<StreamId, Vec<(i64, i64)>> = HashMap::new();
        for DamagedInterval { key, from, to } in &log.damaged {
            damaged.entry(key.stream).or_default().push((from.0, to.0));
        }
        let mut streams: Vec<_> = stored
            .state
            .streams()
            .map(|stream| ManifestStream {
                id: stream.id.0,
                name: stream.name.as_ref().map(ToString::to_string),
                end: ends.get(&stream.id).copied().unwrap_or_default().0,
                damaged: damaged.remove(&stream.id).unwrap_or_default(),
            })
            .collect();
        streams.sort_by_key(|stream| stream.id);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            made_at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            last_group: log.last_group,
            streams,
            files: log.files.into_iter().map(ManifestFile::from).collect(),
        }
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), BackupError> {
        let path = directory.join(MANIFEST);
        let text = serde_json::to_vec_pretty(self).map_err(|error| at(&path)(error.into()))?;
        let written = RealFileSystem.open(&path, OpenMode::Truncate).and_then(|file| {
            file.write_at(0, &text)?;
            file.sync_data()
        });
        written.map_err(at(&path))
    }

    pub(super) fn read(directory: &Path) -> Result<Self, BackupError> {
        let none = |reason: String| BackupError::NoBackup {
            path: directory.to_owned(),
            reason,
        };
        let text = fs::read(directory.join(MANIFEST)).map_err(|error| none(format!("{MANIFEST}: {error}")))?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| none(format!("{MANIFEST}: {error}")))?;
        let is_plain = |file: &ManifestFile| {
            Path::new(&file.name)
                .file_name()
                .is_some_and(|name| name == &*file.name)
        };
        if manifest.format > FORMAT || !manifest.files.iter().all(is_plain) {
            return Err(none(format!(
                "{MANIFEST} has another form than version {} knows",
                env!("CARGO_PKG_VERSION")
            )));
        }
        Ok(manifest)
    }
}

impl From<BackupFile> for ManifestFile {
    fn from(file: BackupFile) -> Self {
        let BackupFile {
            name,
            bytes,
            summed,
            crc32c,
            linked,
        } = file;
        Self {
            name,
            bytes,
            summed,
            crc32c,
            linked,
        }
    }
}

impl ManifestFile {
    /// Whether these are the file's bytes, as far as it is summed.
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        let file = BackupFile {
            name: self.name.clone(),
            bytes: self.bytes,
            summed: self.summed,
            crc32c: self.crc32c,
            linked: self.linked,
        };
        file.is(bytes)
    }
}
