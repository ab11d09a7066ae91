//! Python names that are looked up once.

use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;

use crate::interpreter::once::OncePy;

/// Functions that give an attribute of a module.
macro_rules! imported {
    ($($name:ident = $module:literal . $attribute:literal;)*) => {
        $(
            pub(crate) fn $name<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
                static CELL: OncePy<PyAny> = OncePy::new();
                CELL.get(py, || Ok(py.import($module)?.getattr($attribute)?.unbind()))
            }
        )*
    };
}

imported! {
    get_running_loop = "asyncio"."get_running_loop";
    cancelled_error = "asyncio"."CancelledError";
    invalid_state_error = "asyncio"."InvalidStateError";
    copy_context = "contextvars"."copy_context";
    weak_key_dictionary = "weakref"."WeakKeyDictionary";
    memoryview = "builtins"."memoryview";
    generic_alias = "types"."GenericAlias";
    ask_for_token = "sbp_native._token"."ask";
    to_thread = "asyncio"."to_thread";
}

/// A library that this package does without, for a call that cannot: `what` says which. `extra` is how it is installed
/// beside this package.
///
/// # Errors
///
/// `ModuleNotFoundError`, which says what to do.
pub(crate) fn library<'py>(py: Python<'py>, name: &str, what: &str, extra: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(name).map_err(|error| {
        let absent = error.is_instance_of::<PyModuleNotFoundError>(py)
            && error
                .value(py)
                .getattr("name")
                .is_ok_and(|missing| missing.eq(name).unwrap_or(false));
        if !absent {
            return error;
        }
        let said = PyModuleNotFoundError::new_err(format!(
            "{what} needs {name}, which is not installed: pip install {extra}"
        ));
        let named = said.value(py).setattr("name", name);
        said.set_cause(py, Some(error));
        match named {
            Ok(()) => said,
            Err(error) => error,
        }
    })
}

/// Whether an event loop runs on this thread. Where nobody has imported asyncio, none does.
pub(crate) fn in_running_loop(py: Python<'_>) -> PyResult<bool> {
    let modules = py.import("sys")?.getattr("modules")?;
    match modules.get_item("asyncio") {
        Ok(asyncio) if !asyncio.is_none() => Ok(!asyncio.call_method0("_get_running_loop")?.is_none()),
        _ => Ok(false),
    }
}
