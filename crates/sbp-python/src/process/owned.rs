//! What belongs to the process that made it, and is closed at some time: a client.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::errors;
use crate::process::fork::{self, Generation};

/// A client in the process that made it. In a forked child, where its threads are not, it is neither used nor dropped.
pub(crate) struct Owned<T> {
    /// `None` only while it is dropped.
    value: Option<T>,
    made_by: Generation,
    closed: AtomicBool,
    /// What errors call it.
    what: &'static str,
}

impl<T> Owned<T> {
    /// Made by this process.
    pub(crate) fn new(what: &'static str, value: T) -> Self {
        Self {
            value: Some(value),
            made_by: fork::current(),
            closed: AtomicBool::new(false),
            what,
        }
    }

    /// It, for one call.
    ///
    /// # Errors
    ///
    /// `ForkedClientError` in a child of the process that made it; `ClosedError` after `close`.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.made_by.check(py, self.what)?;
        match &self.value {
            Some(value) if !self.closed.load(Ordering::Relaxed) => Ok(value),
            _ => Err(errors::closed(py, self.what)),
        }
    }

    /// It, also when it is closed, in the process that made it.
    pub(crate) fn unchecked(&self) -> Option<&T> {
        self.inherited().filter(|_| self.made_by.is_current())
    }

    /// It, also in a child: for what takes no lock.
    pub(crate) fn inherited(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// The process that made it.
    pub(crate) fn made_by(&self) -> Generation {
        self.made_by
    }

    /// Refuses further calls. It, to be closed, if this was the first time, in its own process.
    pub(crate) fn close(&self) -> Option<T>
    where
        T: Clone,
    {
        if !self.made_by.is_current() || self.closed.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.value.clone()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.made_by.is_current() {
            // The threads that own its connections live in the parent.
            std::mem::forget(self.value.take());
        }
    }
}
