//! The queue of finished calls from I/O threads to an event loop.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sbp_client::{AppendOutcome, ClientError, CompletionSink};
use sbp_locks::Mutex;
use sbp_peers::seastar::{CallResult, ReplySink};

use crate::process::blocking::dropped;
use crate::process::logging::WakeLoop;
use crate::read::shared_source::Step;
use crate::requests::Failure;
use crate::results::ack::AckShape;

/// A result in Rust form that knows how to become a Python object. It is made on the I/O thread and called on the loop's,
/// so it carries no Python reference.
pub(crate) type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The outcome of an operation, in Rust form.
pub(crate) enum Reply {
    /// An append was acknowledged: the hot path, where the operation itself knows what to make of it.
    Append(AppendOutcome),
    /// A verb has returned this.
    Returned(Bytes),
    /// A step through a source has its batch, or the end.
    Step(Step),
    /// Any other call has its result.
    Call(Convert),
    /// The call failed.
    Failed(Failure),
    /// The call's task was dropped before it had an outcome.
    Dropped,
}

impl Reply {
    /// Whether it is a failure, which must be reported when nobody retrieves it.
    pub(crate) fn is_failure(&self) -> bool {
        match self {
            Self::Append(outcome) => outcome.entries.iter().any(Result::is_err),
            Self::Failed(_) => true,
            // A call that ended with its thread has nothing to tell.
            Self::Returned(_) | Self::Step(_) | Self::Call(_) | Self::Dropped => false,
        }
    }

    /// Notes that it has reached its operation, which is still awaited.
    pub(crate) fn deliver(&mut self) {
        if let Self::Step(step) = self {
            step.deliver();
        }
    }

    /// What the caller gets.
    pub(crate) fn into_python(self, py: Python<'_>, shape: &AckShape) -> PyResult<Py<PyAny>> {
        match self {
            Self::Append(outcome) => shape.build(py, outcome),
            Self::Returned(bytes) => shape.returned(py, &bytes),
            Self::Step(step) => match step.take() {
                Some(batch) => Ok(Py::new(py, batch)?.into_any()),
                None => Err(PyStopAsyncIteration::new_err(())),
            },
            Self::Call(convert) => convert(py),
            Self::Failed(failure) => Err(shape.explain(failure).into_python(py)),
            Self::Dropped => Err(dropped()),
        }
    }
}

/// One finished operation: its token and its outcome.
pub(crate) struct Completion {
    pub(crate) token: u64,
    pub(crate) reply: Reply,
}

/// The queue of one event loop: filled by I/O threads in batches, emptied by the loop, with one wake-up per batch.
///
/// A wake-up is not lost: the loop disarms before it takes the queue, so an entry is either taken with it or finds the
/// queue disarmed and writes the descriptor.
pub(crate) struct CompletionQueue {
    pending: Mutex<Vec<Completion>>,
    /// Nobody takes anything any more: the loop is closed.
    closed: AtomicBool,
    armed: AtomicBool,
    wake: OwnedFd,
    wakes: AtomicU64,
    completions: AtomicU64,
}

impl CompletionQueue {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            pending: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            wakes: AtomicU64::new(0),
            completions: AtomicU64::new(0),
        })
    }

    /// The descriptor that becomes readable when there is something to take.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// `(wake-ups written, completions pushed)` since the queue was made.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (
            self.wakes.load(Ordering::Relaxed),
            self.completions.load(Ordering::Relaxed),
        )
    }

    /// Adds one finished call.
    pub(crate) fn push(&self, completion: Completion) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        self.pending.lock().push(completion);
        self.completions.fetch_add(1, Ordering::Relaxed);
        self.arm();
    }

    /// Moves everything that has arrived into `into`, and disarms first.
    pub(crate) fn take(&self, into: &mut Vec<Completion>) {
        let mut counter = [0; 8];
        // Empty is fine: the loop may have been woken by a write that an earlier call has answered.
        let _ = rustix::io::read(self.wake.as_fd(), &mut counter);
        self.armed.store(false, Ordering::SeqCst);
        let mut pending = self.pending.lock();
        if into.is_empty() {
            std::mem::swap(&mut *pending, into);
        } else {
            into.append(&mut pending);
        }
    }

    /// Drops what has arrived and what still arrives: the loop does not run any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let dropped = std::mem::take(&mut *self.pending.lock());
        drop(dropped);
    }

    /// Moves a batch of outcomes in, and wakes the loop once for all of them.
    fn complete_all<T>(&self, batch: &mut Vec<(u64, T)>, reply: impl Fn(T) -> Reply) {
        if self.closed.load(Ordering::SeqCst) {
            return batch.clear();
        }
        self.completions.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.pending
            .lock()
            .extend(batch.drain(..).map(|(token, result)| Completion {
                token,
                reply: reply(result),
            }));
        self.arm();
    }

    /// Wakes the loop unless a wake-up is already under way.
    fn arm(&self) {
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            // A full counter cannot happen (one write per disarming), and a full counter is readable anyway.
            let _ = rustix::io::write(self.wake.as_fd(), &1_u64.to_ne_bytes());
        }
    }
}

impl WakeLoop for CompletionQueue {
    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        self.arm();
    }
}

impl CompletionSink for CompletionQueue {
    fn complete(&self, batch: &mut Vec<(u64, Result<AppendOutcome, ClientError>)>) {
        self.complete_all(batch, |result| {
            result.map_or_else(|error| Reply::Failed(error.into()), Reply::Append)
        });
    }
}

impl ReplySink for CompletionQueue {
    fn complete(&self, batch: &mut Vec<(u64, CallResult)>) {
        self.complete_all(batch, |result| {
            result.map_or_else(|error| Reply::Failed(error.into()), Reply::Returned)
        });
    }
}
