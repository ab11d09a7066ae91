//! What a link shares with its connections, and with the task that makes them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_messages::HeartbeatRequest;
use sbp_transport::{Descriptors, Mailbox};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::call::{Call, Ended, PeerCommand};

/// Whom a link leads to, and who calls.
#[derive(Clone, Debug)]
pub(crate) struct PeerConfig {
    /// `host:port`, several to be tried in turn.
    pub(crate) addresses: Vec<String>,
    /// What the peer is told first on each connection, and again while it is idle.
    pub(crate) hello: HeartbeatRequest,
    /// How often it is told.
    pub(crate) heartbeat_interval: Duration,
    /// How long dialling, and the answer to a greeting, may take.
    pub(crate) connect_timeout: Duration,
    /// Whether to stay connected while no call is under way.
    pub(crate) stays: bool,
}

/// What the link shares with its connections.
pub(super) struct Shared {
    pub(super) config: PeerConfig,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) runtime: Handle,
    pub(super) state: Mutex<State>,
    /// Wakes whoever waits to dial.
    pub(super) changed: Notify,
    /// The number of the connection on which the peer has answered the greeting; 0 before the first.
    pub(super) greeted: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Counts connections.
    pub(super) generation: u64,
    /// What waits for a connection.
    pub(super) waiting: Vec<Call>,
    pub(super) last_failure: Option<String>,
    pub(super) closed: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Not connected, and no call waits for a connection.
    Idle,
    /// A runner dials, or waits to dial again.
    Connecting,
    /// Connected; `generation` says by which connection.
    Ready {
        generation: u64,
        mailbox: Mailbox<PeerCommand>,
    },
}

impl Shared {
    /// The peer as errors name it.
    pub(super) fn name(&self) -> String {
        self.config.addresses.join(",")
    }

    /// The peer has answered the greeting on this connection.
    pub(super) fn greeted(&self, generation: u64) {
        self.greeted.send_if_modified(|last| {
            let new = *last < generation;
            *last = (*last).max(generation);
            new
        });
    }

    pub(super) fn note_failure(&self, reason: impl Into<String>) {
        self.state.lock().last_failure = Some(reason.into());
    }

    pub(super) fn close(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.closed = true;
            if let Phase::Ready { mailbox, .. } = &state.phase {
                // An error means that it has ended already.
                drop(mailbox.post(PeerCommand::Close));
            }
            std::mem::take(&mut state.waiting)
        };
        self.changed.notify_waiters();
        for call in waiting {
            drop(call.reply.send(Ended::Closed));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerLink")
            .field("addresses", &self.config.addresses)
            .finish_non_exhaustive()
    }
}
