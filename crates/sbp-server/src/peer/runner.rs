//! The task that keeps a link connected.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_session::{Session, SessionConfig};
use sbp_transport::{CloseReason, Socket, dial, drive, mailbox};
use tokio::net::TcpStream;

use super::call::{Call, PeerCommand};
use super::connection::PeerConnection;
use super::error::PeerError;
use super::shared::{Phase, Shared, State};

/// The first wait after a failure; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Servers have to find each other again well within the seconds that a restart may cost.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Shared {
    pub(super) fn submit(self: &Arc<Self>, call: Call) -> Result<(), PeerError> {
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
    pub(super) fn ensure_runner(self: &Arc<Self>, state: &mut State) {
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

    /// Connects, serves, and connects again while there is a reason to. One runner owns the phase `Connecting` at a
    /// time; one whose connection was replaced while it drained just ends.
    pub(super) async fn run(self: Arc<Self>) {
        let mut failures = 0_u32;
        while self.has_reason() {
            let Some(address) = self.address(failures) else { return };
            match dial(&address, self.config.connect_timeout).await {
                Err(error) => {
                    failures = failures.saturating_add(1);
                    self.note_failure(error.to_string());
                }
                Ok(socket) => match self.serve(socket, &address).await {
                    Served::Replaced => return,
                    Served::Orderly => failures = 0,
                    Served::Lost => failures = failures.saturating_add(1),
                },
            }
            self.pause(failures).await;
        }
    }

    /// Whether to be connected; where not, the runner is over.
    fn has_reason(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting.retain(|call| !call.reply.is_closed());
        let reason = !state.closed && (self.config.stays || !state.waiting.is_empty());
        if !reason {
            state.phase = Phase::Idle;
        }
        reason
    }

    /// The address for the next attempt: each in turn.
    fn address(&self, failures: u32) -> Option<String> {
        let addresses = &self.config.addresses;
        let count = u32::try_from(addresses.len()).ok()?;
        let index = usize::try_from(failures.checked_rem(count)?).ok()?;
        addresses.get(index).cloned()
    }

    async fn pause(&self, failures: u32) {
        if failures == 0 {
            return;
        }
        let bound = FIRST_PAUSE
            .saturating_mul(1 << failures.saturating_sub(1).min(10))
            .min(LONGEST_PAUSE);
        let changed = self.changed.notified();
        tokio::select! {
            () = tokio::time::sleep(bound.mul_f64(0.5 + fastrand::f64() / 2.0)) => {}
            () = changed => {}
        }
    }

    async fn serve(self: &Arc<Self>, socket: TcpStream, address: &str) -> Served {
        let mut config = SessionConfig::client();
        config.heartbeat_interval = self.config.heartbeat_interval;
        let session = Session::new(config, Instant::now());
        let (mailbox, inbox) = mailbox();
        let generation = {
            let mut state = self.state.lock();
            state.generation += 1;
            let generation = state.generation;
            let mut commands: Vec<_> = state.waiting.drain(..).map(PeerCommand::Call).collect();
            if state.closed {
                commands.push(PeerCommand::Close);
            }
            // Nobody else has the other end yet, so it is open.
            mailbox.post_all(&mut commands);
            state.phase = Phase::Ready { generation, mailbox };
            generation
        };
        let connection = PeerConnection::new(Arc::clone(self), generation);
        let reason = drive(Socket::new(socket, &self.descriptors), session, connection, inbox).await;
        tracing::debug!(address, %reason, "the connection to a peer ended");
        let mut state = self.state.lock();
        match state.phase {
            Phase::Ready { generation: ready, .. } if ready == generation => {
                state.phase = Phase::Connecting;
                state.last_failure = Some(reason.to_string());
                match reason {
                    CloseReason::WentAway => Served::Orderly,
                    _ => Served::Lost,
                }
            }
            _ => Served::Replaced,
        }
    }
}

/// How a connection ended, for the runner that made it.
enum Served {
    /// Another runner takes care of the next one.
    Replaced,
    /// It was meant to end.
    Orderly,
    /// It broke.
    Lost,
}
