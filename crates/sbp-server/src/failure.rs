//! Failures after which the server goes on, read-only.

use std::sync::Arc;

use sbp_locks::{Condvar, Mutex};

/// Why the server takes no more appends (the log failed) or creates no more streams (the metadata store failed). Synced
/// data can still be read. A restart, which reads the disk anew, is needed to write again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} failed: {reason}; synced data can still be read; check the disk, then restart the server")]
pub struct ServerFailure {
    /// The part that failed: `the log` or `the metadata store`.
    pub what: &'static str,
    /// The cause, in words.
    pub reason: String,
}

/// Whether the server has failed or stopped, for all its threads and its user.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The first failure; later ones follow from it.
    failure: Option<Arc<ServerFailure>>,
    stopped: bool,
}

impl Health {
    /// Stores a failure, unless there was one before.
    pub(crate) fn fail(&self, what: &'static str, reason: impl Into<String>) {
        let mut state = self.state.lock();
        if state.failure.is_none() {
            let failure = ServerFailure {
                what,
                reason: reason.into(),
            };
            tracing::error!(%failure, "the server has failed");
            state.failure = Some(Arc::new(failure));
            self.changed.notify_all();
        }
    }

    /// The first failure.
    pub(crate) fn failure(&self) -> Option<Arc<ServerFailure>> {
        self.state.lock().failure.clone()
    }

    /// Notes that the server was shut down, which ends all waits for a failure.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Blocks until there is a failure, or until the server is shut down without one.
    pub(crate) fn wait(&self) -> Option<Arc<ServerFailure>> {
        let mut state = self.state.lock();
        while state.failure.is_none() && !state.stopped {
            self.changed.wait(&mut state);
        }
        state.failure.clone()
    }
}
