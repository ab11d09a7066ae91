//! The one interpreter of a process that this module works in.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Refuses to be imported by any interpreter but the main one: what is kept for the process (types, names, the queue of log
/// events, the client's threads) belongs to that one.
#[expect(unsafe_code, reason = "there is no other way to ask which interpreter this is")]
pub(crate) fn check(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: both calls only need a thread that is attached, which the argument proves; the state lives at least as long
    // as the call, because its interpreter runs it.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "sbp_native works in the main interpreter of a process, not in a subinterpreter: use processes or threads (under \
         mod_wsgi, \"WSGIApplicationGroup %{GLOBAL}\")",
    ))
}
