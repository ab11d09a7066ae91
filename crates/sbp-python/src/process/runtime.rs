//! The client's I/O runtime: one per process, built on first use.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sbp_locks::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::interpreter::attach;
use crate::process::fork::{self, Generation};
use crate::process::logging;

/// Only locked while attached to the interpreter and never across a release of its lock: a fork never copies it locked.
static SLOT: Mutex<Slot> = Mutex::new(Slot::Empty);

enum Slot {
    Empty,
    Running {
        made_by: Generation,
        runtime: Runtime,
    },
    /// The interpreter is going away; no runtime is built any more.
    Closed,
}

/// The runtime of this process, which is built if there is none yet.
///
/// A runtime that a parent process made is leaked: its threads do not exist here, and dropping it would wait for them.
///
/// # Errors
///
/// `RuntimeError` when the interpreter is shutting down or the thread cannot be started.
pub(crate) fn handle(py: Python<'_>) -> PyResult<Handle> {
    logging::install(py)?;
    let mut slot = SLOT.lock();
    match &*slot {
        Slot::Running { made_by, runtime } if made_by.is_current() => return Ok(runtime.handle().clone()),
        Slot::Running { .. } => std::mem::forget(std::mem::replace(&mut *slot, Slot::Empty)),
        Slot::Empty => {}
        Slot::Closed => return Err(PyRuntimeError::new_err("the interpreter is shutting down")),
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(4)
        .thread_name("sbp-io")
        .on_thread_start(attach::mark_io_thread)
        .enable_all()
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start the I/O thread: {error}")))?;
    let handle = runtime.handle().clone();
    *slot = Slot::Running {
        made_by: fork::current(),
        runtime,
    };
    Ok(handle)
}

/// Stops the runtime without waiting for it. Registered with `atexit`.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) {
    logging::end(py);
    match std::mem::replace(&mut *SLOT.lock(), Slot::Closed) {
        Slot::Running { made_by, runtime } if made_by.is_current() => runtime.shutdown_background(),
        inherited @ Slot::Running { .. } => std::mem::forget(inherited),
        Slot::Empty | Slot::Closed => {}
    }
}

/// Has an I/O thread try to attach; whether it got in. For a test of the guard.
#[pyfunction]
pub(crate) fn io_threads_attach(py: Python<'_>) -> PyResult<bool> {
    let handle = handle(py)?;
    // A panic of a task ends the task and reaches us as the missing result.
    Ok(py.detach(|| handle.block_on(handle.spawn(async { attach::attach(|_| ()) })).is_ok()))
}

/// Has an I/O thread drop a Python object, which ends the process. For a test of that guard.
#[pyfunction]
pub(crate) fn io_threads_drop(py: Python<'_>, value: Py<PyAny>) -> PyResult<()> {
    let handle = handle(py)?;
    py.detach(|| {
        // The result tells nothing: there is none, or nobody to tell it to.
        let _ = handle.block_on(handle.spawn(async move { drop(value) }));
    });
    Ok(())
}
