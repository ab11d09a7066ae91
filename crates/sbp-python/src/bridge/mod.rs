//! The completion bridge between I/O threads and an asyncio event loop.
//!
//! One [`Bridge`] per process and loop. Calls start [`Here`]. Going out, the appends of one loop tick are collected in
//! [`Lane`]s and handed to their clients at its end, or earlier in full pieces. Coming back, I/O threads fill a
//! [`CompletionQueue`] and wake the loop once per batch; the loop's reader callback then resumes the waiting tasks itself,
//! each inside its own context. I/O threads see tokens and Rust data only.
//!
//! A bridge belongs to its loop alone, through the reader callback: when the loop is closed or collected, the bridge goes
//! with it, and lets go of the operations that nobody can resume any more.

mod here;
mod lane;
mod operation;
mod queue;
mod slab;
mod waiter;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyOSError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefMethods, PyWeakrefReference};
use sbp_locks::Mutex;

pub(crate) use self::here::Here;
use self::lane::Lane;
pub(crate) use self::operation::Operation;
use self::queue::Completion;
pub(crate) use self::queue::CompletionQueue;
use self::slab::Slab;
use crate::buffer;
use crate::core::Core;
use crate::fork::{self, Generation};
use crate::kept::{Kept, interned};
use crate::{imports, logging};

/// Completions handled before the loop's other callbacks get their turn.
const MAX_PER_DRAIN: usize = 1_024;
/// Time after which they get it in any case.
const MAX_DRAIN_TIME: Duration = Duration::from_millis(1);
/// Completions between two looks at the clock.
const CLOCK_STRIDE: usize = 32;

/// The bridge of one loop.
#[pyclass(frozen, weakref, module = "sbp_native._native")]
pub(crate) struct Bridge {
    /// Weak: the loop owns the bridge, through its reader callback.
    event_loop: Py<PyWeakrefReference>,
    made_by: Generation,
    queue: Arc<CompletionQueue>,
    slab: Mutex<Slab>,
    /// Completions taken from the queue and not yet handled.
    backlog: Mutex<VecDeque<Completion>>,
    /// One for each client used on this loop; seldom more than a few.
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// Those with work of this tick.
    listed: Mutex<Vec<Arc<Lane>>>,
    /// A flush is certain to come: one is scheduled, or a drain is running and ends with one.
    flush_comes: AtomicBool,
}

impl Bridge {
    /// The bridge of a loop that runs, made if there is none yet.
    fn of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        // From loops to their bridges, weak on both sides.
        static BRIDGES: Kept<PyAny> = Kept::new();
        let py = event_loop.py();
        let bridges = BRIDGES.get(py, || imports::weak_key_dictionary(py)?.call0().map(Bound::unbind))?;
        if let Ok(known) = bridges.get_item(event_loop)
            && let Some(known) = known.cast_into::<PyWeakrefReference>()?.upgrade()
        {
            let known = known.cast_into::<Self>()?;
            if known.get().made_by.is_current() {
                return Ok(known);
            }
        }
        let queue =
            CompletionQueue::new().map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?;
        let descriptor = queue.descriptor();
        let queue = Arc::new(queue);
        logging::wakes(Arc::downgrade(&queue));
        let bridge = Bound::new(
            py,
            Self {
                event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
                made_by: fork::current(),
                queue: Arc::clone(&queue),
                slab: Mutex::new(Slab::default()),
                backlog: Mutex::new(VecDeque::new()),
                lanes: Mutex::new(Vec::new()),
                listed: Mutex::new(Vec::new()),
                flush_comes: AtomicBool::new(false),
            },
        )?;
        event_loop.call_method1(
            interned!(py, "add_reader"),
            (descriptor, bridge.getattr(interned!(py, "drain"))?),
        )?;
        bridges.set_item(event_loop, PyWeakrefReference::new(bridge.as_any())?)?;
        Ok(bridge)
    }

    fn event_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.event_loop
            .bind(py)
            .upgrade()
            .ok_or_else(|| PyRuntimeError::new_err("the event loop is gone"))
    }

    /// The lane of a client on this loop, made if there is none.
    fn lane(&self, core: &Arc<Core>) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.iter().find(|lane| lane.is_of(core)) {
            return Arc::clone(lane);
        }
        lanes.retain(|lane| lane.is_alive());
        let lane = Lane::new(core);
        lanes.push(Arc::clone(&lane));
        lane
    }

    fn hand_over(&self) {
        // Cleared first: what is submitted from here on asks for a flush of its own.
        self.flush_comes.store(false, Ordering::Relaxed);
        let listed = std::mem::take(&mut *self.listed.lock());
        for lane in listed {
            lane.hand_over();
        }
    }

    /// Stores one completion and resumes who waits for it.
    fn resume(&self, py: Python<'_>, completion: Completion) -> PyResult<()> {
        let Some(operation) = self.slab.lock().remove(completion.token) else {
            return Ok(());
        };
        let operation = operation.into_bound(py);
        let (first, others) = operation.get().complete(completion.reply);
        let mut waiters = first.into_iter().chain(others);
        while let Some(waiter) = waiters.next() {
            let Err(error) = waiter.run(py, &operation) else {
                continue;
            };
            if !error.is_instance_of::<PyException>(py) {
                // It ends the loop. Who else waited is resumed if the loop ever goes on.
                for waiter in waiters {
                    operation.get().call_soon(py, &operation, &waiter)?;
                }
                return Err(error);
            }
            let report = PyDict::new(py);
            report.set_item("message", "an exception in a callback of an SBP operation")?;
            report.set_item("exception", error.into_value(py))?;
            self.event_loop(py)?.call_method1("call_exception_handler", (report,))?;
        }
        Ok(())
    }

    fn drain_some(&self, py: Python<'_>) -> PyResult<()> {
        let started = Instant::now();
        for handled in 1..=MAX_PER_DRAIN {
            // No lock is held while a task runs: it may make further calls.
            let Some(completion) = self.backlog.lock().pop_front() else {
                break;
            };
            self.resume(py, completion)?;
            if handled % CLOCK_STRIDE == 0 && started.elapsed() >= MAX_DRAIN_TIME {
                break;
            }
        }
        Ok(())
    }
}

#[pymethods]
impl Bridge {
    /// The loop's reader callback: takes what has arrived and resumes the tasks that wait for it.
    fn drain(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if !this.made_by.is_current() {
            // A child that goes on with its parent's loop shares the descriptor, and would take the parent's wake-ups.
            return Ok(());
        }
        let mut arrived = Vec::new();
        this.queue.take(&mut arrived);
        this.backlog.lock().extend(arrived);
        this.flush_comes.store(true, Ordering::Relaxed);
        let event_loop = this.event_loop(py)?;
        let outcome = Here::while_resuming(slf, &event_loop, || this.drain_some(py));
        this.hand_over();
        buffer::release_pins(py);
        logging::turn(py);
        if !this.backlog.lock().is_empty() {
            // The rest goes on in the loop's next turn, which it does not sleep before.
            event_loop.call_method1(interned!(py, "call_soon"), (slf.getattr(interned!(py, "drain"))?,))?;
        }
        outcome
    }

    /// Hands this tick's appends to their clients.
    fn flush(&self) {
        self.hand_over();
    }

    /// `(wake-ups, completions, operations on their way)`, for tests and statistics.
    pub(crate) fn counts(&self) -> (u64, u64, usize) {
        let (wakes, completions) = self.queue.counts();
        (wakes, completions, self.slab.lock().len())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The collector runs while some other call of this thread may hold the lock; then nothing can be garbage here.
        match self.slab.try_lock() {
            Some(slab) => slab.operations().try_for_each(|operation| visit.call(operation)),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        let abandoned = self.slab.try_lock().map(|mut slab| std::mem::take(&mut *slab));
        // Dropping them may run Python code, so no lock is held.
        drop(abandoned);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if self.made_by.is_current() {
            self.queue.close();
        } else {
            // What is in the lanes answers when it is dropped, with locks that the parent's threads may have held.
            std::mem::forget(std::mem::take(self.lanes.get_mut()));
            std::mem::forget(std::mem::take(self.listed.get_mut()));
        }
    }
}
