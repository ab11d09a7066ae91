//! The one way to attach a thread to the interpreter.
//!
//! I/O threads never attach: a thread that waits for the interpreter lock stops every connection, and one that is
//! inside the interpreter while it shuts down takes the process with it. Threads of the runtime are marked when they
//! start, and [`attach`] refuses them in release builds too.

use std::cell::Cell;

use pyo3::prelude::*;

thread_local! {
    static IS_IO_THREAD: Cell<bool> = const { Cell::new(false) };
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
