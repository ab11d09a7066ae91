//! Warnings and errors from places where nobody can be raised an exception to.

use std::ffi::CString;

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Warns in a category of Python's, as of the line that is running.
///
/// # Errors
///
/// The warning itself, where the program turns warnings into exceptions.
pub(crate) fn warn<W: PyTypeInfo>(py: Python<'_>, message: &str) -> PyResult<()> {
    let message = CString::new(message).map_err(|_| PyValueError::new_err("a zero byte in a warning"))?;
    PyErr::warn(py, &py.get_type::<W>(), &message, 1)
}

/// Runs `report` where an exception may be on its way already, as in a destructor: that one goes on afterwards.
pub(crate) fn beside_exception(py: Python<'_>, report: impl FnOnce()) {
    let pending = PyErr::take(py);
    report();
    if let Some(pending) = pending {
        pending.restore(py);
    }
}
