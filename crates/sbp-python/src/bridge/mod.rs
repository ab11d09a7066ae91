//! The completion bridge between I/O threads and an asyncio event loop.
//!
//! One [`Bridge`] per process and loop. Going out, the calls of one loop tick are collected in [`Lane`]s and handed to
//! their clients together. Coming back, I/O threads fill a [`CompletionQueue`] and wake the loop once per batch; the
//! loop's reader callback then resumes the waiting tasks itself, each inside its own context. I/O threads see tokens and
//! Rust data only.

mod operation;
mod queue;
mod slab;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyOSError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyWeakrefMethods, PyWeakrefReference};
use sbp_client::{CompletionSink, Submissions};

pub(crate) use self::operation::Operation;
use self::queue::{Completion, CompletionQueue, Reply};
use self::slab::Slab;
use crate::ack::AckShape;
use crate::append::Prepared;
use crate::buffer;
use crate::calls::Failure;
use crate::core::Core;
use crate::fork::{self, Generation};
use crate::{imports, runtime};

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

/// The appends of one client on one loop that were made in this tick.
struct Lane {
    core: Weak<Core>,
    work: Mutex<Submissions>,
    listed: AtomicBool,
}

impl Lane {
    fn new(core: &Arc<Core>) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::downgrade(core),
            work: Mutex::new(Submissions::default()),
            listed: AtomicBool::new(false),
        })
    }

    /// Hands the appends over. Without the client they are dropped, and answered by that.
    fn hand_over(&self) {
        self.listed.store(false, Ordering::Relaxed);
        let core = self.core.upgrade();
        let mut work = self.work.lock();
        match core.as_ref().and_then(|core| core.unchecked_client()) {
            Some(client) => client.submit(&mut work),
            None => {
                let dropped = std::mem::take(&mut *work);
                // Dropping them answers them, which must not happen under the lock.
                drop(work);
                drop(dropped);
            }
        }
    }
}

impl Bridge {
    /// The bridge of the running loop, made if there is none yet.
    ///
    /// # Errors
    ///
    /// `RuntimeError` outside a running loop.
    pub(crate) fn current(py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        static BRIDGES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        /// The one that was used last, which is the one that is used next. Only locked while attached.
        static LAST: Mutex<Option<Py<Bridge>>> = Mutex::new(None);
        let event_loop = imports::get_running_loop(py)?.call0()?;
        let last = LAST.lock().as_ref().map(|last| last.clone_ref(py));
        if let Some(last) = last.filter(|last| last.get().belongs_to(&event_loop)) {
            return Ok(last.into_bound(py));
        }
        let bridges = BRIDGES
            .get_or_try_init(py, || imports::weak_key_dictionary(py)?.call0().map(Bound::unbind))?
            .bind(py);
        if let Ok(known) = bridges.get_item(&event_loop) {
            let known = known.cast_into::<Self>()?;
            if known.get().made_by.is_current() {
                let before = LAST.lock().replace(known.clone().unbind());
                drop(before);
                return Ok(known);
            }
        }
        let queue =
            CompletionQueue::new().map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?;
        let descriptor = queue.descriptor();
        let bridge = Bound::new(
            py,
            Self {
                event_loop: PyWeakrefReference::new(&event_loop)?.unbind(),
                made_by: fork::current(),
                queue: Arc::new(queue),
                slab: Mutex::new(Slab::default()),
                backlog: Mutex::new(VecDeque::new()),
                lanes: Mutex::new(Vec::new()),
                listed: Mutex::new(Vec::new()),
                flush_comes: AtomicBool::new(false),
            },
        )?;
        event_loop.call_method1(
            intern!(py, "add_reader"),
            (descriptor, bridge.getattr(intern!(py, "drain"))?),
        )?;
        bridges.set_item(&event_loop, &bridge)?;
        Ok(bridge)
    }

    /// Whether this is the loop's bridge, made by this process.
    fn belongs_to(&self, event_loop: &Bound<'_, PyAny>) -> bool {
        self.made_by.is_current()
            && self
                .event_loop
                .bind(event_loop.py())
                .upgrade()
                .is_some_and(|own| own.is(event_loop))
    }

    fn event_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.event_loop
            .bind(py)
            .upgrade()
            .ok_or_else(|| PyRuntimeError::new_err("the event loop is gone"))
    }

    /// The queue, for completions of appends.
    fn sink(&self) -> Arc<CompletionQueue> {
        Arc::clone(&self.queue)
    }

    /// An operation of this loop that has not started.
    pub(crate) fn operation<'py>(slf: &Bound<'py, Self>, shape: AckShape) -> PyResult<Bound<'py, Operation>> {
        let event_loop = slf.get().event_loop(slf.py())?.unbind();
        Bound::new(slf.py(), Operation::new(event_loop, shape))
    }

    /// Puts an append into this tick's submissions, to be answered through `operation`.
    pub(crate) fn submit(
        slf: &Bound<'_, Self>,
        core: &Arc<Core>,
        prepared: Prepared,
        operation: &Bound<'_, Operation>,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let token = this.slab.lock().insert(operation.clone().unbind());
        let lane = this.lane(core);
        let sink: Arc<dyn CompletionSink> = this.sink();
        prepared.join(&mut lane.work.lock(), sbp_client::Reply::sink(sink, token));
        if !lane.listed.swap(true, Ordering::Relaxed) {
            this.listed.lock().push(lane);
        }
        if !this.flush_comes.swap(true, Ordering::Relaxed) {
            this.event_loop(py)?
                .call_method1(intern!(py, "call_soon"), (slf.getattr(intern!(py, "flush"))?,))?;
        }
        Ok(())
    }

    /// The lane of a client on this loop, made if there is none.
    fn lane(&self, core: &Arc<Core>) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes
            .iter()
            .find(|lane| std::ptr::eq(lane.core.as_ptr(), Arc::as_ptr(core)))
        {
            return Arc::clone(lane);
        }
        lanes.retain(|lane| lane.core.strong_count() > 0);
        let lane = Lane::new(core);
        lanes.push(Arc::clone(&lane));
        lane
    }

    /// Runs a call on the I/O thread; `convert` turns its result into a Python object, on the loop's thread.
    pub(crate) fn spawn<'py, T: Send + 'static>(
        slf: &Bound<'py, Self>,
        call: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, Operation>> {
        let py = slf.py();
        let this = slf.get();
        let operation = Self::operation(slf, AckShape::None)?;
        let handle = runtime::handle(py)?;
        let token = this.slab.lock().insert(operation.clone().unbind());
        let promise = Promise {
            queue: this.sink(),
            token,
            kept: false,
        };
        let task = handle.spawn(async move {
            match call.await {
                Ok(value) => promise.keep(Reply::Call(Box::new(move |py| convert(py, value)))),
                Err(error) => promise.keep(Reply::Failed(error)),
            }
        });
        operation.get().set_task(task.abort_handle());
        Ok(operation)
    }

    /// An operation that is done from the start.
    pub(crate) fn ready<'py>(slf: &Bound<'py, Self>, outcome: PyResult<Py<PyAny>>) -> PyResult<Bound<'py, Operation>> {
        let event_loop = slf.get().event_loop(slf.py())?.unbind();
        Bound::new(slf.py(), Operation::finished(event_loop, outcome))
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
        for waiter in first.iter().chain(&others) {
            if let Err(error) = waiter.run(py, &operation) {
                if !error.is_instance_of::<PyException>(py) {
                    return Err(error);
                }
                let report = PyDict::new(py);
                report.set_item("message", "an exception in a callback of an SBP operation")?;
                report.set_item("exception", error.into_value(py))?;
                self.event_loop(py)?.call_method1("call_exception_handler", (report,))?;
            }
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
        let mut arrived = Vec::new();
        this.queue.take(&mut arrived);
        this.backlog.lock().extend(arrived);
        this.flush_comes.store(true, Ordering::Relaxed);
        let outcome = this.drain_some(py);
        this.hand_over();
        buffer::release_pins(py);
        if !this.backlog.lock().is_empty() {
            // The rest goes on in the loop's next turn, which it does not sleep before.
            this.event_loop(py)?
                .call_method1(intern!(py, "call_soon"), (slf.getattr(intern!(py, "drain"))?,))?;
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
}

/// A spawned call's duty to complete its operation, also when its task is dropped half-way.
struct Promise {
    queue: Arc<CompletionQueue>,
    token: u64,
    kept: bool,
}

impl Promise {
    fn keep(mut self, reply: Reply) {
        self.kept = true;
        self.queue.push(Completion {
            token: self.token,
            reply,
        });
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.kept {
            self.queue.push(Completion {
                token: self.token,
                reply: Reply::Dropped,
            });
        }
    }
}
