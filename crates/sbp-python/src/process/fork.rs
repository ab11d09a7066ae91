//! What a forked child inherits, and how it is told.
//!
//! A child has the parent's memory but none of its threads: the runtime, its connections and an embedded server are
//! dead there. The child counts one *generation* more than its parent; every object remembers the generation that made
//! it, refuses to work in another one, and leaves the remains alone when it is dropped. What the child does get is the
//! parent's descriptors: they would keep a dead parent's port, connections and directory lock in use. Clients and
//! servers are [`Holder`]s and tell which are theirs; the package's fork hook closes them.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use sbp_locks::Mutex;

use crate::errors;
use crate::interpreter::attach;
use crate::process::logging;

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Everything of this process that holds descriptors. Only locked while attached to the interpreter and never across a
/// release of its lock: a fork never copies it locked.
static HOLDERS: Mutex<Vec<Weak<dyn Holder>>> = Mutex::new(Vec::new());

/// An owner of descriptors that a forked child must not keep.
pub(crate) trait Holder: Send + Sync {
    /// The descriptors held now. Called in the child, where no thread of the parent lives: it must not wait for a lock
    /// that such a thread may have held.
    fn descriptors(&self) -> Vec<RawFd>;

    /// Ends what has to end before the interpreter does. Called detached from the interpreter, by the thread that ends it.
    fn stop(&self) {}
}

/// The process, as seen from fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

/// The generation of this process.
pub(crate) fn current() -> Generation {
    Generation(GENERATION.load(Ordering::Relaxed))
}

impl Generation {
    /// Whether this process made the object.
    pub(crate) fn is_current(self) -> bool {
        self == current()
    }

    /// Refuses, in a child, an object that its parent made.
    pub(crate) fn check(self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_current() {
            Ok(())
        } else {
            Err(errors::forked(py, what))
        }
    }
}

/// Has a child close what `holder` holds.
pub(crate) fn register<H: Holder + 'static>(_py: Python<'_>, holder: &Arc<H>) {
    let holder: Weak<H> = Arc::downgrade(holder);
    let mut holders = HOLDERS.lock();
    holders.retain(|known| known.strong_count() > 0);
    holders.push(holder);
}

/// Starts a new generation and returns the descriptors that the child has to close.
///
/// Called once in a child, by the package's fork hook.
#[pyfunction]
pub(crate) fn after_fork_in_child(py: Python<'_>) -> Vec<RawFd> {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    attach::after_fork();
    logging::after_fork(py);
    let holders = std::mem::take(&mut *HOLDERS.lock());
    let mut descriptors = Vec::new();
    for holder in holders {
        if let Some(holder) = holder.upgrade() {
            descriptors.extend(holder.descriptors());
            // The owner's destructor belongs to the parent.
            std::mem::forget(holder);
        }
    }
    descriptors
}

/// Stops what still runs, the youngest first: a proxy goes before the server behind it. Registered with `atexit`.
#[pyfunction]
pub(crate) fn stop_all(py: Python<'_>) {
    py.detach(attach::end_brief);
    let running = std::mem::take(&mut *HOLDERS.lock());
    for holder in running.iter().rev().filter_map(Weak::upgrade) {
        py.detach(|| holder.stop());
    }
}
