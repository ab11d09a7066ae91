//! What the methods of asynchronous classes are made of; see [`crate::api::pair`].

use pyo3::prelude::*;

pub(crate) use crate::api::batches::AsyncBatches as Batches;
use crate::bridge::Operation;
use crate::call::Call;
pub(crate) use crate::call::append::{start as append, start_all as append_all, start_each as append_each};
pub(crate) use crate::writer::asyncio::AsyncWriter as Writer;

/// What a call returns: the operation that it is, which can be awaited.
pub(crate) type Returned<'py> = PyResult<Bound<'py, Operation>>;

/// Starts a call.
pub(crate) fn run<'py>(py: Python<'py>, call: impl Call) -> Returned<'py> {
    call.spawn(py)
}
