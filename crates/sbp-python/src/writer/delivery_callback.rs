//! The callback of a writer that is told what became of its batches.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use sbp_locks::Mutex;

use crate::writer::core::WriterCore;

/// The callable given as `on_delivery`, if one was. Without it, the writer raises the first failure.
pub(crate) struct DeliveryCallback(Mutex<Option<Py<PyAny>>>);

impl DeliveryCallback {
    pub(crate) fn new(callback: Option<Py<PyAny>>) -> Self {
        Self(Mutex::new(callback))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Tells the callback what became of batches. Without one, raises the first failure.
    pub(crate) fn deliver(&self, py: Python<'_>, writer: &WriterCore) -> PyResult<()> {
        let callback = self.0.lock().as_ref().map(|callback| callback.clone_ref(py));
        match callback {
            Some(callback) => writer.tell(py, &callback),
            None => writer.check(py),
        }
    }

    /// For the collector, which may come while the lock is held: then nothing can be garbage.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.0.try_lock().as_deref() {
            Some(Some(callback)) => visit.call(callback),
            _ => Ok(()),
        }
    }

    pub(crate) fn clear(&self) {
        let callback = self.0.try_lock().and_then(|mut callback| callback.take());
        // Dropping it may run Python code, so no lock is held.
        drop(callback);
    }
}
