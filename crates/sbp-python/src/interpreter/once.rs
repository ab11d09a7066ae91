//! Python objects that are made once and kept for good, in cells that a fork cannot break.
//!
//! PyO3's own cells mark themselves as being initialised and then let go of the interpreter: a fork by another thread at
//! that moment leaves the child with a cell that nobody finishes, and it waits for ever. Here the object is made first. It
//! is put into its cell by an attached thread that lets go of nothing meanwhile, so no fork comes between. Two threads may
//! both make one; the first one stays.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// A cell for one object.
pub(crate) struct OncePy<T>(OnceLock<Py<T>>);

impl<T> OncePy<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The object, made if there is none yet.
    pub(crate) fn get<'py>(
        &'static self,
        py: Python<'py>,
        make: impl FnOnce() -> PyResult<Py<T>>,
    ) -> PyResult<&'py Bound<'py, T>> {
        if let Some(kept) = self.0.get() {
            return Ok(kept.bind(py));
        }
        let made = make()?;
        Ok(self.0.get_or_init(|| made).bind(py))
    }
}

impl OncePy<PyString> {
    /// `text` as a string that the interpreter has once; see [`interned!`].
    pub(crate) fn interned<'py>(&'static self, py: Python<'py>, text: &str) -> &'py Bound<'py, PyString> {
        if let Some(kept) = self.0.get() {
            return kept.bind(py);
        }
        let made = PyString::intern(py, text).unbind();
        self.0.get_or_init(|| made).bind(py)
    }
}

/// A string literal as a Python string that is looked up once.
macro_rules! interned {
    ($py:expr, $text:literal) => {{
        static NAME: crate::interpreter::once::OncePy<pyo3::types::PyString> = crate::interpreter::once::OncePy::new();
        NAME.interned($py, $text)
    }};
}

pub(crate) use interned;
