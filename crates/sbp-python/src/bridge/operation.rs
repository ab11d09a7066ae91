//! The awaitable that every asynchronous call returns.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use tokio::task::AbortHandle;

use super::queue::Reply;
use crate::ack::AckShape;
use crate::attach::attach;
use crate::fork::{self, Generation};
use crate::imports;

/// A call that is on its way, with the whole protocol of an asyncio future, so that `await`, `gather`, `wait`, `wait_for`
/// and `shield` take it as it is, without a task around it.
///
/// It belongs to the loop it was made on and is only used from that loop's thread. Its result stays in Rust form until
/// somebody asks for it.
#[pyclass(frozen, module = "sbp_native", name = "Operation")]
pub(crate) struct Operation {
    event_loop: Py<PyAny>,
    made_by: Generation,
    shape: Mutex<AckShape>,
    state: Mutex<State>,
    task: Mutex<Option<AbortHandle>>,
    blocking: AtomicBool,
    retrieved: AtomicBool,
}

/// Somebody to call when the operation is done, and the context to do it in.
pub(crate) struct Waiter {
    callback: Py<PyAny>,
    context: Py<PyAny>,
}

enum State {
    Pending {
        first: Option<Waiter>,
        others: Vec<Waiter>,
    },
    /// The outcome is here, in Rust form.
    Arrived(Reply),
    /// The outcome is being turned into a Python object.
    Converting,
    Finished(PyResult<Py<PyAny>>),
    Cancelled(Option<Py<PyAny>>),
}

impl State {
    const NEW: Self = Self::Pending {
        first: None,
        others: Vec::new(),
    };
}

impl Operation {
    pub(crate) fn new(event_loop: Py<PyAny>, shape: AckShape) -> Self {
        Self {
            event_loop,
            made_by: fork::current(),
            shape: Mutex::new(shape),
            state: Mutex::new(State::NEW),
            task: Mutex::new(None),
            blocking: AtomicBool::new(false),
            retrieved: AtomicBool::new(false),
        }
    }

    /// An operation whose outcome is known before it starts.
    pub(crate) fn finished(event_loop: Py<PyAny>, outcome: PyResult<Py<PyAny>>) -> Self {
        let operation = Self::new(event_loop, AckShape::None);
        *operation.state.lock() = State::Finished(outcome);
        operation
    }

    /// Has `cancel` abort the task that runs the call.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        *self.task.lock() = Some(task);
    }

    /// What an append's outcome becomes, for an operation that learns it late.
    pub(crate) fn set_shape(&self, shape: AckShape) {
        *self.shape.lock() = shape;
    }

    /// Whether an outcome is here, or nobody wants one any more.
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(&*self.state.lock(), State::Pending { .. })
    }

    /// Stores the outcome and returns who waits for it. A cancelled operation drops a late outcome.
    pub(crate) fn complete(&self, reply: Reply) -> (Option<Waiter>, Vec<Waiter>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Converting) {
            State::Pending { first, others } => {
                *state = State::Arrived(reply);
                (first, others)
            }
            settled => {
                *state = settled;
                (None, Vec::new())
            }
        }
    }

    /// The outcome as Python sees it. `None` while it has not come.
    fn outcome(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let mut state = self.state.lock();
        match &*state {
            State::Pending { .. } => return None,
            State::Finished(outcome) => {
                self.retrieved.store(true, Ordering::Relaxed);
                return Some(match outcome {
                    Ok(value) => Ok(value.clone_ref(py)),
                    Err(error) => Err(error.clone_ref(py)),
                });
            }
            State::Cancelled(message) => return Some(Err(cancelled_error(py, message.as_ref()))),
            State::Converting => {
                return Some(Err(PyRuntimeError::new_err(
                    "the result is being made by a call further up",
                )));
            }
            State::Arrived(_) => {}
        }
        let State::Arrived(reply) = std::mem::replace(&mut *state, State::Converting) else {
            unreachable!("looked at above, under the same lock");
        };
        // Making Python objects may run other code, which may ask this operation something.
        drop(state);
        let shape = std::mem::replace(&mut *self.shape.lock(), AckShape::None);
        let outcome = reply.into_python(py, &shape);
        self.retrieved.store(true, Ordering::Relaxed);
        let copy = match &outcome {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        };
        *self.state.lock() = State::Finished(outcome);
        Some(copy)
    }

    /// Gives the operation an outcome that was not delivered by an I/O thread.
    pub(crate) fn settle(slf: &Bound<'_, Self>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
        let this = slf.get();
        let (first, others) = {
            let mut state = this.state.lock();
            match std::mem::replace(&mut *state, State::Converting) {
                State::Pending { first, others } => {
                    *state = State::Finished(outcome);
                    (first, others)
                }
                settled => {
                    *state = settled;
                    return Ok(());
                }
            }
        };
        for waiter in first.iter().chain(&others) {
            this.call_soon(slf.py(), slf, waiter)?;
        }
        Ok(())
    }

    /// Has a callback called in the loop's next turn.
    pub(super) fn call_soon(&self, py: Python<'_>, operation: &Bound<'_, Self>, waiter: &Waiter) -> PyResult<()> {
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "context"), &waiter.context)?;
        self.event_loop.bind(py).call_method(
            intern!(py, "call_soon"),
            (&waiter.callback, operation),
            Some(&keywords),
        )?;
        Ok(())
    }
}

impl Waiter {
    /// Calls the callback inside its context.
    pub(crate) fn run(&self, py: Python<'_>, operation: &Bound<'_, Operation>) -> PyResult<()> {
        self.context
            .bind(py)
            .call_method1(intern!(py, "run"), (&self.callback, operation))
            .map(drop)
    }
}

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
            // A tuple of one: a result that is itself a tuple must not become the arguments.
            Some(Ok(value)) => Err(PyStopIteration::new_err((value,))),
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
        let (first, others) = {
            let mut state = this.state.lock();
            if !matches!(&*state, State::Pending { .. }) {
                return Ok(false);
            }
            match std::mem::replace(&mut *state, State::Cancelled(msg)) {
                State::Pending { first, others } => (first, others),
                _ => unreachable!("looked at above, under the same lock"),
            }
        };
        if let Some(task) = this.task.lock().take() {
            task.abort();
        }
        for waiter in first.iter().chain(&others) {
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
            if let State::Pending { first, others } = &mut *state {
                if first.is_none() && others.is_empty() {
                    *first = Some(waiter);
                } else {
                    others.push(waiter);
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
            State::Pending { first, others } => first.take().into_iter().chain(others.drain(..)).collect::<Vec<_>>(),
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
        if let State::Pending { others, .. } = &mut *self.state.lock() {
            kept.append(others);
            *others = kept;
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
            State::Pending { .. } => "pending",
            State::Cancelled(_) => "cancelled",
            State::Arrived(_) | State::Converting | State::Finished(Ok(_)) => "done",
            State::Finished(Err(error)) => return format!("<sbp_native.Operation failed: {}>", error.value(py)),
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
            State::Pending { first, others } => {
                for waiter in first.iter().chain(others) {
                    visit.call(&waiter.callback)?;
                    visit.call(&waiter.context)?;
                }
                Ok(())
            }
            State::Finished(Ok(value)) => visit.call(value),
            State::Cancelled(Some(message)) => visit.call(message),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        let old = self
            .state
            .try_lock()
            .map(|mut state| std::mem::replace(&mut *state, State::Cancelled(None)));
        drop(old);
    }
}

impl Drop for Operation {
    /// Reports a failure that nobody asked for, as asyncio's own futures do: a write that failed must not go unnoticed.
    fn drop(&mut self) {
        let state = std::mem::replace(self.state.get_mut(), State::Cancelled(None));
        let unseen = !self.retrieved.load(Ordering::Relaxed) && self.made_by.is_current();
        let State::Arrived(Reply::Failed(error)) = state else {
            return;
        };
        if !unseen {
            return;
        }
        attach(|py| {
            // The drop may happen while another exception is on its way.
            let pending = PyErr::take(py);
            let report = PyDict::new(py);
            let told = report
                .set_item("message", "an SBP operation failed and nobody asked for its outcome")
                .and_then(|()| report.set_item("exception", error.into_python(py).into_value(py)))
                .and_then(|()| {
                    self.event_loop
                        .bind(py)
                        .call_method1("call_exception_handler", (report,))
                });
            if let Err(error) = told {
                error.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

fn cancelled_error(py: Python<'_>, message: Option<&Py<PyAny>>) -> PyErr {
    let made = imports::cancelled_error(py).and_then(|class| match message {
        Some(message) => class.call1((message,)),
        None => class.call0(),
    });
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

fn not_ready(py: Python<'_>, message: &str) -> PyErr {
    match imports::invalid_state_error(py).and_then(|class| class.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
