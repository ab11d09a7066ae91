//! Accepting connections.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sbp_wire::Reason;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use crate::application::{Application, ReasonOf};
use crate::descriptors::Descriptors;
use crate::driver::{Driven, drive_until_settled};
use crate::link::{Accepted, Link};
use crate::log_rate_limiter::LogRateLimiter;
use crate::mailbox::{Mailbox, mailbox};
use crate::memory::Memory;
use crate::socket::{Socket, accept_options};
use crate::tls::ServerTls;

/// The first pause when the system has no resources to accept a connection; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection may take to say which of two protocols it speaks.
const FIRST_BYTES: Duration = Duration::from_secs(10);

/// The most connections that may be on their way to the serving thread. Without a limit, connections that ask once and
/// leave would be accepted faster than they are served, and delay all others.
const HANDOVERS: usize = 16;

/// Whoever serves accepted connections: who may come in, and what their connections are.
pub trait Reception: Send + Sync + 'static {
    /// What a connection is served with.
    type Application: Application;
    /// A connection that was let in. It counts as open until this is dropped.
    type Admitted: Admitted;

    /// A place for a connection from `address`, if there is one. `shakes_hands`: it begins with the handshake of TLS.
    fn admit(
        &self,
        address: SocketAddr,
        shakes_hands: bool,
        mailbox: Mailbox<<Self::Application as Application>::Command>,
    ) -> Option<Self::Admitted>;

    /// Whether peers say who they are once hands are shaken. Until then they may send little.
    fn asks_who_they_are(&self) -> bool;

    /// Whether a connection is served now that hands are shaken.
    fn lets_in(&self, admitted: &Self::Admitted, address: SocketAddr) -> bool;

    /// This end of a connection that began at `since`, and what it is served with. `peer_name`: who the peer is by its
    /// certificate.
    fn serve(
        &self,
        admitted: &Self::Admitted,
        address: SocketAddr,
        peer_name: Option<Arc<str>>,
        since: Instant,
    ) -> (<Self::Application as Application>::Endpoint, Self::Application);

    /// What connections of another protocol begin with that are served at the same address, with [`Self::serve_other`]; `None`:
    /// there is no other one. Only connections without TLS are looked at.
    fn other_begins_with(&self) -> Option<&'static [u8]> {
        None
    }

    /// Serves a connection of the other protocol until it is over. `reached`: the address that its peer has connected to.
    fn serve_other(&self, link: Link, reached: SocketAddr) -> impl Future<Output = ()> + Send {
        let _ = (link, reached);
        std::future::ready(())
    }
}

/// A connection that was let in, until it is over.
pub trait Admitted: Send + Sync + 'static {
    /// `task` ends with the connection, and ends it when it is aborted.
    fn ends_with(&self, task: AbortHandle);
}

/// What is the same for all connections of an acceptor.
#[derive(Debug)]
pub struct AcceptorSettings {
    /// The runtime of the serving thread.
    pub home: Handle,
    /// Remembers the sockets.
    pub descriptors: Arc<Descriptors>,
    /// The memory that all connections share.
    pub memory: Arc<Memory>,
    /// TLS, at the entrances that have it.
    pub tls: Option<Arc<ServerTls>>,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
}

/// A listener, and whether it speaks TLS where the server can.
#[derive(Debug)]
pub struct Entrance {
    /// Where connections are accepted.
    pub listener: TcpListener,
    /// Whether it is without TLS.
    pub is_plain: bool,
}

/// Accepts connections.
///
/// Runs on a thread of its own, together with all connections that have not made a request yet, so that thousands of
/// connections which come and go, or send slowly, delay none of the others. With its first request a connection moves
/// to the serving thread.
#[derive(Debug)]
pub struct Acceptor<R: Reception> {
    reception: R,
    settings: AcceptorSettings,
    exhausted: LogRateLimiter,
    no_handshake: LogRateLimiter,
    /// Permits to move to the serving thread, [`HANDOVERS`] in all.
    handover: Arc<Semaphore>,
}

impl<R: Reception> Acceptor<R> {
    /// Accepts nothing before it [runs](Self::run).
    pub fn new(reception: R, settings: AcceptorSettings) -> Arc<Self> {
        Arc::new(Self {
            reception,
            settings,
            exhausted: LogRateLimiter::default(),
            no_handshake: LogRateLimiter::default(),
            handover: Arc::new(Semaphore::new(HANDOVERS)),
        })
    }

    /// Accepts until told to stop; then closes the listener. That is among the descriptors from now on.
    pub fn run(
        self: Arc<Self>,
        entrance: Entrance,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let registered = self.settings.descriptors.register(entrance.listener.as_raw_fd());
        async move {
            self.accept_all(entrance, stop).await;
            drop(registered);
        }
    }

    async fn accept_all(self: &Arc<Self>, entrance: Entrance, mut stop: watch::Receiver<bool>) {
        let Entrance { listener, is_plain } = entrance;
        let mut pause = FIRST_PAUSE;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.changed() => break,
                accepted = self.accept(&listener) => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    pause = FIRST_PAUSE;
                    let address = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    self.serve(stream, address, is_plain, stop.clone());
                }
                Err(error) if is_exhausted(&error) => {
                    // The connection stays in the kernel's queue, so trying again at once would spin.
                    if let Some(left_out) = self.exhausted.due(Instant::now()) {
                        tracing::warn!(%error, left_out, "cannot accept a connection now");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                // The peer closed the connection before it was accepted.
                Err(error) => tracing::debug!(%error, "a connection was not accepted"),
            }
        }
    }

    /// Accepts the next connection, once the serving thread has room for more.
    async fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        // The semaphore is never closed, so acquiring cannot fail.
        drop(self.handover.acquire().await);
        listener.accept().await
    }

    /// Serves a connection in a task of its own. `stop` ends its handshake, where there is one.
    fn serve(self: &Arc<Self>, stream: TcpStream, address: SocketAddr, is_plain: bool, stop: watch::Receiver<bool>) {
        let (mailbox, inbox) = mailbox();
        let Some(admitted) = self.reception.admit(address, !is_plain, mailbox) else {
            return;
        };
        if let Err(error) = accept_options(&stream) {
            tracing::debug!(%error, "cannot set a connection's options");
        }
        let socket = Socket::new(stream, &self.settings.descriptors);
        let admitted = Arc::new(admitted);
        let guard = Arc::clone(&admitted);
        let acceptor = Arc::clone(self);
        // The time that the peer may take to say who it is begins here, not when hands have been shaken.
        let since = Instant::now();
        let task = tokio::spawn(async move {
            let arrived = match &acceptor.settings.tls {
                // On the heap, and gone when it is over: a handshake takes more room than all else that a connection is.
                Some(tls) if !is_plain => Box::pin(acceptor.shake_hands(tls, socket, address, stop)).await,
                _ => match acceptor.reception.other_begins_with() {
                    Some(prefix) => {
                        let sorted = Box::pin(acceptor.sort(socket, prefix, stop)).await;
                        sorted.map(|socket| (Link::plain(socket), None))
                    }
                    None => Some((Link::plain(socket), None)),
                },
            };
            match arrived {
                Some((link, peer_name)) if acceptor.reception.lets_in(&guard, address) => {
                    let (endpoint, application) = acceptor.reception.serve(&guard, address, peer_name, since);
                    let driven = drive_until_settled(link, endpoint, application, inbox, &acceptor.settings.memory);
                    // On the heap too: not there while hands are shaken.
                    Box::pin(acceptor.hand_over(driven, address, guard)).await;
                }
                Some(_) | None => drop(guard),
            }
        });
        admitted.ends_with(task.abort_handle());
    }

    /// Serves a connection of the other protocol, until it is over or the server is told to stop; gives back one of another.
    async fn sort(&self, socket: Socket, prefix: &[u8], mut stop: watch::Receiver<bool>) -> Option<Socket> {
        let serve = async {
            // One that says nothing is left to whoever serves the others: that has limits for it.
            let begins = tokio::time::timeout(FIRST_BYTES, socket.begins_with(prefix)).await;
            match (begins, socket.local_addr()) {
                (Ok(Ok(true)), Ok(reached)) => {
                    self.reception.serve_other(Link::plain(socket), reached).await;
                    None
                }
                _ => Some(socket),
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stopped| *stopped) => None,
            sorted = serve => sorted,
        }
    }

    /// The handshake of TLS: within its time, and not after the server was told to stop. Who fails is logged, so that the
    /// side which can do something about it is told too.
    async fn shake_hands(
        &self,
        tls: &ServerTls,
        socket: Socket,
        address: SocketAddr,
        mut stop: watch::Receiver<bool>,
    ) -> Option<(Link, Option<Arc<str>>)> {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stopped| *stopped) => return None,
            accepted = Link::accept(socket, tls, self.settings.handshake_timeout) => accepted,
        };
        match accepted {
            Ok(Accepted { mut link, peer_name }) => {
                if !self.reception.asks_who_they_are() {
                    link.let_in();
                }
                Some((link, peer_name))
            }
            Err(failure) => {
                if let Some(left_out) = self.no_handshake.due(Instant::now()) {
                    tracing::warn!(%address, %failure, left_out, "no TLS with a client");
                }
                None
            }
        }
    }

    /// Runs a connection: here until its first request, then on the serving thread.
    async fn hand_over(
        &self,
        driven: impl Future<Output = Driven<Link, R::Application>>,
        address: SocketAddr,
        guard: Arc<R::Admitted>,
    ) {
        match driven.await {
            Driven::Over(reason) => {
                self.tell_over(&reason, address);
                drop(guard);
            }
            Driven::Settled(settled) => {
                let handed_over = Arc::clone(&self.handover).acquire_owned().await;
                self.settings.home.spawn(async move {
                    // Where it is asked who its peer is, that is known by now.
                    let driven = settled.drive(|mut link| {
                        link.let_in();
                        link.rehome()
                    });
                    after_first_poll(driven, || drop(handed_over)).await;
                    drop(guard);
                });
            }
        }
    }

    fn tell_over(&self, reason: &ReasonOf<R::Application>, address: SocketAddr) {
        if reason.is_tls()
            && let Some(left_out) = self.no_handshake.due(Instant::now())
        {
            tracing::warn!(%address, left_out, "a client speaks TLS to an address without TLS");
        }
    }
}

/// Polls `future` to its end, and calls `then` after the first poll.
async fn after_first_poll<F: Future>(future: F, then: impl FnOnce()) -> F::Output {
    let mut future = pin!(future);
    let mut then = Some(then);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if let Some(then) = then.take() {
            then();
        }
        polled
    })
    .await
}

/// Whether the system has run out of a resource, so that accepting again at once cannot succeed.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_resources_pauses() {
        for (errno, pauses) in [(Errno::MFILE, true), (Errno::NFILE, true), (Errno::CONNABORTED, false)] {
            assert_eq!(is_exhausted(&errno.into()), pauses, "{errno}");
        }
    }
}
