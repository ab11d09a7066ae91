//! The completion bridge between I/O threads and an asyncio event loop.
//!
//! One [`Bridge`] per process and loop. Calls are started through the [`RunningLoop`]. Going out, the appends of one loop
//! tick are collected in [`SubmissionQueue`]s, calls of verbs by their [clients](CallVerbs), and handed to their clients at its end, or earlier in full pieces. Coming
//! back, I/O threads fill a [`CompletionQueue`] and wake the loop once per batch; the loop's reader callback then resumes
//! the waiting tasks itself, each inside its own context. I/O threads see tokens and Rust data only.
//!
//! A bridge belongs to its loop alone, through the reader callback: when the loop is closed or collected, the bridge goes
//! with it, and lets go of the operations that nobody can resume any more.

mod completion_queue;
mod operation;
mod running_loop;
mod submission_queue;
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
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use self::completion_queue::Completion;
pub(crate) use self::completion_queue::CompletionQueue;
pub(crate) use self::operation::Operation;
pub(crate) use self::running_loop::RunningLoop;
use self::submission_queue::SubmissionQueue;
pub(crate) use self::submission_queue::{CallVerbs, HandOver};
use crate::client_core::ClientCore;
use crate::interpreter::imports;
use crate::interpreter::once::{OncePy, interned};
use crate::memory::buffer;
use crate::process::fork::{self, Generation};
use crate::process::logging::{self, WakeLoop};

/// Operations on their way.
type Operations = SlotMap<DefaultKey, Py<Operation>>;

/// The key of an operation whose token this is.
fn key_of(token: u64) -> DefaultKey {
    KeyData::from_ffi(token).into()
}

/// The token of an operation: what the core knows it by.
fn token_of(key: DefaultKey) -> u64 {
    key.data().as_ffi()
}

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
    /// The operations on their way, each kept alive until its completion has come. A token is never given again: one that comes twice
    /// finds nothing.
    operations: Mutex<Operations>,
    /// Completions taken from the queue and not yet handled.
    backlog: Mutex<VecDeque<Completion>>,
    /// One for each client used on this loop; seldom more than a few.
    submission_queues: Mutex<Vec<Arc<SubmissionQueue>>>,
    /// Whoever holds work of this tick.
    listed: Mutex<Vec<Arc<dyn HandOver>>>,
    /// A flush is certain to come: one is scheduled, or a drain is running and ends with one.
    flush_comes: AtomicBool,
}

impl Bridge {
    /// The bridge of a loop that runs, made if there is none yet.
    fn of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        // From loops to their bridges, weak on both sides.
        static BRIDGES: OncePy<PyAny> = OncePy::new();
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
        let wakes: Arc<dyn WakeLoop> = Arc::clone(&queue) as _;
        logging::wakes(Arc::downgrade(&wakes));
        let bridge = Bound::new(
            py,
            Self {
                event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
                made_by: fork::current(),
                queue: Arc::clone(&queue),
                operations: Mutex::default(),
                backlog: Mutex::new(VecDeque::new()),
                submission_queues: Mutex::new(Vec::new()),
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
    fn submission_queue(&self, core: &Arc<ClientCore>) -> Arc<SubmissionQueue> {
        let mut submission_queues = self.submission_queues.lock();
        if let Some(submissions) = submission_queues.iter().find(|submissions| submissions.is_of(core)) {
            return Arc::clone(submissions);
        }
        submission_queues.retain(|submissions| submissions.is_alive());
        let submissions = SubmissionQueue::new(core);
        submission_queues.push(Arc::clone(&submissions));
        submissions
    }

    /// Notes that a queue has work of this tick.
    fn list(&self, queue: Arc<dyn HandOver>) {
        let mut listed = self.listed.lock();
        // Seldom more than one.
        if !listed.iter().any(|other| Arc::ptr_eq(other, &queue)) {
            listed.push(queue);
        }
    }

    fn hand_over(&self) {
        // Cleared first: what is submitted from here on asks for a flush of its own.
        self.flush_comes.store(false, Ordering::Relaxed);
        let listed = std::mem::take(&mut *self.listed.lock());
        for submissions in listed {
            submissions.hand_over();
        }
    }

    /// Stores one completion and resumes who waits for it.
    fn resume(&self, py: Python<'_>, completion: Completion) -> PyResult<()> {
        let Some(operation) = self.operations.lock().remove(key_of(completion.token)) else {
            return Ok(());
        };
        let operation = operation.into_bound(py);
        let (first, others) = operation.get().complete(completion.reply);
        let mut waiters = first.into_iter().chain(others);
        while let Some(waiter) = waiters.next() {
            let Err(error) = waiter.run(py, operation.as_any()) else {
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
        let outcome = RunningLoop::while_resuming(slf, &event_loop, || this.drain_some(py));
        this.hand_over();
        buffer::release_pins(py);
        logging::turn(py);
        if !this.backlog.lock().is_empty() {
            // The rest goes on in the loop's next turn, which it does not sleep before.
            event_loop.call_method1(interned!(py, "call_soon"), (slf.getattr(interned!(py, "drain"))?,))?;
        }
        outcome
    }

    /// Hands what was submitted in this tick to its clients.
    fn flush(&self) {
        self.hand_over();
    }

    /// `(wake-ups, completions, operations on their way)`, for tests and statistics.
    pub(crate) fn counts(&self) -> (u64, u64, usize) {
        let (wakes, completions) = self.queue.counts();
        (wakes, completions, self.operations.lock().len())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The collector runs while some other call of this thread may hold the lock; then nothing can be garbage here.
        match self.operations.try_lock() {
            Some(operations) => operations.values().try_for_each(|operation| visit.call(operation)),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        let abandoned = self
            .operations
            .try_lock()
            .map(|mut operations| std::mem::take(&mut *operations));
        // Dropping them may run Python code, so no lock is held.
        drop(abandoned);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if self.made_by.is_current() {
            self.queue.close();
        } else {
            // What is in the submission queues answers when it is dropped, with locks that the parent's threads may have held.
            std::mem::forget(std::mem::take(self.submission_queues.get_mut()));
            std::mem::forget(std::mem::take(self.listed.get_mut()));
        }
    }
}
