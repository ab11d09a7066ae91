//! A server whose clients need not say who they are, whatever they speak.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};

use crate::accept::{Acceptor, AcceptorSettings, Admitted, Entrance, Reception};
use crate::application::Application;
use crate::descriptors::Descriptors;
use crate::link::Link;
use crate::listen::{ListenError, listen};
use crate::log_rate_limiter::LogRateLimiter;
use crate::mailbox::Mailbox;
use crate::memory::Memory;
use crate::places::{Place, PlaceLimits, Places};

/// Sockets that are remembered, beside those of connections.
const SOCKETS: usize = 16;

/// What connections are served with.
pub trait Host: Send + Sync + 'static {
    /// What a connection is served with.
    type Application: Application;

    /// What its clients speak, as errors and the log say it.
    const PROTOCOL: &'static str;

    /// What a connection is told that is to end.
    fn last_command() -> CommandOf<Self>;

    /// This end of a connection that began at `since`, and what it is served with.
    fn serve(
        &self,
        mailbox: Mailbox<CommandOf<Self>>,
        address: SocketAddr,
        since: Instant,
    ) -> (<Self::Application as Application>::Endpoint, Self::Application);

    /// What connections of another protocol begin with that are served at the same address, with [`Self::serve_other`]; `None`:
    /// there is no other one.
    fn other_begins_with(&self) -> Option<&'static [u8]> {
        None
    }

    /// Serves a connection of the other protocol until it is over. It is dropped when the server closes. `reached`: the address
    /// that its client has connected to.
    fn serve_other(&self, link: Link, reached: SocketAddr) -> impl Future<Output = ()> + Send {
        let _ = (link, reached);
        std::future::ready(())
    }
}

/// What a connection of this host is told.
pub type CommandOf<H> = <<H as Host>::Application as Application>::Command;

/// How clients are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
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

impl HostConfig {
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
pub enum HostError {
    /// It is no address.
    #[error("clients of {protocol} cannot connect at {address}: {source}")]
    Address {
        /// What they speak.
        protocol: &'static str,
        /// The address asked for.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Other machines could reach it.
    #[error(
        "other machines could connect to {address} and do everything, because {protocol} has no passwords: listen on 127.0.0.1, \
         or say insecure_listen (--insecure-listen) if the network is trusted"
    )]
    Insecure {
        /// What they speak.
        protocol: &'static str,
        /// The address asked for.
        address: String,
    },
    /// Nothing can be accepted there.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// A server that runs.
pub struct Hosting<H: Host> {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    /// `None` once it was closed.
    accepting: Mutex<Option<JoinHandle<()>>>,
    guests: Arc<Guests<CommandOf<H>>>,
    descriptors: Arc<Descriptors>,
}

impl<H: Host> fmt::Debug for Hosting<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosting")
            .field("protocol", &H::PROTOCOL)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl<H: Host> Hosting<H> {
    /// Serves whoever connects. Everything runs in this runtime.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn start(host: H, config: &HostConfig, runtime: &Handle) -> Result<Self, HostError> {
        check_address(config, H::PROTOCOL)?;
        let _inside = runtime.enter();
        let listener = listen(&config.listen)?;
        let address = listener.local_addr().map_err(|source| HostError::Address {
            protocol: H::PROTOCOL,
            address: config.listen.clone(),
            source,
        })?;
        let guests = Arc::new(Guests::default());
        let doorkeeper = Doorkeeper {
            host,
            places: Places::new(PlaceLimits {
                known: config.max_connections,
                known_from_one: config.max_connections_per_address,
                strangers: 0,
            }),
            guests: Arc::clone(&guests),
            too_many: LogRateLimiter::default(),
        };
        let descriptors = Descriptors::new(config.max_connections.saturating_add(SOCKETS));
        let settings = AcceptorSettings {
            home: runtime.clone(),
            descriptors: Arc::clone(&descriptors),
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
            descriptors,
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sockets, for the sake of forked children.
    #[must_use]
    pub fn descriptors(&self) -> &Arc<Descriptors> {
        &self.descriptors
    }

    /// Accepts nobody more, and tells all connections to end. What they were asked to do is done or not, as it would be were
    /// a connection lost. Whoever calls it first waits until that is done.
    pub async fn close(&self) {
        let Some(accepting) = self.accepting.lock().take() else {
            return;
        };
        // Nobody listens where the task has ended.
        let _ = self.stop.send(true);
        drop(accepting.await);
        self.guests.end(H::last_command);
    }

    /// As [`Self::close`], and waits until the connections are over, but no longer than this.
    pub async fn close_within(&self, patience: Duration) {
        self.close().await;
        // Those that do not end by then go on by themselves, without a socket.
        let _ = tokio::time::timeout(patience, self.guests.gone()).await;
    }
}

/// Refuses addresses that other machines can reach, unless they may.
fn check_address(config: &HostConfig, protocol: &'static str) -> Result<(), HostError> {
    if config.insecure_listen {
        return Ok(());
    }
    let address = || config.listen.clone();
    let mut resolved = config.listen.to_socket_addrs().map_err(|source| HostError::Address {
        protocol,
        address: address(),
        source,
    })?;
    match resolved.all(|candidate| candidate.ip().is_loopback()) {
        true => Ok(()),
        false => Err(HostError::Insecure {
            protocol,
            address: address(),
        }),
    }
}

/// The mailboxes of open connections.
struct Guests<C> {
    state: Mutex<GuestList<C>>,
    /// Notified when a connection is over.
    left: Notify,
}

struct GuestList<C> {
    last: u64,
    open: HashMap<u64, Mailbox<C>>,
}

impl<C> Default for Guests<C> {
    fn default() -> Self {
        Self {
            state: Mutex::new(GuestList {
                last: 0,
                open: HashMap::new(),
            }),
            left: Notify::new(),
        }
    }
}

impl<C> Guests<C> {
    fn enter(&self, mailbox: Mailbox<C>) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.open.insert(number, mailbox);
        number
    }

    fn leave(&self, number: u64) {
        self.state.lock().open.remove(&number);
        self.left.notify_waiters();
    }

    fn end(&self, last: impl Fn() -> C) {
        for mailbox in self.state.lock().open.values() {
            // It may have ended just now.
            drop(mailbox.post(last()));
        }
    }

    async fn gone(&self) {
        loop {
            let mut left = pin!(self.left.notified());
            left.as_mut().enable();
            if self.state.lock().open.is_empty() {
                return;
            }
            left.await;
        }
    }
}

/// Lets connections in and serves them.
struct Doorkeeper<H: Host> {
    host: H,
    places: Arc<Places>,
    guests: Arc<Guests<CommandOf<H>>>,
    too_many: LogRateLimiter,
}

/// A connection that was let in.
struct Guest<C> {
    place: Place,
    guests: Arc<Guests<C>>,
    number: u64,
    mailbox: Mailbox<C>,
}

impl<C> Drop for Guest<C> {
    fn drop(&mut self) {
        self.guests.leave(self.number);
    }
}

impl<C: Send + 'static> Admitted for Guest<C> {
    fn ends_with(&self, task: AbortHandle) {
        self.place.ends_with(task);
    }
}

impl<H: Host> Reception for Doorkeeper<H> {
    type Application = H::Application;
    type Admitted = Guest<CommandOf<H>>;

    fn admit(&self, address: SocketAddr, _: bool, mailbox: Mailbox<CommandOf<H>>) -> Option<Self::Admitted> {
        match self.places.for_known(address.ip()) {
            Ok(place) => Some(Guest {
                place,
                guests: Arc::clone(&self.guests),
                number: self.guests.enter(mailbox.clone()),
                mailbox,
            }),
            Err(full) => {
                if let Some(left_out) = self.too_many.due(Instant::now()) {
                    let (protocol, limit) = (H::PROTOCOL, full.limit);
                    tracing::warn!(protocol, limit, %address, left_out, "too many clients; closing the new one");
                }
                None
            }
        }
    }

    fn asks_who_they_are(&self) -> bool {
        false
    }

    fn lets_in(&self, _: &Self::Admitted, _: SocketAddr) -> bool {
        true
    }

    fn serve(
        &self,
        guest: &Self::Admitted,
        address: SocketAddr,
        _: Option<Arc<str>>,
        since: Instant,
    ) -> (<H::Application as Application>::Endpoint, H::Application) {
        self.host.serve(guest.mailbox.clone(), address, since)
    }

    fn other_begins_with(&self) -> Option<&'static [u8]> {
        self.host.other_begins_with()
    }

    fn serve_other(&self, link: Link, reached: SocketAddr) -> impl Future<Output = ()> + Send {
        self.host.serve_other(link, reached)
    }
}
