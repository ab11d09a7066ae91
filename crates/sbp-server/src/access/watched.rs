//! A file that is read again while the server runs, when it has changed.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::OFlags;
use sbp_locks::Mutex;

use super::error::AccessError;

/// The most bytes of such a file.
const MOST: u64 = 64 << 20;

/// What of a file changes with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    changed: Option<SystemTime>,
    status_changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        Some(Self {
            inode: about.ino(),
            length: about.len(),
            changed: about.modified().ok(),
            status_changed: (about.ctime(), about.ctime_nsec()),
        })
    }
}

/// A file, and what it looked like when it was last read.
#[derive(Debug)]
pub(super) struct Watched {
    path: PathBuf,
    /// `None`: it could not be read.
    stamp: Mutex<Option<Stamp>>,
    /// How often it was looked at since it was read first.
    looks: AtomicU64,
}

impl Watched {
    /// Reads the file for the first time.
    pub(super) fn open<T>(
        path: &Path,
        read: impl FnOnce(&Path) -> Result<T, AccessError>,
    ) -> Result<(Self, T), AccessError> {
        // Before the content, so that a change in between is seen as one.
        let stamp = Mutex::new(Stamp::of(path));
        let content = read(path)?;
        let path = path.to_owned();
        let looks = AtomicU64::new(0);
        Ok((Self { path, stamp, looks }, content))
    }

    /// How often it was looked at since it was read first.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    /// Reads the file again if it has changed. One that cannot be read is tried again each time, one that cannot be
    /// understood is told once.
    pub(super) fn again<T>(
        &self,
        read: impl FnOnce(&Path) -> Result<T, AccessError>,
    ) -> Result<Option<T>, AccessError> {
        let now = Stamp::of(&self.path);
        let is_same = std::mem::replace(&mut *self.stamp.lock(), now) == now;
        let content = if is_same { Ok(None) } else { read(&self.path).map(Some) };
        self.looks.fetch_add(1, Ordering::Release);
        content.inspect_err(|error| {
            // The file may be as it is now for ever, and hold a revocation: that the system lacked a descriptor for a
            // moment must not keep it from being read.
            if matches!(error, AccessError::Io { .. }) {
                *self.stamp.lock() = None;
            }
        })
    }
}

/// The content of a file that says who is let in, which nobody but its owner may change.
pub(super) fn read_guarded(path: &Path) -> Result<String, AccessError> {
    // A pipe that nobody writes to would be waited for.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(AccessError::io("read", path))?;
    let about = file.metadata().map_err(AccessError::io("read", path))?;
    if !about.is_file() {
        let other = io::Error::other("it is no regular file");
        return Err(AccessError::io("read", path)(other));
    }
    if about.permissions().mode() & 0o022 != 0 {
        return Err(AccessError::WritableByOthers { path: path.to_owned() });
    }
    let mut text = String::new();
    let read = file.take(MOST + 1).read_to_string(&mut text);
    read.map_err(AccessError::io("read", path))?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MOST) {
        let too_large = io::Error::other(format!("it has more than {MOST} bytes"));
        return Err(AccessError::io("read", path)(too_large));
    }
    Ok(text)
}
