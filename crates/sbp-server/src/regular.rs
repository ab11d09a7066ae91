//! A thread that does one thing again and again, until whoever started it is gone.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sbp_locks::{Condvar, Mutex};

/// Such a thread. Dropping this ends it; work that is under way then is not waited for, because the disk may never answer it.
#[derive(Debug)]
pub(crate) struct Regular {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_working: bool,
    is_stopped: bool,
}

impl Regular {
    /// Does `work` after each pause of this length, for the first time when the first one is over.
    pub(crate) fn start(name: &str, pause: Duration, work: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run(pause, work)
        })?;
        let thread = Some(thread);
        Ok(Self { shared, thread })
    }
}

impl Drop for Regular {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_stopped = true;
        let is_working = state.is_working;
        drop(state);
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take().filter(|_| !is_working) {
            // Should it have panicked, there is nothing left to end.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, pause: Duration, mut work: impl FnMut()) {
        let mut state = self.state.lock();
        loop {
            let _late = self
                .stopped
                .wait_while_for(&mut state, |state| !state.is_stopped, pause);
            if state.is_stopped {
                return;
            }
            state.is_working = true;
            drop(state);
            work();
            state = self.state.lock();
            state.is_working = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);
    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn it_works_until_it_is_dropped() {
        let (done, seen) = mpsc::channel();
        let regular =
            Regular::start("sbp-test", SOON, move || done.send(()).expect("somebody looks")).expect("a thread");
        for _ in 0..3 {
            seen.recv_timeout(LIMIT).expect("it works");
        }
        drop((regular, seen.try_iter().count()));
        // Its end of the channel is gone with the thread, or goes when the work under way has ended.
        while seen.recv_timeout(LIMIT) != Err(mpsc::RecvTimeoutError::Disconnected) {}
    }

    #[test]
    fn work_that_hangs_is_not_waited_for() {
        let (begun, seen) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let regular = Regular::start("sbp-test", SOON, move || {
            begun.send(()).expect("somebody looks");
            let _released = released.recv();
        });
        let regular = regular.expect("a thread");
        seen.recv_timeout(LIMIT).expect("it works");
        drop(regular);
        drop(release);
        assert_eq!(
            seen.recv_timeout(LIMIT),
            Err(mpsc::RecvTimeoutError::Disconnected),
            "no other turn"
        );
    }

    #[test]
    fn a_long_pause_is_not_waited_for() {
        let regular = Regular::start("sbp-test", Duration::from_secs(3_600), || ()).expect("a thread");
        drop(regular);
    }
}
