//! The awaitable that every asynchronous call returns.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use sbp_locks::Mutex;
use sbp_python_macros::stub_docs;
use tokio::task::AbortHandle;

use super::completion_queue::Reply;
use super::waiter::Waiter;
use crate::interpreter::attach::attach;
use crate::interpreter::imports;
use crate::interpreter::once::interned;
use crate::interpreter::warnings::beside_exception;
use crate::process::fork::{self, Generation};
use crate::results::ack::AckShape;

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "Operation")]
pub(crate) struct Operation {
    event_loop: Py<PyAny>,
    made_by: Generation,
    state: Mutex<State>,
    blocking: AtomicBool,
    retrieved: AtomicBool,
}

/// An outcome in Python form. The exception is kept as an object, which the garbage collector can look into: its
/// traceback often leads back to the frame that holds the operation.
type Outcome = Result<Py<PyAny>, Py<PyBaseException>>;

enum State {
    Pending(Pending),
    /// The outcome is here, in Rust form.
    Arrived(Reply, AckShape),
    /// The outcome is being turned into a Python object.
    Converting,
    Finished(Outcome),
    Cancelled(Option<Py<PyAny>>),
}

/// What an operation knows before it has an outcome.
struct Pending {
    first: Option<Waiter>,
    others: Vec<Waiter>,
    /// What the outcome of an append becomes.
    shape: AckShape,
    /// The task that runs the call, if one does: it ends with the operation.
    task: Option<AbortHandle>,
}

impl Pending {
    fn new(shape: AckShape) -> Self {
        Self {
            first: None,
            others: Vec::new(),
            shape,
            task: None,
        }
    }

    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.first.iter().chain(&self.others)
    }
}

impl Operation {
    pub(crate) fn new(event_loop: Py<PyAny>, shape: AckShape) -> Self {
        Self::with(event_loop, State::Pending(Pending::new(shape)))
    }

    /// An operation whose outcome is known before it starts.
    pub(crate) fn finished(py: Python<'_>, event_loop: Py<PyAny>, outcome: PyResult<Py<PyAny>>) -> Self {
        Self::with(event_loop, State::Finished(stored(py, outcome)))
    }

    fn with(event_loop: Py<PyAny>, state: State) -> Self {
        Self {
            event_loop,
            made_by: fork::current(),
            state: Mutex::new(state),
            blocking: AtomicBool::new(false),
            retrieved: AtomicBool::new(false),
        }
    }

    /// Has `cancel` abort the task that runs the call.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        if let State::Pending(pending) = &mut *self.state.lock() {
            pending.task = Some(task);
        }
    }

    /// The task that runs the call, while it does.
    pub(crate) fn task(&self) -> Option<AbortHandle> {
        match &*self.state.lock() {
            State::Pending(pending) => pending.task.clone(),
            _ => None,
        }
    }

    /// What an append's outcome becomes, for an operation that learns it late.
    pub(crate) fn set_shape(&self, shape: AckShape) {
        if let State::Pending(pending) = &mut *self.state.lock() {
            pending.shape = shape;
            pending.task = None;
        }
    }

    /// Whether an outcome is here, or nobody wants one any more.
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(&*self.state.lock(), State::Pending(_))
    }

    /// Stores the outcome and returns who waits for it. A cancelled operation drops a late outcome.
    pub(crate) fn complete(&self, mut reply: Reply) -> (Option<Waiter>, Vec<Waiter>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Converting) {
            State::Pending(pending) => {
                reply.deliver();
                *state = State::Arrived(reply, pending.shape);
                (pending.first, pending.others)
            }
            settled => {
                *state = settled;
                drop(state);
                // What it gives back when it is dropped must not find the lock taken.
                drop(reply);
                (None, Vec::new())
            }
        }
    }

    /// The outcome for who asks for it: nobody needs to be told of a failure any more. `None` while it has not come.
    fn outcome(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let outcome = self.seen(py);
        if outcome.is_some() {
            self.retrieved.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// The outcome as Python sees it. `None` while it has not come.
    fn seen(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let mut state = self.state.lock();
        match &*state {
            State::Pending(_) => return None,
            State::Finished(outcome) => return Some(retrieved(py, outcome)),
            State::Cancelled(message) => return Some(Err(cancelled_error(py, message.as_ref()))),
            State::Converting => {
                return Some(Err(PyRuntimeError::new_err(
                    "the result is being made by a call further up",
                )));
            }
            State::Arrived(..) => {}
        }
        let State::Arrived(reply, shape) = std::mem::replace(&mut *state, State::Converting) else {
            unreachable!("looked at above, under the same lock");
        };
        // Making Python objects may run other code, which may ask this operation something.
        drop(state);
        let outcome = stored(py, reply.into_python(py, &shape));
        let copy = retrieved(py, &outcome);
        *self.state.lock() = State::Finished(outcome);
        Some(copy)
    }

    /// Gives the operation an outcome that was not delivered by an I/O thread.
    pub(crate) fn settle(slf: &Bound<'_, Self>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        let outcome = stored(py, outcome);
        let pending = {
            let mut state = this.state.lock();
            match std::mem::replace(&mut *state, State::Converting) {
                State::Pending(pending) => {
                    *state = State::Finished(outcome);
                    pending
                }
                settled => {
                    *state = settled;
                    return Ok(());
                }
            }
        };
        for waiter in pending.waiters() {
            this.call_soon(py, slf, waiter)?;
        }
        Ok(())
    }

    /// Has a callback called in the loop's next turn.
    pub(super) fn call_soon(&self, py: Python<'_>, operation: &Bound<'_, Self>, waiter: &Waiter) -> PyResult<()> {
        let keywords = PyDict::new(py);
        keywords.set_item(interned!(py, "context"), &waiter.context)?;
        self.event_loop.bind(py).call_method(
            interned!(py, "call_soon"),
            (&waiter.callback, operation),
            Some(&keywords),
        )?;
        Ok(())
    }
}

#[stub_docs]
#[pymethods]
impl Operation {
    /// `Operation[Ack]`, as annotations that are evaluated need it.
    #[classmethod]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        imports::generic_alias(class.py())?.call1((class, item))
    }

    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let this = slf.get();
        match this.outcome(slf.py()) {
            None => {
                this.blocking.store(true, Ordering::Relaxed);
                Ok(slf.clone())
            }
            Some(Ok(value)) => Err(stop_iteration(slf.py(), value)),
            Some(Err(error)) => Err(error),
        }
    }

    #[pyo3(signature = (_value, /))]
    fn send<'py>(slf: &Bound<'py, Self>, _value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        Self::__next__(slf)
    }

    fn done(&self) -> bool {
        self.is_settled()
    }

    fn cancelled(&self) -> bool {
        matches!(&*self.state.lock(), State::Cancelled(_))
    }

    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let this = slf.get();
        let mut pending = {
            let mut state = this.state.lock();
            if !matches!(&*state, State::Pending(_)) {
                return Ok(false);
            }
            match std::mem::replace(&mut *state, State::Cancelled(msg)) {
                State::Pending(pending) => pending,
                _ => unreachable!("looked at above, under the same lock"),
            }
        };
        if let Some(task) = pending.task.take() {
            task.abort();
        }
        for waiter in pending.waiters() {
            this.call_soon(slf.py(), slf, waiter)?;
        }
        Ok(true)
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.outcome(py)
            .unwrap_or_else(|| Err(not_ready(py, "Result is not ready.")))
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let State::Cancelled(message) = &*self.state.lock() {
            return Err(cancelled_error(py, message.as_ref()));
        }
        match self.outcome(py) {
            None => Err(not_ready(py, "Exception is not set.")),
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) => Ok(Some(error.into_value(py).into_any())),
        }
    }

    /// What went wrong with an operation that is done, for who only looks on: a failure that nobody else asks for is
    /// still reported.
    fn _failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let error = self.seen(py)?.err()?;
        Some(error.into_value(py).into_any())
    }

    #[pyo3(signature = (callback, /, *, context = None))]
    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let context = match context {
            Some(context) => context,
            None => imports::copy_context(py)?.call0()?.unbind(),
        };
        let waiter = Waiter { callback, context };
        let this = slf.get();
        {
            let mut state = this.state.lock();
            if let State::Pending(pending) = &mut *state {
                if pending.first.is_none() && pending.others.is_empty() {
                    pending.first = Some(waiter);
                } else {
                    pending.others.push(waiter);
                }
                return Ok(());
            }
        }
        this.call_soon(py, slf, &waiter)
    }

    #[pyo3(signature = (callback, /))]
    fn remove_done_callback(&self, py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        // Comparing runs Python code, so the list is taken out while it is looked through.
        let mut waiters = match &mut *self.state.lock() {
            State::Pending(pending) => {
                let others = pending.others.drain(..);
                pending.first.take().into_iter().chain(others).collect::<Vec<_>>()
            }
            _ => return Ok(0),
        };
        let before = waiters.len();
        let mut kept = Vec::with_capacity(before);
        for waiter in waiters.drain(..) {
            if !waiter.callback.bind(py).eq(callback)? {
                kept.push(waiter);
            }
        }
        let removed = before - kept.len();
        if let State::Pending(pending) = &mut *self.state.lock() {
            kept.append(&mut pending.others);
            pending.others = kept;
        }
        Ok(removed)
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    #[getter(_asyncio_future_blocking)]
    fn blocking(&self) -> bool {
        self.blocking.load(Ordering::Relaxed)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        self.blocking.store(blocking, Ordering::Relaxed);
    }

    #[getter(_cancel_message)]
    fn cancel_message(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.state.lock() {
            State::Cancelled(Some(message)) => Some(message.clone_ref(py)),
            _ => None,
        }
    }

    fn _make_cancelled_error(&self, py: Python<'_>) -> Py<PyAny> {
        let message = self.cancel_message(py);
        cancelled_error(py, message.as_ref()).into_value(py).into_any()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let word = match &*self.state.lock() {
            State::Pending(_) => "pending",
            State::Cancelled(_) => "cancelled",
            State::Arrived(reply, _) if reply.is_failure() => "failed",
            State::Arrived(..) | State::Converting | State::Finished(Ok(_)) => "done",
            State::Finished(Err(error)) => {
                let class = error.bind(py).get_type();
                let name = class
                    .name()
                    .map_or_else(|_| "error".to_owned(), |name| name.to_string());
                return format!("<sbp_native.Operation failed: {name}>");
            }
        };
        format!("<sbp_native.Operation {word}>")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        // The collector runs while some other call of this thread may hold the lock; then nothing can be garbage here.
        let Some(state) = self.state.try_lock() else {
            return Ok(());
        };
        match &*state {
            State::Pending(pending) => {
                for waiter in pending.waiters() {
                    visit.call(&waiter.callback)?;
                    visit.call(&waiter.context)?;
                }
                Ok(())
            }
            State::Finished(Ok(value)) => visit.call(value),
            State::Finished(Err(error)) => visit.call(error),
            State::Cancelled(Some(message)) => visit.call(message),
            State::Cancelled(None) | State::Arrived(..) | State::Converting => Ok(()),
        }
    }

    /// Breaks cycles. A failure that nobody has asked for stays: it is reported when the operation is dropped.
    fn __clear__(&self) {
        let old = self.state.try_lock().and_then(|mut state| match &*state {
            State::Arrived(..) | State::Converting => None,
            State::Finished(Err(_)) if !self.retrieved.load(Ordering::Relaxed) => None,
            _ => Some(std::mem::replace(&mut *state, State::Cancelled(None))),
        });
        if let Some(State::Pending(Pending { task: Some(task), .. })) = &old
            && self.made_by.is_current()
        {
            task.abort();
        }
        drop(old);
    }
}

impl Drop for Operation {
    /// Reports a failure that nobody asked for, as asyncio's own futures do: a write that failed must not go unnoticed.
    /// Ends the call of an operation that nobody can await any more.
    fn drop(&mut self) {
        let state = std::mem::replace(self.state.get_mut(), State::Cancelled(None));
        if !self.made_by.is_current() {
            return;
        }
        let retrieved = self.retrieved.load(Ordering::Relaxed);
        match state {
            State::Pending(Pending { task: Some(task), .. }) => task.abort(),
            State::Arrived(reply, shape) if reply.is_failure() => {
                attach(|py| {
                    if let Err(error) = reply.into_python(py, &shape) {
                        self.report(py, error);
                    }
                });
            }
            State::Finished(Err(error)) if !retrieved => {
                attach(|py| self.report(py, PyErr::from_value(error.into_bound(py).into_any())));
            }
            _ => {}
        }
    }
}

impl Operation {
    /// Tells the loop of a failure that nobody has seen.
    fn report(&self, py: Python<'_>, error: PyErr) {
        beside_exception(py, || {
            let report = PyDict::new(py);
            let told = report
                .set_item("message", "an SBP operation failed and nobody asked for its outcome")
                .and_then(|()| report.set_item("exception", error.value(py)))
                .and_then(|()| {
                    let event_loop = self.event_loop.bind(py);
                    event_loop.call_method1("call_exception_handler", (report,))
                });
            if told.is_err() {
                // The loop is on its way out with everything else.
                error.write_unraisable(py, None);
            }
        });
    }
}

/// An outcome as an operation stores it.
fn stored(py: Python<'_>, outcome: PyResult<Py<PyAny>>) -> Outcome {
    outcome.map_err(|error| error.into_value(py))
}

/// A stored outcome, for one more caller.
fn retrieved(py: Python<'_>, outcome: &Outcome) -> PyResult<Py<PyAny>> {
    match outcome {
        Ok(value) => Ok(value.clone_ref(py)),
        Err(error) => Err(PyErr::from_value(error.bind(py).clone().into_any())),
    }
}

/// The end of an `await`, with its result. The result stands for the exception that carries it, which the interpreter then
/// need not make; but a tuple would become the exception's arguments, and an exception the exception itself.
fn stop_iteration(py: Python<'_>, value: Py<PyAny>) -> PyErr {
    let bound = value.bind(py);
    if bound.is_instance_of::<PyTuple>() || bound.is_instance_of::<PyBaseException>() {
        PyStopIteration::new_err((value,))
    } else {
        PyStopIteration::new_err(value)
    }
}

fn cancelled_error(py: Python<'_>, message: Option<&Py<PyAny>>) -> PyErr {
    let made = imports::cancelled_error(py).and_then(|class| match message {
        Some(message) => class.call1((message,)),
        None => class.call0(),
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

fn not_ready(py: Python<'_>, message: &str) -> PyErr {
    let made = imports::invalid_state_error(py).and_then(|class| class.call1((message,)));
    made.map_or_else(|error| error, PyErr::from_value)
}
