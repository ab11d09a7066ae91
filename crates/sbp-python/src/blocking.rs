//! The blocking face: run a future on the I/O thread and wait for it with the interpreter lock released.

use std::future::Future;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::runtime;

/// How long a wait lasts before pending signals are looked at: Python's handlers run only between bytecodes of the main
/// thread, so a call that does not look would swallow Ctrl-C.
const SIGNAL_SLICE: Duration = Duration::from_millis(100);

/// Runs `future` on the I/O thread and returns its result. A signal handler that raises aborts it.
pub(crate) fn block_on<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (sender, receiver) = mpsc::sync_channel(1);
    let task = runtime::handle(py)?.spawn(async move {
        // The receiver is gone only when a signal ended the wait; nobody wants the result then.
        let _ = sender.send(future.await);
    });
    wait(py, receiver).inspect_err(|_| task.abort())
}

/// Waits for one value from an I/O thread.
///
/// # Errors
///
/// What a signal handler raised, or `RuntimeError` if the sender went away without an answer.
pub(crate) fn wait<T: Send>(py: Python<'_>, receiver: Receiver<T>) -> PyResult<T> {
    receive(py, receiver).1
}

/// As [`wait`], for a receiver that is used again.
pub(crate) fn receive<T: Send>(py: Python<'_>, receiver: Receiver<T>) -> (Receiver<T>, PyResult<T>) {
    let mut receiver = receiver;
    loop {
        // A receiver may be moved to another thread, but not be shared: it goes in and comes back.
        let (back, outcome) = py.detach(move || {
            let outcome = receiver.recv_timeout(SIGNAL_SLICE);
            (receiver, outcome)
        });
        receiver = back;
        let failed = match outcome {
            Ok(value) => return (receiver, Ok(value)),
            Err(RecvTimeoutError::Timeout) => match py.check_signals() {
                Ok(()) => continue,
                Err(raised) => raised,
            },
            Err(RecvTimeoutError::Disconnected) => {
                PyRuntimeError::new_err("the call was dropped: the client's I/O thread is gone")
            }
        };
        return (receiver, Err(failed));
    }
}
