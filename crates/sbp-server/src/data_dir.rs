//! The data directory of a server.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sbp_log::{FileSystem, LogConfig, RealFileSystem};

/// The beginning of a temporary directory's name; the process id and a random number follow.
const PREFIX: &str = "sbp-server-";
/// The file that a running server keeps locked.
const LOCK: &str = "lock";
/// A starting server locks its directory within this time.
const SURELY_LOCKED: Duration = Duration::from_secs(60);
/// The smallest segment size: the largest batch fits into it.
const LEAST_SEGMENT: u64 = 16 << 20;
/// A segment takes at most this part of the file system, and the reserve that part. The log holds a segment being
/// written, the next one and the reserve before it stores anything else.
const SEGMENT_PART: u64 = 16;
const RESERVE_PART: u64 = 64;

/// A data directory: the user's, or a temporary one that the server made.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    temporary: bool,
}

impl DataDir {
    /// The directory of a configuration. A temporary one is made here; the user's is made by the log, durably.
    pub(crate) fn new(path: Option<&Path>) -> io::Result<Self> {
        match path {
            Some(path) => Ok(Self {
                path: path.to_owned(),
                temporary: false,
            }),
            None => {
                let parent = std::env::temp_dir();
                remove_abandoned(&parent, SURELY_LOCKED);
                Ok(Self {
                    path: make_temporary(&parent)?,
                    temporary: true,
                })
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// Deletes the directory with its contents if it is temporary.
    pub(crate) fn clean_up(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.temporary) {
            fs::remove_dir_all(&self.path)
        } else {
            Ok(())
        }
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Deletes it if the start of the server has failed.
        if let Err(error) = self.clean_up() {
            tracing::warn!(%error, path = %self.path.display(), "a temporary directory was left behind");
        }
    }
}

/// Makes a directory that only this user can read.
fn make_temporary(parent: &Path) -> io::Result<PathBuf> {
    for _attempt in 0..16 {
        let path = parent.join(format!("{PREFIX}{}-{:016x}", std::process::id(), fastrand::u64(..)));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "no free name for a temporary directory",
    ))
}

/// Removes temporary directories of killed servers: those of this user that are not locked and too old for their server
/// to be about to lock them.
fn remove_abandoned(parent: &Path, age: Duration) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !is_ours {
            continue;
        }
        match remove_if_abandoned(&entry.path(), age) {
            Ok(true) => {
                tracing::info!(path = %entry.path().display(), "removed the temporary directory of a killed server")
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, path = %entry.path().display(), "cannot check or remove a temporary directory")
            }
        }
    }
}

/// Returns whether the directory was removed. The lock is held until it is gone.
fn remove_if_abandoned(path: &Path, age: Duration) -> io::Result<bool> {
    let about = fs::symlink_metadata(path)?;
    let own = rustix::process::geteuid().as_raw() == about.uid();
    if !about.is_dir() || !own {
        return Ok(false);
    }
    let lock = path.join(LOCK);
    let made = fs::symlink_metadata(&lock)?;
    let old = made.modified()?.elapsed().is_ok_and(|since| since >= age);
    if !made.is_file() || !old {
        return Ok(false);
    }
    match RealFileSystem.lock(&lock) {
        Ok(held) => {
            fs::remove_dir_all(path)?;
            drop(held);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reduces segment and reserve sizes for a small file system. The directory need not exist yet.
pub(crate) fn fit_to_disk(log: &mut LogConfig) {
    let there = log.directory.ancestors().find(|path| path.is_dir());
    let disk = rustix::fs::statvfs(there.unwrap_or_else(|| Path::new(".")));
    // If the system does not tell the size of the file system, it is taken to be large.
    if let Ok(disk) = disk {
        fit_to(log, disk.f_blocks.saturating_mul(disk.f_frsize));
    }
}

fn fit_to(log: &mut LogConfig, disk_bytes: u64) {
    const BLOCK: u64 = 4_096;
    let part = |part: u64| disk_bytes / part / BLOCK * BLOCK;
    log.segment_bytes = log.segment_bytes.min(part(SEGMENT_PART).max(LEAST_SEGMENT));
    log.reserve_bytes = log.reserve_bytes.min(part(RESERVE_PART));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_in_advance_fits_to_the_disk() {
        const MIB: u64 = 1 << 20;
        // The disk; segment and reserve of a directory that stays, and of a temporary one.
        let table = [
            (32, (16, 512), (16, 512)),
            (64, (16, 1_024), (16, 1_024)),
            (512, (32, 8_192), (32, 1_024)),
            (1_024, (64, 16_384), (32, 1_024)),
            (1 << 20, (64, 16_384), (32, 1_024)),
        ];
        for (disk, lasting, temporary) in table {
            let sizes = |mut log: LogConfig| {
                fit_to(&mut log, disk * MIB);
                assert!(log.segment_bytes.is_multiple_of(4_096) && log.reserve_bytes <= log.segment_bytes / 2);
                (log.segment_bytes / MIB, log.reserve_bytes / 1_024)
            };
            assert_eq!(sizes(LogConfig::new("/x")), lasting, "{disk} MiB");
            assert_eq!(sizes(LogConfig::temporary("/x")), temporary, "{disk} MiB");
        }
    }

    #[test]
    fn only_what_nobody_has_locked_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let dead = make("sbp-server-1-dead");
        fs::write(dead.join(LOCK), b"").unwrap();
        fs::write(dead.join("segment-0000000000000001"), b"x").unwrap();
        let alive = make("sbp-server-2-alive");
        let held = RealFileSystem.lock(&alive.join(LOCK)).unwrap();
        let starting = make("sbp-server-3-starting");
        let foreign = make("somebody-else");
        fs::write(foreign.join(LOCK), b"").unwrap();
        let linked = parent.path().join("sbp-server-4-link");
        std::os::unix::fs::symlink(&foreign, &linked).unwrap();
        // Everything is too young.
        remove_abandoned(parent.path(), Duration::from_secs(3_600));
        assert!(dead.exists());
        remove_abandoned(parent.path(), Duration::ZERO);
        assert!(!dead.exists(), "its owner is gone");
        assert!(alive.exists() && starting.exists() && foreign.join(LOCK).exists() && linked.is_symlink());
        drop(held);
        remove_abandoned(parent.path(), Duration::ZERO);
        assert!(!alive.exists());
    }

    #[test]
    fn a_temporary_directory_goes_and_the_users_stays() {
        let mut temporary = DataDir::new(None).unwrap();
        let path = temporary.path().to_owned();
        fs::write(path.join("file"), b"x").unwrap();
        temporary.clean_up().unwrap();
        assert!(!path.exists());
        let own = tempfile::tempdir().unwrap();
        drop(DataDir::new(Some(own.path())).unwrap());
        assert!(own.path().exists());
    }
}
