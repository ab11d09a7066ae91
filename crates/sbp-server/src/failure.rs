//! A failure the server lives on with, read-only.

use std::sync::Arc;

use sbp_locks::{Condvar, Mutex};

/// Why the server takes no more appends (the log failed) or creates no more streams (the metadata store failed). Reads
/// of synced data go on; only a restart, which re-reads the disk, brings the rest back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} failed: {reason}; synced data can still be read; check the disk, then restart the server")]
pub struct ServerFailure {
    /// The part that failed: `the log` or `the metadata store`.
    pub what: &'static str,
    /// The cause, in words.
    pub reason: String,
}

/// Whether the server works, as everybody in it and around it sees it.
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
    /// Remembers a failure. Only the first one counts.
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

    /// The server was shut down: nobody waits for a failure any more.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Blocks until there is a failure, or the server was shut down without one.
    pub(crate) fn wait(&self) -> Option<Arc<ServerFailure>> {
        let mut state = self.state.lock();
        while state.failure.is_none() && !state.stopped {
            self.changed.wait(&mut state);
        }
        state.failure.clone()
    }
}
