//! Whoever has a client that Python objects share: of an SBP service, or of something else.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::process::blocking::block_on;
use crate::process::owned::Owned;
use crate::requests::Failure;
use crate::time::duration;

/// Has a client, in the process that made it.
pub(crate) trait Owner: Send + Sync + 'static {
    /// What calls are made with.
    type Client: Clone + Send + Sync + 'static;

    /// The client.
    fn owned(&self) -> &Owned<Self::Client>;
}

impl<O: Owner> Owner for Arc<O> {
    type Client = O::Client;

    fn owned(&self) -> &Owned<O::Client> {
        O::owned(self)
    }
}

/// The same for who uses the client in another way than by a call.
pub(crate) trait Guard: Send + Sync + 'static {
    /// Refuses what is closed, and what a parent made.
    fn check(&self, py: Python<'_>) -> PyResult<()>;

    /// Whether this process made the client.
    fn is_of_this_process(&self) -> bool;
}

impl<O: Owner> Guard for O {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.owned().get(py).map(drop)
    }

    fn is_of_this_process(&self) -> bool {
        self.owned().made_by().is_current()
    }
}

/// Makes a call and waits for it: `work` is done by the I/O thread, over Rust data only.
pub(crate) fn block<O, T, E, F>(
    py: Python<'_>,
    owner: &O,
    timeout: Option<f64>,
    work: impl FnOnce(O::Client, Option<Duration>) -> F,
) -> PyResult<T>
where
    O: Owner,
    T: Send + 'static,
    E: Into<Failure> + Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let work = work(owner.owned().get(py)?.clone(), duration(timeout)?);
    block_on(py, work)?.map_err(|failure| failure.into().into_python(py))
}

/// What a pickle carries of a client that is made by a function of this module from an address and keywords.
pub(crate) fn made_anew<'py>(
    maker: &str,
    address: Option<&str>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = keywords.py();
    let partial = py.import("functools")?.getattr("partial")?;
    let maker = partial.call((py.import("sbp_native._native")?.getattr(maker)?,), Some(keywords))?;
    Ok((maker, (address,)).into_pyobject(py)?.into_any())
}
