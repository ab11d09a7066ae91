//! One call, before it is decided which face makes it.

use std::future::Future;

use pyo3::prelude::*;

use crate::blocking::block_on;
use crate::bridge::{Here, Operation};
use crate::calls::Failure;

/// A call whose arguments are read and which either face can make: what it does over Rust data only, and what its result
/// becomes.
pub(crate) trait Verb {
    /// Makes the call and waits for it.
    fn block(self, py: Python<'_>) -> PyResult<Py<PyAny>>;

    /// Starts the call, for the loop that runs.
    fn spawn(self, py: Python<'_>) -> PyResult<Bound<'_, Operation>>;
}

/// The one kind of [`Verb`].
pub(crate) struct Call<F, C> {
    work: F,
    convert: C,
}

impl<F, C> Call<F, C> {
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

impl<F, C, T> Verb for Call<F, C>
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
        Here::now(py)?.spawn(self.work, self.convert)
    }
}
