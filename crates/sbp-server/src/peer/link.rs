//! The lasting end of a connection that comes and goes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sbp_locks::Mutex;
use sbp_messages::{Encoder, HeartbeatRequest, Message};
use sbp_transport::{Descriptors, Mailbox};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout_at;

use super::connection::{Call, Ended, PeerCommand};
use super::error::PeerError;

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
    /// Whether to be connected while nobody calls.
    pub(crate) stays: bool,
}

/// A way to a peer. Dropping it, or closing it, ends its connection.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(super) shared: Arc<Shared>,
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
    greeted: watch::Sender<u64>,
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
    /// Nobody has anything to say.
    Idle,
    /// A runner dials, or waits to dial again.
    Connecting,
    /// Connected; `generation` says by which connection.
    Ready {
        generation: u64,
        mailbox: Mailbox<PeerCommand>,
    },
}

impl PeerLink {
    /// A link whose tasks run on `runtime`. It dials when there is something to say, or at once where it `stays`.
    pub(crate) fn new(config: PeerConfig, runtime: Handle, descriptors: Arc<Descriptors>) -> Self {
        let stays = config.stays;
        let shared = Arc::new(Shared {
            config,
            descriptors,
            runtime,
            state: Mutex::new(State {
                phase: Phase::Idle,
                generation: 0,
                waiting: Vec::new(),
                last_failure: None,
                closed: false,
            }),
            changed: Notify::new(),
            greeted: watch::Sender::new(0),
        });
        if stays {
            shared.ensure_runner(&mut shared.state.lock());
        }
        Self { shared }
    }

    /// A link of its own to another peer, which is told the same, and at once.
    pub(crate) fn to(&self, address: &str) -> Self {
        let config = PeerConfig {
            addresses: vec![address.to_owned()],
            stays: true,
            ..self.shared.config.clone()
        };
        let shared = &self.shared;
        Self::new(config, shared.runtime.clone(), Arc::clone(&shared.descriptors))
    }

    /// Asks the peer, and waits for all frames of its answer. Sent again on another connection when one is lost, so only
    /// for requests that may be carried out twice.
    pub(crate) async fn call<Q: Message, A: Message>(
        &self,
        request: &Q,
        timeout: Duration,
    ) -> Result<Vec<A>, PeerError> {
        let deadline = Instant::now() + timeout;
        let mut header = BytesMut::new();
        request.encode(&mut Encoder::new(), &mut header);
        let header = header.freeze();
        let peer = || self.shared.name();
        loop {
            let (reply, answer) = oneshot::channel();
            self.shared.submit(Call {
                opcode: Q::OPCODE,
                header: header.clone(),
                deadline,
                reply,
            })?;
            let frames = match timeout_at(deadline.into(), answer).await {
                Ok(Ok(Ended::Answered(frames))) => frames,
                Ok(Ok(Ended::Refused(status))) => return Err(PeerError::Refused { peer: peer(), status }),
                Ok(Ok(Ended::Unusable(what))) => return Err(PeerError::Unusable { peer: peer(), what }),
                // The next one waits until the runner has dialled again.
                Ok(Ok(Ended::Lost(reason))) if Instant::now() < deadline => {
                    self.shared.note_failure(reason);
                    continue;
                }
                Ok(Ok(Ended::Closed) | Err(_)) => return Err(PeerError::Closed),
                Ok(Ok(Ended::Lost(_))) | Err(_) => {
                    return Err(PeerError::TimedOut {
                        peer: peer(),
                        waited: timeout,
                        last: self.shared.state.lock().last_failure.clone(),
                    });
                }
            };
            let answers = frames.iter().map(|frame| A::decode(&frame.header));
            return answers
                .collect::<Result<_, _>>()
                .map_err(|error| PeerError::undecodable(&peer(), &error));
        }
    }

    /// Tells of each connection on which the peer has answered: the number grows with every one. One that was there
    /// before is told too, so that nobody who asks a little late waits for the next.
    pub(crate) fn connections(&self) -> watch::Receiver<u64> {
        let mut connections = self.shared.greeted.subscribe();
        if *connections.borrow() > 0 {
            connections.mark_changed();
        }
        connections
    }

    /// Ends the connection after what was asked is answered; what waits for one is told.
    pub(crate) fn close(&self) {
        self.shared.close();
    }
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    /// The peer as errors name it.
    fn name(&self) -> String {
        self.config.addresses.join(",")
    }

    fn submit(self: &Arc<Self>, call: Call) -> Result<(), PeerError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(PeerError::Closed);
        }
        let unsent = match &state.phase {
            Phase::Ready { mailbox, .. } => mailbox.post(PeerCommand::Call(call)).err(),
            Phase::Idle | Phase::Connecting => Some(PeerCommand::Call(call)),
        };
        if let Some(PeerCommand::Call(call)) = unsent {
            state.waiting.retain(|waiting| !waiting.reply.is_closed());
            state.waiting.push(call);
            self.ensure_runner(&mut state);
        }
        Ok(())
    }

    /// Has a task dial unless one does.
    fn ensure_runner(self: &Arc<Self>, state: &mut State) {
        if matches!(state.phase, Phase::Idle) && !state.closed {
            state.phase = Phase::Connecting;
            self.runtime.spawn(Arc::clone(self).run());
        }
    }

    /// A connection takes nothing new any more: the next one is dialled while it finishes.
    pub(super) fn drains(self: &Arc<Self>, generation: u64) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Ready { generation: ready, .. } if ready == generation) {
            state.phase = Phase::Idle;
            if self.config.stays || !state.waiting.is_empty() {
                self.ensure_runner(&mut state);
            }
        }
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

    fn close(&self) {
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
