//! The one way to attach a thread to the interpreter.
//!
//! I/O threads never attach: a thread that waits for the interpreter lock stops every connection, and one that is
//! inside the interpreter while it shuts down takes the process with it. Threads of the runtime are marked when they
//! start, and [`attach`] refuses them in release builds too.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

thread_local! {
    static IS_IO_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// How many threads are in [`attach_briefly`], and whether none may come in any more, because the interpreter ends.
static BRIEF: AtomicUsize = AtomicUsize::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);
/// How long they are waited for at the end. What they do takes no time, but they may wait for the interpreter's lock.
const BRIEF_TIME: Duration = Duration::from_secs(2);

/// As [`attach`], for threads of ours that the interpreter does not know: `f` must neither wait nor run anybody's code. `None`,
/// without running `f`, when the interpreter ends: until it does, it waits for `f`.
pub(crate) fn attach_briefly<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    BRIEF.fetch_add(1, Ordering::SeqCst);
    let done = if ENDING.load(Ordering::SeqCst) {
        None
    } else {
        try_attach(f)
    };
    BRIEF.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Lets nobody into [`attach_briefly`] any more, and waits for those who are there. Called detached, before the interpreter
/// ends.
pub(crate) fn end_brief() {
    ENDING.store(true, Ordering::SeqCst);
    let until = Instant::now() + BRIEF_TIME;
    while BRIEF.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// In a forked child none of those threads exists.
pub(crate) fn after_fork() {
    BRIEF.store(0, Ordering::SeqCst);
}

/// Marks the calling thread as one that must never meet Python.
pub(crate) fn mark_io_thread() {
    IS_IO_THREAD.set(true);
}

/// As [`attach`]; `None`, without running `f`, when the interpreter is gone or going.
pub(crate) fn try_attach<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    assert!(!IS_IO_THREAD.get(), "an I/O thread must not attach to the interpreter");
    Python::try_attach(f)
}

/// Runs `f` attached to the interpreter.
///
/// # Panics
///
/// On an I/O thread. That is a defect of this crate, and silence would turn it into a rare hang.
pub(crate) fn attach<R>(f: impl FnOnce(Python<'_>) -> R) -> R {
    assert!(!IS_IO_THREAD.get(), "an I/O thread must not attach to the interpreter");
    Python::attach(f)
}
