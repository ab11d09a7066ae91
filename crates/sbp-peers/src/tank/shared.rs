//! What a broker's client shares with its connections: where the broker is, and the calls that no connection has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_tank::{Answer, ClientConfig, CloseReason, ConsumedPartition, Request};
use sbp_transport::{
    BackOff, ChannelQueue, Descriptors, DialError, LinkSettings, ReconnectPolicy, ReconnectingChannel,
};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::error::TankErrorKind;

/// The pauses between attempts to connect, and between requests that a broker answers at once with nothing.
pub(super) const BACK_OFF: BackOff = BackOff {
    first: Duration::from_millis(20),
    longest: Duration::from_secs(1),
    least: 0.5,
};

/// Bundles that are taken out of one answer: each takes memory of its own, and may have no more than a byte. Those behind them
/// are asked for again.
const MOST_BUNDLES: usize = 1 << 20;
/// Bytes of bundles that are taken out of one answer, unless the first one alone has more. A broker is asked for fewer, and may
/// answer more all the same; those behind them are asked for again.
const MOST_BYTES: usize = 128 << 20;

/// What a Consume brought.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) partitions: Vec<ConsumedPartition>,
    /// Bundles in their order, each with the place of its partition.
    pub(super) bundles: Vec<(usize, Bytes)>,
    /// Bundles that were cut: the place of the partition, and the bundle's length; 0: unknown.
    pub(super) cut: Vec<(usize, usize)>,
    /// Bytes of the bundles.
    pub(super) length: usize,
    /// No more is taken.
    pub(super) is_full: bool,
}

impl Fetched {
    pub(super) fn add(&mut self, place: usize, bundle: Bytes) {
        let length = self.length.saturating_add(bundle.len());
        let is_too_much = length > MOST_BYTES && !self.bundles.is_empty();
        self.is_full |= is_too_much || self.bundles.len() >= MOST_BUNDLES;
        if !self.is_full {
            self.length = length;
            self.bundles.push((place, bundle));
        }
    }

    pub(super) fn add_cut(&mut self, place: usize, length: usize) {
        if !self.is_full {
            self.cut.push((place, length));
        }
    }
}

/// How a call ended.
#[derive(Debug)]
pub(super) enum Ended {
    Answered(Answer),
    Fetched(Fetched),
    /// There is no connection to the broker, or none any more.
    Lost {
        why: String,
        bytes_sent: bool,
    },
    /// The broker broke the protocol before the answer was complete.
    Broken {
        kind: TankErrorKind,
        why: String,
    },
    /// The request cannot be sent.
    Unfit(String),
    /// The client was closed before the request was sent.
    Closed,
}

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Ended>,
}

/// What a connection is told.
#[derive(Debug)]
pub(super) enum Command {
    Call(Call),
    Close,
}

/// Calls that no connection has.
#[derive(Debug, Default)]
pub(super) struct Queue(Vec<Call>);

impl ChannelQueue for Queue {
    type Command = Command;
    type Learned = ();

    fn wants_connection(&mut self) -> bool {
        self.0.retain(|call| !call.reply.is_closed());
        !self.0.is_empty()
    }

    fn take(&mut self) -> Vec<Command> {
        self.0.drain(..).map(Command::Call).collect()
    }

    fn put_back(&mut self, commands: Vec<Command>) {
        self.0.extend(commands.into_iter().filter_map(|command| match command {
            Command::Call(call) => Some(call),
            Command::Close => None,
        }));
    }
}

/// What a broker's client shares with its connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) channel: ReconnectingChannel<Queue>,
    pub(super) client: ClientConfig,
    /// Whether there is a connection; told under the channel's lock.
    connected: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(
        address: &str,
        timeout: Duration,
        client: ClientConfig,
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
            client,
            connected: watch::Sender::new(false),
        })
    }

    /// Hands a call to the connection, or makes one for it.
    pub(super) fn submit(self: &Arc<Self>, call: Call) {
        let mut state = self.channel.lock();
        if state.reconnect.is_closed() {
            drop(state);
            return tell(call, Ended::Closed);
        }
        if let Err(Command::Call(call)) = state.post(Command::Call(call)) {
            state.queue.0.push(call);
            self.channel.ensure_connecting(self, &mut state);
        }
    }

    /// Whether there is a connection, now and from now on.
    pub(super) fn watch_connected(&self) -> watch::Receiver<bool> {
        self.connected.subscribe()
    }

    /// Tells who watches whether there is a connection.
    pub(super) fn note_connection(&self) {
        let state = self.channel.lock();
        self.connected.send_replace(state.ready().is_some());
    }

    /// Where the broker is.
    pub(super) fn name(&self) -> String {
        self.channel.name()
    }

    /// The broker has greeted.
    pub(super) fn greeted(&self) {
        self.channel.lock().reconnect.attempts.reached();
    }

    /// A connection takes no new call any more.
    pub(super) fn drains(self: &Arc<Self>, generation: u64, reason: &CloseReason) {
        let mut state = self.channel.lock();
        state.closing(reason);
        if state.reconnect.drains(generation) {
            self.channel.ensure_connecting(self, &mut state);
        }
        self.connected.send_replace(state.ready().is_some());
    }

    /// Who waits is told at once: whether to try again, and for how long, is decided there.
    pub(super) fn give_up_waiting(&self, error: &DialError) {
        let mut state = self.channel.lock();
        state.dial_failed(error);
        let waiting = std::mem::take(&mut state.queue.0);
        drop(state);
        for call in waiting {
            let ended = Ended::Lost {
                why: error.to_string(),
                bytes_sent: false,
            };
            tell(call, ended);
        }
    }

    pub(super) fn close(&self) {
        let left = self.channel.close(|| Command::Close);
        for call in left.unwrap_or_default().0 {
            tell(call, Ended::Closed);
        }
    }

    pub(super) async fn wait_closed(&self) {
        self.channel.wait_closed().await;
    }
}

/// A receiver that is gone has given up on the call.
pub(super) fn tell(call: Call, ended: Ended) {
    drop(call.reply.send(ended));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_answer_takes_up_is_bounded_in_bundles_too() {
        let mut fetched = Fetched::default();
        for place in 0..MOST_BUNDLES + 9 {
            fetched.add(place, Bytes::new());
        }
        fetched.add_cut(MOST_BUNDLES + 9, 0);
        // Those behind the last one are asked for again: none of them is taken without those in front of it.
        assert_eq!(fetched.bundles.last().map(|(place, _)| *place), Some(MOST_BUNDLES - 1));
        assert_eq!(fetched.cut, []);
    }

    #[test]
    fn what_one_answer_takes_up_is_bounded_in_bytes() {
        let bundle = Bytes::from(vec![0; MOST_BYTES / 2]);
        let mut fetched = Fetched::default();
        for place in 0..4 {
            fetched.add(place, bundle.clone());
        }
        // One that would fit does not come without those in front of it.
        fetched.add(4, Bytes::from_static(b"x"));
        fetched.add_cut(5, 0);
        let places: Vec<_> = fetched.bundles.iter().map(|(place, _)| *place).collect();
        assert_eq!(
            (places.as_slice(), fetched.cut.as_slice()),
            ([0, 1].as_slice(), [].as_slice())
        );
        // The first one is taken whatever its length is: else nothing would ever come.
        let mut fetched = Fetched::default();
        fetched.add(0, Bytes::from(vec![0; MOST_BYTES + 1]));
        fetched.add(0, bundle);
        assert_eq!(fetched.bundles.len(), 1);
    }
}
