//! Callbacks of an operation.
#![allow(
    unsafe_code,
    reason = "one call without a tuple and a bound method around it, for every operation that is awaited"
)]

use pyo3::ffi;
use pyo3::prelude::*;

use crate::interpreter::once::interned;

/// A callback to call when the operation is done, and the context to call it in.
pub(crate) struct Waiter {
    pub(super) callback: Py<PyAny>,
    pub(super) context: Py<PyAny>,
}

impl Waiter {
    /// Calls the callback inside its context: `context.run(callback, operation)`.
    pub(super) fn run(&self, py: Python<'_>, operation: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = interned!(py, "run");
        let end: *mut ffi::PyObject = std::ptr::null_mut();
        // SAFETY: all arguments are objects that `self`, `operation` and the interned name keep alive during the call, and
        // the list ends with null. What comes back is a new reference, or null with the exception set.
        unsafe {
            let result = ffi::PyObject_CallMethodObjArgs(
                self.context.as_ptr(),
                name.as_ptr(),
                self.callback.as_ptr(),
                operation.as_ptr(),
                end,
            );
            Bound::from_owned_ptr_or_err(py, result)
        }
        .map(drop)
    }
}
