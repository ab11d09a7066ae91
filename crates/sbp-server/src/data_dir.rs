//! The directory a server lives in.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A data directory: the user's, or a temporary one of our own.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    temporary: bool,
}

impl DataDir {
    /// The directory of a configuration. The user's own is made by the log, durably.
    pub(crate) fn new(path: Option<&Path>) -> io::Result<Self> {
        match path {
            Some(path) => Ok(Self {
                path: path.to_owned(),
                temporary: false,
            }),
            None => Ok(Self {
                path: make_temporary()?,
                temporary: true,
            }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// Deletes a temporary directory with all that is in it; leaves any other as it is.
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
        // Reached where a start fails half-way.
        if let Err(error) = self.clean_up() {
            tracing::warn!(%error, path = %self.path.display(), "a temporary directory was left behind");
        }
    }
}

/// Makes a directory that nobody else can look into.
fn make_temporary() -> io::Result<PathBuf> {
    let parent = std::env::temp_dir();
    for _attempt in 0..16 {
        let path = parent.join(format!("sbp-server-{}-{:016x}", std::process::id(), fastrand::u64(..)));
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

#[cfg(test)]
mod tests {
    use super::*;

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
