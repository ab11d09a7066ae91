//! Calls, before it is decided whether a thread waits for them or an event loop awaits them.

pub(crate) mod append;
pub(crate) mod stream_calls;

use std::future::Future;

use pyo3::prelude::*;

use crate::bridge::{Operation, RunningLoop};
use crate::process::blocking::block_on;
use crate::requests::Failure;

/// A call whose arguments are read: what it does on the I/O thread, over Rust data only, and what its result becomes in
/// Python.
pub(crate) trait Call {
    /// Makes the call and waits for it.
    fn block(self, py: Python<'_>) -> PyResult<Py<PyAny>>;

    /// Starts the call, for the loop that runs.
    fn spawn(self, py: Python<'_>) -> PyResult<Bound<'_, Operation>>;
}

/// A [`Call`] made of a future for the I/O thread and the conversion of its result.
pub(crate) struct RequestCall<F, C> {
    work: F,
    convert: C,
}

impl<F, C> RequestCall<F, C> {
    /// A call that does `work` on the I/O thread; `convert` runs attached, and turns its result into what Python sees.
    pub(crate) fn new<T>(work: F, convert: C) -> Self
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
        C: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
        T: Send + 'static,
    {
        Self { work, convert }
    }
}

impl<F, C, T> Call for RequestCall<F, C>
where
    F: Future<Output = Result<T, Failure>> + Send + 'static,
    C: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    T: Send + 'static,
{
    fn block(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let outcome = block_on(py, self.work)?;
        (self.convert)(py, outcome.map_err(|failure| failure.into_python(py))?)
    }

    fn spawn(self, py: Python<'_>) -> PyResult<Bound<'_, Operation>> {
        RunningLoop::current(py)?.spawn(self.work, self.convert)
    }
}
