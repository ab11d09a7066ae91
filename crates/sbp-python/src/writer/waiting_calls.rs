//! Calls of an asynchronous writer that wait behind an append whose columns the client does not know.
//!
//! The stream may have been given them since it was described, so it is described again, without holding up the loop.
//! What is called meanwhile waits, so that records are taken in the order of the calls.

use std::collections::VecDeque;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use sbp_locks::Mutex;

use crate::bridge::Operation;

/// Calls in their order.
#[derive(Default)]
pub(crate) struct WriterQueue(Mutex<State>);

#[derive(Default)]
struct State {
    calls: VecDeque<QueuedCall>,
    /// From the first append that waits until nothing does.
    is_active: bool,
    /// Records of the appends that wait.
    records: u64,
}

/// A call that waits, and the operation that its caller has.
pub(crate) struct QueuedCall {
    pub(crate) call: WaitingCall,
    pub(crate) operation: Py<Operation>,
}

pub(crate) enum WaitingCall {
    Append(WaitingAppend),
    Flush { timeout: Option<f64> },
    Close,
}

/// What an append was given.
pub(crate) struct WaitingAppend {
    pub(crate) value: Py<PyAny>,
    pub(crate) key: Option<Py<PyAny>>,
    pub(crate) headers: Option<Py<PyAny>>,
    pub(crate) timestamp: Option<Py<PyAny>>,
    pub(crate) records: u64,
}

impl WaitingCall {
    fn records(&self) -> u64 {
        match self {
            Self::Append(kept) => kept.records,
            Self::Flush { .. } | Self::Close => 0,
        }
    }
}

impl WriterQueue {
    /// Whether calls wait, so that others wait behind them.
    pub(crate) fn is_active(&self) -> bool {
        self.0.lock().is_active
    }

    /// Records of the appends that wait.
    pub(crate) fn records(&self) -> u64 {
        self.0.lock().records
    }

    /// Puts a call behind those that wait.
    pub(crate) fn push(&self, queued: QueuedCall) {
        let mut state = self.0.lock();
        state.is_active = true;
        state.records += queued.call.records();
        state.calls.push_back(queued);
    }

    /// Puts a call back in front.
    pub(crate) fn push_front(&self, queued: QueuedCall) {
        let mut state = self.0.lock();
        state.records += queued.call.records();
        state.calls.push_front(queued);
    }

    /// The next call. Without any, calls do not have to wait any more.
    pub(crate) fn pop(&self) -> Option<QueuedCall> {
        let mut state = self.0.lock();
        let queued = state.calls.pop_front();
        match &queued {
            Some(queued) => state.records -= queued.call.records(),
            None => state.is_active = false,
        }
        queued
    }

    /// For the collector, which may come while the lock is held: then nothing can be garbage here.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(state) = self.0.try_lock() else {
            return Ok(());
        };
        state.calls.iter().try_for_each(|queued| {
            visit.call(&queued.operation)?;
            let WaitingCall::Append(kept) = &queued.call else {
                return Ok(());
            };
            visit.call(&kept.value)?;
            visit.call(&kept.key)?;
            visit.call(&kept.headers)?;
            visit.call(&kept.timestamp)
        })
    }

    pub(crate) fn clear(&self) {
        let abandoned = self.0.try_lock().map(|mut state| std::mem::take(&mut state.calls));
        // Dropping them may run Python code, so no lock is held.
        drop(abandoned);
    }
}
