//! One lasting way to a peer that answers calls: over a connection that is made when there is something to ask, and again
//! when it is lost. What the protocols of peers have in common above their state machines.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_transport::{
    Application, BackOff, ChannelOwner, ChannelQueue, Descriptors, DialError, LinkSettings, ReconnectPolicy,
    ReconnectingChannel, TransportStats,
};
use sbp_wire::Reason;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

/// The pauses between attempts to connect, and between requests that a peer answers at once with nothing.
pub(crate) const BACK_OFF: BackOff = BackOff {
    first: Duration::from_millis(20),
    longest: Duration::from_secs(1),
    least: 0.5,
};

/// What is asked of a peer, and over what.
pub(crate) trait Peer: Debug + Send + Sync + Sized + 'static {
    /// What is asked.
    type Request: Debug + Send + 'static;
    /// How a call ended.
    type Ended: Debug + Send + 'static;
    /// Who is told that.
    type Waiter: Waiter<Self>;
    /// A connection and its calls.
    type Connection: Application<Command = Command<Self>>;

    /// This end of a connection that begins now.
    fn endpoint(&self, now: Instant) -> <Self::Connection as Application>::Endpoint;

    /// A new connection, with a number that no other one of the same way has.
    fn connection(shared: Arc<Shared<Self>>, generation: u64) -> Self::Connection;

    /// The end of a call that was not sent, because there is no connection.
    fn unsent(why: String) -> Self::Ended;

    /// The end of a call that was not sent, because the client was closed.
    fn closed() -> Self::Ended;
}

/// Whoever waits for the end of a call.
pub(crate) trait Waiter<P: Peer>: Debug + Send + 'static {
    /// Takes it, with what was asked.
    fn tell(self, request: P::Request, ended: P::Ended);

    /// Whether nobody waits any more.
    fn is_closed(&self) -> bool;
}

impl<P: Peer> Waiter<P> for oneshot::Sender<P::Ended> {
    /// A receiver that is gone has given up on the call.
    fn tell(self, _: P::Request, ended: P::Ended) {
        drop(self.send(ended));
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }
}

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Call<P: Peer> {
    pub(crate) request: P::Request,
    pub(crate) reply: P::Waiter,
}

impl<P: Peer> Call<P> {
    pub(crate) fn tell(self, ended: P::Ended) {
        self.reply.tell(self.request, ended);
    }
}

/// What a connection is told.
#[derive(Debug)]
pub(crate) enum Command<P: Peer> {
    Call(Call<P>),
    Close,
}

/// Calls that no connection has.
#[derive(Debug)]
pub(crate) struct Queue<P: Peer>(Vec<Call<P>>);

impl<P: Peer> Default for Queue<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: Peer> ChannelQueue for Queue<P> {
    type Command = Command<P>;
    type Learned = ();

    fn wants_connection(&mut self) -> bool {
        self.0.retain(|call| !call.reply.is_closed());
        !self.0.is_empty()
    }

    fn take(&mut self) -> Vec<Command<P>> {
        self.0.drain(..).map(Command::Call).collect()
    }

    fn put_back(&mut self, commands: Vec<Command<P>>) {
        self.0.extend(commands.into_iter().filter_map(|command| match command {
            Command::Call(call) => Some(call),
            Command::Close => None,
        }));
    }
}

/// What a client shares with its connections to one peer.
#[derive(Debug)]
pub(crate) struct Shared<P: Peer> {
    pub(crate) channel: ReconnectingChannel<Queue<P>>,
    pub(crate) peer: P,
    /// Whether there is a connection; told under the channel's lock.
    connected: watch::Sender<bool>,
}

impl<P: Peer> Shared<P> {
    pub(crate) fn new(
        address: &str,
        timeout: Duration,
        peer: P,
        sockets: Arc<Descriptors>,
        runtime: Handle,
    ) -> Arc<Self> {
        let policy = ReconnectPolicy {
            addresses: 1,
            attempts_per_round: 1,
            back_off: BACK_OFF,
            longest_before_reached: BACK_OFF.longest,
            forgets_when_idle: true,
        };
        let links = LinkSettings {
            timeout,
            tls: None,
            sockets,
        };
        let addresses = vec![Arc::from(address)];
        Arc::new(Self {
            channel: ReconnectingChannel::new(addresses, links, policy, false, runtime),
            peer,
            connected: watch::Sender::new(false),
        })
    }

    /// Hands a call to the connection, or makes one for it.
    pub(crate) fn submit(self: &Arc<Self>, call: Call<P>) {
        let mut state = self.channel.lock();
        if state.reconnect.is_closed() {
            drop(state);
            return call.tell(P::closed());
        }
        if let Err(Command::Call(call)) = state.post(Command::Call(call)) {
            state.queue.0.push(call);
            self.channel.ensure_connecting(self, &mut state);
        }
    }

    /// Hands calls to the connection, with one wake-up for all of them. What it leaves in `commands` was not handed over: there
    /// is no connection.
    pub(crate) fn post_all(&self, commands: &mut Vec<Command<P>>) {
        let state = self.channel.lock();
        if let Some(ready) = state.ready() {
            ready.mailbox.post_all(commands);
        }
    }

    /// Whether there is a connection, now and from now on.
    pub(crate) fn watch_connected(&self) -> watch::Receiver<bool> {
        self.connected.subscribe()
    }

    /// Tells who watches whether there is a connection.
    fn note_connection(&self) {
        let state = self.channel.lock();
        self.connected.send_replace(state.ready().is_some());
    }

    /// Where the peer is.
    pub(crate) fn name(&self) -> String {
        self.channel.name()
    }

    /// The peer has greeted.
    pub(crate) fn greeted(&self) {
        self.channel.lock().reconnect.attempts.reached();
    }

    /// A connection takes no new call any more.
    pub(crate) fn drains(self: &Arc<Self>, generation: u64, reason: &impl Reason) {
        let mut state = self.channel.lock();
        state.closing(reason);
        if state.reconnect.drains(generation) {
            self.channel.ensure_connecting(self, &mut state);
        }
        self.connected.send_replace(state.ready().is_some());
    }

    pub(crate) fn close(&self) {
        let left = self.channel.close(|| Command::Close);
        for call in left.unwrap_or_default().0 {
            call.tell(P::closed());
        }
    }

    pub(crate) async fn wait_closed(&self) {
        self.channel.wait_closed().await;
    }
}

impl<P: Peer> ChannelOwner for Shared<P> {
    type Queue = Queue<P>;
    type Connection = P::Connection;

    fn channel(&self) -> &ReconnectingChannel<Queue<P>> {
        &self.channel
    }

    fn endpoint(&self, now: Instant) -> <P::Connection as Application>::Endpoint {
        self.peer.endpoint(now)
    }

    fn connection(self: Arc<Self>, _address: &Arc<str>, generation: u64) -> P::Connection {
        self.note_connection();
        P::connection(self, generation)
    }

    /// Who waits is told at once: whether to try again, and for how long, is decided there.
    fn dial_failed(self: &Arc<Self>, error: &DialError) {
        let mut state = self.channel.lock();
        state.dial_failed(error);
        let waiting = std::mem::take(&mut state.queue.0);
        drop(state);
        for call in waiting {
            call.tell(P::unsent(error.to_string()));
        }
    }

    fn connection_ended(&self, _generation: u64, _driver: &TransportStats) {
        self.note_connection();
    }
}
