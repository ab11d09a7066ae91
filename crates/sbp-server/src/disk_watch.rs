//! A disk that does not answer: operations that have begun and not returned.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_log::{File, FileLock, FileSystem, OpenMode, Space};

use crate::regular::Regular;
use crate::running_time::RunningTime;

/// How many times within its patience the watch looks at what is under way.
const LOOKS: u32 = 10;

const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// So that little of a time in which the process was stopped counts.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Knows which operations of the disk are under way, and for how long. Time in which this process did not run does not count:
/// the disk may have answered then.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    /// From when on an operation that has not returned is a problem.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    time: RunningTime,
    next: u64,
    /// By number, and so the oldest first.
    under_way: BTreeMap<u64, UnderWay>,
}

#[derive(Clone, Debug)]
struct UnderWay {
    /// The running time when it began.
    began: Duration,
    what: &'static str,
    path: Arc<Path>,
    is_told: bool,
}

/// An operation that has been under way for too long.
#[derive(Clone, Debug)]
pub(crate) struct Hung {
    what: &'static str,
    path: Arc<Path>,
    /// How long it has been under way.
    for_now: Duration,
}

impl fmt::Display for Hung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the disk does not answer: to {} {} has taken {:.0} s so far and has not returned; what waits for it waits on. \
             Look at the disk, and at the log of the machine's kernel (dmesg)",
            self.what,
            self.path.file_name().unwrap_or_default().display(),
            self.for_now.as_secs_f64(),
        )
    }
}

impl DiskWatch {
    /// A watch that has to be [kept](Self::keep).
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        Self::begun_at(Instant::now(), patience)
    }

    fn begun_at(now: Instant, patience: Duration) -> Arc<Self> {
        let state = Mutex::new(State {
            time: RunningTime::new(now, pause(patience)),
            next: 0,
            under_way: BTreeMap::new(),
        });
        Arc::new(Self { patience, state })
    }

    /// A thread that logs operations that hang, once each.
    pub(crate) fn keep(self: &Arc<Self>) -> io::Result<Regular> {
        let watch = Arc::clone(self);
        Regular::start("sbp-disk-watch", pause(self.patience), move || {
            watch.look(Instant::now())
        })
    }

    /// The same files, watched.
    pub(crate) fn around(self: &Arc<Self>, files: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
        let watch = Arc::clone(self);
        Arc::new(WatchedFiles { files, watch })
    }

    /// For how long the oldest operation has been under way; zero if none is.
    pub(crate) fn wait(&self) -> Duration {
        self.state
            .lock()
            .oldest(Instant::now())
            .map_or(Duration::ZERO, |(_, so_far)| so_far)
    }

    /// The oldest operation, if it has been under way for too long.
    pub(crate) fn hung(&self) -> Option<Hung> {
        self.hung_at(Instant::now())
    }

    /// How much of the time until now, which began so long ago, this process ran.
    pub(crate) fn ran_for(&self, took: Duration) -> Duration {
        let now = Instant::now();
        let began = now.checked_sub(took).unwrap_or(now);
        self.state.lock().time.within(began, now)
    }

    fn hung_at(&self, now: Instant) -> Option<Hung> {
        let state = self.state.lock();
        let (oldest, for_now) = state.oldest(now)?;
        (for_now > self.patience).then(|| Hung {
            what: oldest.what,
            path: Arc::clone(&oldest.path),
            for_now,
        })
    }

    fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        state.time.go_on(now);
        let ran = state.time.at(now);
        let hung = state.under_way.values_mut().filter(|one| !one.is_told);
        for one in hung.take_while(|one| ran.saturating_sub(one.began) > self.patience) {
            one.is_told = true;
            let seconds = ran.saturating_sub(one.began).as_secs_f64();
            let (operation, file) = (one.what, one.path.display());
            tracing::error!(operation, %file, seconds, "the disk does not answer");
        }
    }

    /// Watches a question for the room of this directory's disk that goes past the [files](Self::around).
    pub(crate) fn while_asking_for_room<T>(&self, directory: &Path, operation: impl FnOnce() -> T) -> T {
        self.during(word::SPACE, &Arc::from(directory), operation)
    }

    fn during<T>(&self, what: &'static str, path: &Arc<Path>, operation: impl FnOnce() -> T) -> T {
        let number = self.begin(Instant::now(), what, path);
        let outcome = operation();
        self.end(Instant::now(), number);
        outcome
    }

    fn begin(&self, now: Instant, what: &'static str, path: &Arc<Path>) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        let under_way = UnderWay {
            began: state.time.at(now),
            what,
            path: Arc::clone(path),
            is_told: false,
        };
        state.under_way.insert(number, under_way);
        number
    }

    fn end(&self, now: Instant, number: u64) {
        let mut state = self.state.lock();
        let (ended, ran) = (state.under_way.remove(&number), state.time.at(now));
        drop(state);
        if let Some(one) = ended.filter(|one| one.is_told) {
            let seconds = ran.saturating_sub(one.began).as_secs_f64();
            let (operation, file) = (one.what, one.path.display());
            tracing::warn!(operation, %file, seconds, "the disk answers again");
        }
    }
}

impl State {
    /// The oldest operation, and for how long it has been under way.
    fn oldest(&self, now: Instant) -> Option<(&UnderWay, Duration)> {
        let oldest = self.under_way.values().next()?;
        Some((oldest, self.time.at(now).saturating_sub(oldest.began)))
    }
}

/// How long the watch waits between two looks.
fn pause(patience: Duration) -> Duration {
    (patience / LOOKS).clamp(LEAST_PAUSE, LONGEST_PAUSE)
}

/// The words for operations, as they follow "to".
mod word {
    pub(super) const OPEN: &str = "open";
    pub(super) const RENAME: &str = "rename";
    pub(super) const LINK: &str = "link";
    pub(super) const REMOVE: &str = "remove";
    pub(super) const LIST: &str = "list";
    pub(super) const MAKE: &str = "make";
    pub(super) const SYNC: &str = "sync";
    pub(super) const READ: &str = "read";
    pub(super) const WRITE: &str = "write";
    pub(super) const RESIZE: &str = "resize";
    pub(super) const RESERVE: &str = "reserve room for";
    pub(super) const SPACE: &str = "tell the room of";
}

/// Files whose operations are watched.
#[derive(Debug)]
struct WatchedFiles {
    files: Arc<dyn FileSystem>,
    watch: Arc<DiskWatch>,
}

impl WatchedFiles {
    fn during<T>(&self, what: &'static str, path: &Path, operation: impl FnOnce(&dyn FileSystem) -> T) -> T {
        self.watch.during(what, &Arc::from(path), || operation(&*self.files))
    }
}

impl FileSystem for WatchedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.during(word::OPEN, path, |files| files.open(path, mode))?;
        let (watch, path) = (Arc::clone(&self.watch), Arc::from(path));
        Ok(Arc::new(WatchedFile { file, watch, path }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.during(word::RENAME, from, |files| files.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.during(word::LINK, from, |files| files.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.during(word::REMOVE, path, |files| files.remove(path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.during(word::LIST, directory, |files| files.list(directory))
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        self.during(word::MAKE, directory, |files| files.create_dir_all(directory))
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.during(word::SYNC, directory, |files| files.sync_dir(directory))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.during(word::OPEN, path, |files| files.lock(path))
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        self.during(word::SPACE, directory, |files| files.space(directory))
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    watch: Arc<DiskWatch>,
    path: Arc<Path>,
}

impl WatchedFile {
    fn during<T>(&self, what: &'static str, operation: impl FnOnce(&dyn File) -> T) -> T {
        self.watch.during(what, &self.path, || operation(&*self.file))
    }
}

impl File for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.during(word::READ, |file| file.read_at(position, buffer))
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.during(word::WRITE, |file| file.write_at(position, bytes))
    }

    fn write_vectored_at(&self, position: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.during(word::WRITE, |file| file.write_vectored_at(position, parts))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.during(word::RESIZE, |file| file.set_len(length))
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        self.during(word::RESERVE, |file| file.preallocate(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.during(word::SYNC, |file| file.sync_data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);
    const HOUR: Duration = Duration::from_secs(3_600);

    /// A watch with an operation under way, and a clock that the test sets.
    struct Watched {
        watch: Arc<DiskWatch>,
        now: Instant,
        number: u64,
    }

    impl Watched {
        fn new() -> Self {
            let now = Instant::now();
            let watch = DiskWatch::begun_at(now, PATIENCE);
            let number = watch.begin(now, word::SYNC, &Arc::from(Path::new("segment")));
            Self { watch, now, number }
        }

        /// Time passes in which the watch looks as it should.
        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                self.now += pause(PATIENCE);
                self.watch.look(self.now);
            }
        }

        fn is_told(&self) -> bool {
            let told = self.watch.hung_at(self.now).is_some();
            let logged = self.watch.state.lock().under_way[&self.number].is_told;
            assert!(told || !logged, "what is in the log is a problem too");
            logged
        }
    }

    #[test]
    fn an_operation_that_hangs_is_told_after_the_patience() {
        let mut watched = Watched::new();
        watched.run(PATIENCE - pause(PATIENCE));
        assert!(!watched.is_told());
        watched.run(3 * pause(PATIENCE));
        assert!(watched.is_told());
        watched.watch.end(watched.now, watched.number);
        assert!(watched.watch.hung_at(watched.now).is_none());
    }

    #[test]
    fn time_in_which_the_process_was_stopped_is_not_the_disks() {
        let mut watched = Watched::new();
        for _ in 0..3 {
            watched.run(pause(PATIENCE));
            watched.now += HOUR;
            assert!(
                watched.watch.hung_at(watched.now).is_none(),
                "asked before the watch has looked"
            );
        }
        watched.run(pause(PATIENCE));
        assert!(!watched.is_told());
        watched.run(PATIENCE);
        assert!(watched.is_told(), "it does hang, also while the process runs");
    }

    #[test]
    fn operations_that_begin_and_end_around_a_stop_count_from_their_own_beginning() {
        let mut watched = Watched::new();
        watched.watch.end(watched.now, watched.number);
        watched.now += HOUR;
        watched.number = watched
            .watch
            .begin(watched.now, word::READ, &Arc::from(Path::new("segment")));
        watched.run(PATIENCE / 2);
        assert!(!watched.is_told());
        watched.run(PATIENCE);
        assert!(watched.is_told());
    }
}
