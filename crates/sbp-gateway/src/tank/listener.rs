//! Where clients connect.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_client::Client;
use sbp_locks::Mutex;
use sbp_tank::{Connection, ServerConfig};
use sbp_transport::{
    Acceptor, AcceptorSettings, Admitted, Descriptors, Entrance, ListenError, LogRateLimiter, Mailbox, Memory, Place,
    PlaceLimits, Places, Reception, listen,
};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

use super::Shared;
use super::command::Command;
use super::connection::TankConnection;

/// Sockets that are remembered, beside those of connections.
const SOCKETS: usize = 16;

/// How clients are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TankConfig {
    /// Where they connect, `host:port`; port 0 takes any free one.
    pub listen: String,
    /// Whether other machines may connect, although they could do everything.
    pub insecure_listen: bool,
    /// Connections at once.
    pub max_connections: usize,
    /// How many of them one address may have.
    pub max_connections_per_address: usize,
    /// Bytes that all connections together may hold.
    pub max_held_bytes: u64,
}

impl TankConfig {
    /// As usual, at this address.
    #[must_use]
    pub fn new(listen: &str) -> Self {
        Self {
            listen: listen.to_owned(),
            insecure_listen: false,
            max_connections: 4_096,
            max_connections_per_address: 4_096,
            max_held_bytes: 1 << 30,
        }
    }
}

/// Why clients cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TankError {
    /// It is no address.
    #[error("clients of TANK cannot connect at {address}: {source}")]
    Address {
        /// The address asked for.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Other machines could reach it.
    #[error(
        "other machines could connect to {address} and do everything, because TANK has no passwords: listen on 127.0.0.1, or say \
         insecure_listen (--insecure-listen) if the network is trusted"
    )]
    Insecure {
        /// The address asked for.
        address: String,
    },
    /// Nothing can be accepted there.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// A broker for clients of TANK.
#[derive(Debug)]
pub struct TankServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    /// `None` once it was closed.
    accepting: Mutex<Option<JoinHandle<()>>>,
    guests: Arc<Guests>,
    shared: Arc<Shared>,
    sockets: Arc<Descriptors>,
}

impl TankServer {
    /// Serves clients of TANK from the streams of the service that `client` is one of. Everything runs in the client's runtime.
    ///
    /// # Errors
    /// [`TankError`].
    pub fn start(client: &Client, config: &TankConfig) -> Result<Self, TankError> {
        Self::start_with(client, config, ServerConfig::default())
    }

    /// As [`Self::start`], with limits for each connection that are not the usual ones.
    ///
    /// # Errors
    /// [`TankError`].
    pub fn start_with(client: &Client, config: &TankConfig, each: ServerConfig) -> Result<Self, TankError> {
        check_address(config)?;
        let runtime = client.runtime().clone();
        let _inside = runtime.enter();
        let listener = listen(&config.listen)?;
        let address = listener.local_addr().map_err(|source| TankError::Address {
            address: config.listen.clone(),
            source,
        })?;
        let guests = Arc::new(Guests::default());
        let sockets = Descriptors::new(config.max_connections.saturating_add(SOCKETS));
        let shared = Arc::new(Shared::new(client));
        let doorkeeper = Doorkeeper {
            shared: Arc::clone(&shared),
            places: Places::new(PlaceLimits {
                known: config.max_connections,
                known_from_one: config.max_connections_per_address,
                strangers: 0,
            }),
            guests: Arc::clone(&guests),
            each,
            too_many: LogRateLimiter::default(),
        };
        let settings = AcceptorSettings {
            home: runtime.clone(),
            descriptors: Arc::clone(&sockets),
            memory: Memory::new(config.max_held_bytes),
            tls: None,
            handshake_timeout: Duration::ZERO,
        };
        let entrance = Entrance {
            listener,
            is_plain: true,
        };
        let (stop, stopped) = watch::channel(false);
        let accepting = runtime.spawn(Acceptor::new(doorkeeper, settings).run(entrance, stopped));
        Ok(Self {
            address,
            stop,
            accepting: Mutex::new(Some(accepting)),
            guests,
            shared,
            sockets,
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The descriptors of its sockets. Takes no lock: a forked child closes them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.sockets.snapshot()
    }

    /// Accepts nobody more, and ends all connections. What was handed over to the service is stored or not, as it would be
    /// were a connection lost. Whoever calls it first waits until that is done.
    pub async fn close(&self) {
        let Some(accepting) = self.accepting.lock().take() else {
            return;
        };
        // Nobody listens where the task has ended.
        let _ = self.stop.send(true);
        drop(accepting.await);
        self.guests.end();
        self.shared.watch.close().await;
    }
}

/// Refuses addresses that other machines can reach, unless they may.
fn check_address(config: &TankConfig) -> Result<(), TankError> {
    if config.insecure_listen {
        return Ok(());
    }
    let address = || config.listen.clone();
    let mut resolved = config.listen.to_socket_addrs().map_err(|source| TankError::Address {
        address: address(),
        source,
    })?;
    match resolved.all(|candidate| candidate.ip().is_loopback()) {
        true => Ok(()),
        false => Err(TankError::Insecure { address: address() }),
    }
}

/// The mailboxes of open connections.
#[derive(Debug, Default)]
struct Guests {
    state: Mutex<GuestList>,
}

#[derive(Debug, Default)]
struct GuestList {
    last: u64,
    open: std::collections::HashMap<u64, Mailbox<Command>>,
}

impl Guests {
    fn enter(&self, mailbox: Mailbox<Command>) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.open.insert(number, mailbox);
        number
    }

    fn leave(&self, number: u64) {
        self.state.lock().open.remove(&number);
    }

    fn end(&self) {
        for mailbox in self.state.lock().open.values() {
            // It may have ended just now.
            drop(mailbox.post(Command::GiveUp));
        }
    }
}

/// Lets connections in and serves them.
#[derive(Debug)]
struct Doorkeeper {
    shared: Arc<Shared>,
    places: Arc<Places>,
    guests: Arc<Guests>,
    /// How each connection is served.
    each: ServerConfig,
    too_many: LogRateLimiter,
}

/// A connection that was let in.
#[derive(Debug)]
struct Guest {
    place: Place,
    guests: Arc<Guests>,
    number: u64,
    mailbox: Mailbox<Command>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.leave(self.number);
    }
}

impl Admitted for Guest {
    fn ends_with(&self, task: AbortHandle) {
        self.place.ends_with(task);
    }
}

impl Reception for Doorkeeper {
    type Application = TankConnection;
    type Admitted = Guest;

    fn admit(&self, address: SocketAddr, _: bool, mailbox: Mailbox<Command>) -> Option<Guest> {
        match self.places.for_known(address.ip()) {
            Ok(place) => Some(Guest {
                place,
                guests: Arc::clone(&self.guests),
                number: self.guests.enter(mailbox.clone()),
                mailbox,
            }),
            Err(full) => {
                if let Some(left_out) = self.too_many.due(Instant::now()) {
                    tracing::warn!(limit = full.limit, %address, left_out, "too many clients of TANK; closing the new one");
                }
                None
            }
        }
    }

    fn asks_who_they_are(&self) -> bool {
        false
    }

    fn lets_in(&self, _: &Guest, _: SocketAddr) -> bool {
        true
    }

    fn serve(&self, guest: &Guest, _: SocketAddr, _: Option<Arc<str>>, since: Instant) -> (Connection, TankConnection) {
        let connection = Connection::server(self.each, since);
        let application = TankConnection::new(Arc::clone(&self.shared), guest.mailbox.clone());
        (connection, application)
    }
}
