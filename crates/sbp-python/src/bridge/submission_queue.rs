//! What is submitted in one tick of an event loop, until it is handed to its client.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use sbp_client::{Client, ClientError, Reply, Submissions};
use sbp_locks::{Mutex, MutexGuard};
use sbp_peers::seastar::SinkReply;

use crate::append::prepared::{BackpressurePolicy, Prepared};
use crate::client_core::ClientCore;
use crate::owner::Owner;
use crate::requests::Failure;

/// Holds what was submitted, until the tick ends.
pub(crate) trait HandOver: Send + Sync {
    /// Hands it over.
    fn hand_over(&self);
}

/// Calls verbs, which take bytes and return bytes.
pub(crate) trait CallVerbs: Owner + HandOver {
    /// Makes one call.
    fn call(
        client: Self::Client,
        verb: u64,
        payload: Bytes,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Bytes, Failure>> + Send + 'static;

    /// Holds a call until those of this tick are handed over. Enough of them do not wait for its end.
    fn join(&self, client: &Self::Client, verb: u64, payload: Bytes, timeout: Option<Duration>, reply: SinkReply);
}

/// The appends of one client on one loop that were made in this tick and not yet handed over.
pub(super) struct SubmissionQueue {
    core: Weak<ClientCore>,
    work: Mutex<Submissions>,
}

impl SubmissionQueue {
    pub(super) fn new(core: &Arc<ClientCore>) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::downgrade(core),
            work: Mutex::new(Submissions::default()),
        })
    }

    /// Whether the lane is this client's.
    pub(super) fn is_of(&self, core: &Arc<ClientCore>) -> bool {
        std::ptr::eq(self.core.as_ptr(), Arc::as_ptr(core))
    }

    /// Whether the client is still in use.
    pub(super) fn is_alive(&self) -> bool {
        self.core.strong_count() > 0
    }

    /// Whether one more append may join.
    ///
    /// # Errors
    ///
    /// That as much is on its way as may be; with [`BackpressurePolicy::Wait`], that callers who wait for nothing have
    /// piled up more than the client's queue takes.
    pub(super) fn admit(
        &self,
        client: &Client,
        prepared: &Prepared,
        policy: BackpressurePolicy,
    ) -> Result<(), ClientError> {
        let work = self.work.lock();
        match policy {
            BackpressurePolicy::Fail => client.check_room(&work, prepared.bytes()),
            // Once for each hand-over is enough.
            BackpressurePolicy::Wait if work.is_empty() => client.check_queue(),
            BackpressurePolicy::Wait => Ok(()),
        }
    }

    /// Adds an append. Enough of them do not wait for the end of the tick: the I/O thread and the server work while the loop
    /// still resumes tasks.
    pub(super) fn join(&self, prepared: Prepared, reply: Reply) {
        let mut work = self.work.lock();
        prepared.join(&mut work, reply);
        if work.is_full() {
            self.submit(work);
        }
    }

    /// Without the client the appends are dropped, and answered by that.
    fn submit(&self, mut work: MutexGuard<'_, Submissions>) {
        let core = self.core.upgrade();
        match core.as_ref().and_then(|core| core.unchecked_client()) {
            Some(client) => {
                client.submit(&mut work);
                // Before `core`, which may be the last to hold its client.
                drop(work);
            }
            None => {
                let dropped = std::mem::take(&mut *work);
                // Dropping them answers them, which must not happen under the lock.
                drop(work);
                drop(dropped);
            }
        }
    }
}

impl HandOver for SubmissionQueue {
    fn hand_over(&self) {
        self.submit(self.work.lock());
    }
}
