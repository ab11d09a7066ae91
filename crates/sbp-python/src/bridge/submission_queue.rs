//! Appends of one tick of an event loop, until they are handed to their client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use sbp_client::{Client, ClientError, Reply, Submissions};
use sbp_locks::{Mutex, MutexGuard};

use crate::append::prepared::{BackpressurePolicy, Prepared};
use crate::client_core::ClientCore;

/// The appends of one client on one loop that were made in this tick and not yet handed over.
pub(super) struct SubmissionQueue {
    core: Weak<ClientCore>,
    work: Mutex<Submissions>,
    listed: AtomicBool,
}

impl SubmissionQueue {
    pub(super) fn new(core: &Arc<ClientCore>) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::downgrade(core),
            work: Mutex::new(Submissions::default()),
            listed: AtomicBool::new(false),
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

    /// Adds an append. Returns whether it is the first of this tick. Enough of them do not wait for the end of the tick: the
    /// I/O thread and the server work while the loop still resumes tasks.
    pub(super) fn join(&self, prepared: Prepared, reply: Reply) -> bool {
        let mut work = self.work.lock();
        prepared.join(&mut work, reply);
        if work.is_full() {
            self.submit(work);
        }
        !self.listed.swap(true, Ordering::Relaxed)
    }

    /// Hands the appends over. Without the client they are dropped, and answered by that.
    pub(super) fn hand_over(&self) {
        self.listed.store(false, Ordering::Relaxed);
        self.submit(self.work.lock());
    }

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
