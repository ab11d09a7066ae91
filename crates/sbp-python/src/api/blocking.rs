//! What the methods of blocking classes are made of; see [`crate::api::pair`].

use pyo3::prelude::*;

pub(crate) use crate::api::batches::Batches;
use crate::call::Call;
pub(crate) use crate::call::append::{block as append, block_all as append_all, block_each as append_each};
pub(crate) use crate::writer::blocking::Writer;

/// What a call returns: its result.
pub(crate) type Returned<'py> = PyResult<Py<PyAny>>;

/// Makes a call and waits for it.
pub(crate) fn run<'py>(py: Python<'py>, call: impl Call) -> Returned<'py> {
    call.block(py)
}
