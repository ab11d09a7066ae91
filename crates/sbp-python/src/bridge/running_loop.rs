//! Starting operations on the loop that runs.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use sbp_client::CompletionSink;
use sbp_peers::seastar::{ReplySink, SinkReply};

use super::completion_queue::{Completion, CompletionQueue, Reply};
use super::submission_queue::{CallVerbs, HandOver};
use super::{Bridge, Operation, token_of};
use crate::append::prepared::{BackpressurePolicy, Prepared};
use crate::client_core::ClientCore;
use crate::errors;
use crate::interpreter::imports;
use crate::interpreter::once::interned;
use crate::process::runtime;
use crate::read::shared_source::Step;
use crate::requests::Failure;
use crate::results::ack::{AckShape, OfReply};

/// Operations of one loop that may be on their way, so that a program that never waits for any is told so before it has
/// used up the memory.
const MAX_OPERATIONS: usize = 1 << 20;

thread_local! {
    /// The loop whose tasks are being resumed by its bridge on this thread: it runs, without asking.
    static RESUMING: RefCell<Option<(Py<Bridge>, Py<PyAny>)>> = const { RefCell::new(None) };
}

/// The loop that runs on this thread, and its bridge.
pub(crate) struct RunningLoop<'py> {
    bridge: Bound<'py, Bridge>,
    event_loop: Bound<'py, PyAny>,
}

impl<'py> RunningLoop<'py> {
    /// Where the caller is.
    ///
    /// # Errors
    ///
    /// `RuntimeError` outside a running loop.
    pub(crate) fn current(py: Python<'py>) -> PyResult<Self> {
        let resuming = RESUMING.with_borrow(|running| {
            // A child that a task has forked is still inside that task, and may run a loop of its own.
            let (bridge, event_loop) = running
                .as_ref()
                .filter(|(bridge, _)| bridge.get().made_by.is_current())?;
            Some((bridge.clone_ref(py), event_loop.clone_ref(py)))
        });
        if let Some((bridge, event_loop)) = resuming {
            return Ok(Self {
                bridge: bridge.into_bound(py),
                event_loop: event_loop.into_bound(py),
            });
        }
        let event_loop = imports::get_running_loop(py)?.call0()?;
        Ok(Self {
            bridge: Bridge::of(&event_loop)?,
            event_loop,
        })
    }

    /// Runs `resume`, during which the loop is the one that runs.
    pub(super) fn while_resuming<R>(
        bridge: &Bound<'py, Bridge>,
        event_loop: &Bound<'py, PyAny>,
        resume: impl FnOnce() -> R,
    ) -> R {
        let running = (bridge.clone().unbind(), event_loop.clone().unbind());
        let before = RESUMING.replace(Some(running));
        let outcome = resume();
        drop(RESUMING.replace(before));
        outcome
    }

    /// The bridge.
    pub(crate) fn bridge(&self) -> &Bridge {
        self.bridge.get()
    }

    /// An operation of this loop that has not started.
    pub(crate) fn operation(&self, shape: AckShape) -> PyResult<Bound<'py, Operation>> {
        let event_loop = self.event_loop.clone().unbind();
        Bound::new(self.event_loop.py(), Operation::new(event_loop, shape))
    }

    /// An operation that is done from the start.
    pub(crate) fn ready(&self, outcome: PyResult<Py<PyAny>>) -> PyResult<Bound<'py, Operation>> {
        let py = self.event_loop.py();
        let event_loop = self.event_loop.clone().unbind();
        Bound::new(py, Operation::finished(py, event_loop, outcome))
    }

    /// Puts an append into this tick's submissions, to be answered through `operation`.
    ///
    /// # Errors
    ///
    /// `BackPressureError`: the client holds as much unfinished work as it may.
    pub(crate) fn submit(
        &self,
        core: &Arc<ClientCore>,
        prepared: Prepared,
        operation: &Bound<'py, Operation>,
        policy: BackpressurePolicy,
    ) -> PyResult<()> {
        let py = self.bridge.py();
        let bridge = self.bridge();
        let submissions = bridge.submission_queue(core);
        submissions
            .admit(core.client(py)?, &prepared, policy)
            .map_err(|error| errors::from_client(py, error, None))?;
        let token = self.keep(operation)?;
        let sink: Arc<dyn CompletionSink> = Arc::clone(&bridge.queue) as _;
        submissions.join(prepared, sbp_client::Reply::sink(sink, token));
        self.hand_over_soon(submissions)
    }

    /// Puts a call of a verb into this tick's submissions. `returns` makes a Python object of the reply; `None`: it is bytes.
    pub(crate) fn call<V: CallVerbs>(
        &self,
        core: &Arc<V>,
        (verb, payload): (u64, Bytes),
        timeout: Option<Duration>,
        returns: Option<Arc<dyn OfReply>>,
    ) -> PyResult<Bound<'py, Operation>> {
        let client = core.owned().get(self.bridge.py())?;
        let operation = self.operation(AckShape::OfVerb(returns))?;
        let sink: Arc<dyn ReplySink> = Arc::clone(&self.bridge().queue) as _;
        let reply = SinkReply::new(sink, self.keep(&operation)?);
        core.join(client, verb, payload, timeout, reply);
        let queue: Arc<dyn HandOver> = Arc::clone(core) as _;
        self.hand_over_soon(queue)?;
        Ok(operation)
    }

    /// Has what was submitted handed over when this tick ends.
    fn hand_over_soon(&self, queue: Arc<dyn HandOver>) -> PyResult<()> {
        let py = self.bridge.py();
        let bridge = self.bridge();
        bridge.list(queue);
        if !bridge.flush_comes.swap(true, Ordering::Relaxed) {
            let flush = self.bridge.getattr(interned!(py, "flush"))?;
            self.event_loop.call_method1(interned!(py, "call_soon"), (flush,))?;
        }
        Ok(())
    }

    /// Runs a call on the I/O thread; `convert` turns its result into a Python object, on the loop's thread.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, Operation>> {
        self.spawn_reply(async move {
            let value = call.await?;
            Ok(Reply::Call(Box::new(move |py| convert(py, value))))
        })
    }

    /// Runs a step through a source on the I/O thread.
    pub(crate) fn spawn_step(
        &self,
        step: impl Future<Output = Result<Step, Failure>> + Send + 'static,
    ) -> PyResult<Bound<'py, Operation>> {
        self.spawn_reply(async move { step.await.map(Reply::Step) })
    }

    /// Keeps an operation until its completion comes; returns its token.
    fn keep(&self, operation: &Bound<'py, Operation>) -> PyResult<u64> {
        let mut operations = self.bridge.get().operations.lock();
        if operations.len() >= MAX_OPERATIONS {
            drop(operations);
            let message = format!("{MAX_OPERATIONS} operations of this event loop are on their way");
            return Err(errors::back_pressure(self.bridge.py(), &message));
        }
        Ok(token_of(operations.insert(operation.clone().unbind())))
    }

    fn spawn_reply(
        &self,
        call: impl Future<Output = Result<Reply, Failure>> + Send + 'static,
    ) -> PyResult<Bound<'py, Operation>> {
        let bridge = self.bridge.get();
        let operation = self.operation(AckShape::None)?;
        let handle = runtime::handle(self.bridge.py())?;
        let promise = Promise {
            token: self.keep(&operation)?,
            queue: Arc::clone(&bridge.queue),
            kept: false,
        };
        let task = handle.spawn(async move {
            let reply = call.await.unwrap_or_else(Reply::Failed);
            promise.keep(reply);
        });
        operation.get().set_task(task.abort_handle());
        Ok(operation)
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
