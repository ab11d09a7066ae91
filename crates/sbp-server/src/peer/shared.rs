//! What a channel to a peer shares with its connections: whom it leads to, and the calls that no connection has.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_messages::HeartbeatRequest;
use sbp_session::CloseReason;
use sbp_transport::{
    BackOff, ChannelQueue, ClientTls, Descriptors, LinkSettings, ReconnectPolicy, ReconnectingChannel,
};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::call::{Call, Ended, PeerCommand};
use super::error::PeerError;
use crate::cluster_id::OwnCluster;

/// The pauses between attempts to connect: servers have to find each other again well within the seconds that a restart may
/// cost.
const BACK_OFF: BackOff = BackOff {
    first: Duration::from_millis(20),
    longest: Duration::from_millis(500),
    least: 0.5,
};

/// Whom a channel leads to, and who calls.
#[derive(Clone, Debug)]
pub(crate) struct PeerConfig {
    /// `host:port`, several to be tried in turn.
    pub(crate) addresses: Vec<String>,
    /// What the peer is told first on each connection, and again while it is idle.
    pub(crate) hello: HeartbeatRequest,
    /// The highest term that this range server has followed, which the peer is told with that.
    pub(crate) followed: Option<Arc<AtomicU64>>,
    /// How often it is told.
    pub(crate) heartbeat_interval: Duration,
    /// How long dialling, and the answer to a greeting, may take.
    pub(crate) connect_timeout: Duration,
    /// How the peer is talked to where it speaks TLS.
    pub(crate) tls: Option<Arc<ClientTls>>,
    /// Says who calls. `None`: no token is shown.
    pub(crate) token: Option<PeerToken>,
    /// The cluster of this server, of which the peer has to be too.
    pub(crate) cluster: Arc<OwnCluster>,
    /// Whether to stay connected while no call is under way.
    pub(crate) stays: bool,
}

/// The token that says who calls.
#[derive(Clone, Debug)]
pub(crate) struct PeerToken {
    /// The file that it is in, read for each connection and when the peer asks for another.
    pub(crate) path: PathBuf,
    /// Whether it may be sent without TLS to a peer that is not on this machine.
    pub(crate) in_clear: bool,
}

/// What a channel shares with its connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: PeerConfig,
    pub(super) channel: ReconnectingChannel<PeerQueue>,
    /// The number of the connection on which the peer has answered the greeting; 0 before the first.
    pub(super) greeted: watch::Sender<u64>,
    /// The number of the connection on which the peer answers now; 0 when there is none.
    standing: AtomicU64,
    /// When the peer answered last, and for whom it has not yet, when this was made.
    heard: Mutex<Instant>,
    /// Whether it has been logged that the token is not sent in clear.
    pub(super) has_kept_secret: AtomicBool,
}

/// Calls that no connection has.
#[derive(Debug, Default)]
pub(super) struct PeerQueue {
    /// A connection is wanted although no call waits.
    stays: bool,
    pub(super) calls: Vec<Call>,
}

impl ChannelQueue for PeerQueue {
    type Command = PeerCommand;
    type Learned = ();

    fn wants_connection(&mut self) -> bool {
        self.calls.retain(|call| !call.reply.is_closed());
        self.stays || !self.calls.is_empty()
    }

    fn take(&mut self) -> Vec<PeerCommand> {
        self.calls.drain(..).map(PeerCommand::Call).collect()
    }

    fn put_back(&mut self, commands: Vec<PeerCommand>) {
        self.calls
            .extend(commands.into_iter().filter_map(|command| match command {
                PeerCommand::Call(call) => Some(call),
                PeerCommand::Token { .. } | PeerCommand::Close => None,
            }));
    }
}

impl Shared {
    pub(super) fn new(config: PeerConfig, runtime: Handle, sockets: Arc<Descriptors>) -> Arc<Self> {
        let policy = ReconnectPolicy {
            addresses: config.addresses.len(),
            attempts_per_round: 1,
            back_off: BACK_OFF,
            longest_before_reached: BACK_OFF.longest,
            forgets_when_idle: true,
        };
        let addresses = config.addresses.iter().map(|address| Arc::from(address.as_str()));
        let links = LinkSettings {
            timeout: config.connect_timeout,
            tls: config.tls.clone(),
            sockets,
        };
        let channel = ReconnectingChannel::<PeerQueue>::new(addresses.collect(), links, policy, false, runtime);
        channel.lock().queue.stays = config.stays;
        let shared = Arc::new(Self {
            config,
            channel,
            greeted: watch::Sender::new(0),
            standing: AtomicU64::new(0),
            heard: Mutex::new(Instant::now()),
            has_kept_secret: AtomicBool::new(false),
        });
        shared.channel.ensure_connecting(&shared, &mut shared.channel.lock());
        shared
    }

    pub(super) fn submit(self: &Arc<Self>, call: Call) -> Result<(), PeerError> {
        let mut state = self.channel.lock();
        if state.reconnect.is_closed() {
            return Err(PeerError::Closed);
        }
        if let Err(PeerCommand::Call(call)) = state.post(PeerCommand::Call(call)) {
            state.queue.calls.push(call);
            self.channel.ensure_connecting(self, &mut state);
        }
        Ok(())
    }

    /// The peer has answered the greeting on this connection.
    pub(super) fn greeted(&self, generation: u64) {
        self.channel.lock().reconnect.attempts.reached();
        let before = self.standing.swap(generation, Ordering::Relaxed);
        if self.config.stays && before == 0 {
            tracing::info!(peer = self.channel.name(), "connected to a server");
        }
        self.greeted.send_if_modified(|last| {
            let new = *last < generation;
            *last = (*last).max(generation);
            new
        });
    }

    /// A connection has ended. If it was the one on which the peer answered, the peer is lost until the next one stands.
    pub(super) fn ended(&self, generation: u64, reason: &CloseReason) {
        let relaxed = Ordering::Relaxed;
        let lost = self.standing.compare_exchange(generation, 0, relaxed, relaxed).is_ok();
        if lost && self.config.stays && !self.channel.lock().reconnect.is_closed() {
            self.note_failure(reason.to_string());
            tracing::warn!(peer = self.channel.name(), %reason, "lost the connection to a server; dialling it again");
        }
    }

    /// The peer has answered something.
    pub(super) fn note_heard(&self) {
        *self.heard.lock() = Instant::now();
    }

    /// For how long it has not.
    pub(super) fn silence(&self) -> Duration {
        self.heard.lock().elapsed()
    }

    /// The number of the connection on which the peer answers now; 0 when there is none.
    pub(super) fn standing(&self) -> u64 {
        self.standing.load(Ordering::Relaxed)
    }

    /// The two servers do not talk with each other, which is as good as no connection.
    pub(super) fn not_greeted(&self, why: String) {
        self.channel.lock().lost(why);
    }

    /// A connection takes nothing new any more, because the peer goes away, or because it closes: the next one is made while
    /// it finishes.
    pub(super) fn drains(self: &Arc<Self>, generation: u64, closing: Option<&CloseReason>) {
        let mut state = self.channel.lock();
        if let Some(reason) = closing {
            state.closing(reason);
        }
        if state.reconnect.drains(generation) {
            self.channel.ensure_connecting(self, &mut state);
        }
    }

    /// What went wrong last, if a connection was lost or not made.
    pub(super) fn last_failure(&self) -> Option<String> {
        self.channel.lock().last_failure.clone()
    }

    pub(super) fn note_failure(&self, reason: String) {
        self.channel.lock().last_failure = Some(reason);
    }

    pub(super) fn close(&self) {
        let left = self.channel.close(|| PeerCommand::Close);
        for call in left.unwrap_or_default().calls {
            // Who does not wait any more need not know.
            drop(call.reply.send(Ended::Closed));
        }
    }
}
