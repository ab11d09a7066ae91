//! The room that the disk has. A thread of its own asks for it: who shows it does not wait for a disk that is gone.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_log::{FileSystem, Space};

use crate::regular::Regular;

/// The room of the file system with the data directory, as it last told it.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    told: Arc<Told>,
    _asking: Regular,
}

#[derive(Debug)]
struct Told {
    files: Arc<dyn FileSystem>,
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Zeros until it has told something.
    space: Space,
    /// When it was asked for the answer that it gave; before any, when this was made.
    at: Instant,
    /// Whether the last question was answered.
    is_answered: bool,
}

/// The room at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownSpace {
    pub(crate) space: Space,
    /// How long ago that was so.
    pub(crate) age: Duration,
}

impl fmt::Display for KnownSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes free {} s ago", self.space.free, self.age.as_secs())
    }
}

impl DiskSpace {
    /// Asks for the room of the directory's file system now, and then after each pause of this length.
    pub(crate) fn start(files: Arc<dyn FileSystem>, directory: &Path, pause: Duration) -> io::Result<Arc<Self>> {
        let told = Arc::new(Told {
            files,
            directory: directory.to_owned(),
            state: Mutex::new(State {
                space: Space::default(),
                at: Instant::now(),
                is_answered: true,
            }),
        });
        told.ask();
        let asked = Arc::clone(&told);
        let _asking = Regular::start("sbp-disk-space", pause, move || asked.ask())?;
        Ok(Arc::new(Self { told, _asking }))
    }

    /// What is known of it. Waits for nothing.
    pub(crate) fn now(&self) -> KnownSpace {
        let state = self.told.state.lock();
        KnownSpace {
            space: state.space,
            age: state.at.elapsed(),
        }
    }
}

impl Told {
    fn ask(&self) {
        let at = Instant::now();
        let answer = self.files.space(&self.directory);
        let mut state = self.state.lock();
        let was_answered = std::mem::replace(&mut state.is_answered, answer.is_ok());
        match answer {
            Ok(space) => (state.space, state.at) = (space, at),
            Err(error) if was_answered => {
                let directory = self.directory.display();
                tracing::warn!(%directory, %error, "the disk does not tell how much room it has");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use sbp_sim::{Operation, SimFileSystem};

    use super::*;

    const RARELY: Duration = Duration::from_secs(3_600);

    #[test]
    fn what_cannot_be_asked_for_stays_as_it_was_and_grows_old() {
        let disk = SimFileSystem::new();
        disk.set_capacity(Some(1_000));
        let space = DiskSpace::start(Arc::new(disk.clone()), Path::new("/data"), RARELY).expect("a thread");
        let expected = Space {
            free: 1_000,
            size: 1_000,
        };
        assert_eq!(space.now().space, expected);
        let at = space.told.state.lock().at;
        disk.fail(Operation::Space, 0, ErrorKind::StaleNetworkFileHandle);
        disk.set_capacity(Some(2_000));
        space.told.ask();
        assert_eq!(space.now().space, expected);
        assert_eq!(space.told.state.lock().at, at);
        space.told.ask();
        assert_eq!(space.now().space.size, 2_000);
        assert!(space.told.state.lock().at > at);
    }

    #[test]
    fn what_was_never_told_is_nothing() {
        let disk = SimFileSystem::new();
        disk.fail(Operation::Space, 0, ErrorKind::StaleNetworkFileHandle);
        let space = DiskSpace::start(Arc::new(disk), Path::new("/data"), RARELY).expect("a thread");
        assert_eq!(space.now().space, Space::default());
    }
}
