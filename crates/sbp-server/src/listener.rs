//! Accepting connections.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sbp_session::{CloseReason, Session, SessionConfig};
use sbp_transport::{
    Accepted, Descriptors, Driven, Link, Memory, ServerTls, Socket, accept_options, drive_until_settled, mailbox,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::connection::{Connection, ConnectionHandle};
use crate::connections::{Connections, OpenConnection};
use crate::log_rate_limiter::LogRateLimiter;
use crate::node::Node;
use crate::origin::Origin;
use crate::places::{NoPlace, Place, Places};

/// The first pause when the system has no resources to accept a connection; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most connections that may be on their way to the serving thread. Without a limit, connections that ask once and
/// leave would be accepted faster than they are served, and delay all others.
pub(crate) const HANDOVERS: usize = 16;

/// Accepts connections.
///
/// Runs on a thread of its own, together with all connections that have not made a request yet, so that thousands of
/// connections which come and go, or send slowly, delay none of the others. With its first request a connection moves
/// to the serving thread.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// The runtime of the serving thread.
    pub(crate) home: Handle,
    pub(crate) node: Arc<Node>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) descriptors: Arc<Descriptors>,
    /// The memory that all connections share.
    pub(crate) memory: Arc<Memory>,
    pub(crate) session: SessionConfig,
    pub(crate) places: Arc<Places>,
    /// TLS, on the listeners that have it.
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) exhausted: LogRateLimiter,
    pub(crate) too_many: LogRateLimiter,
    pub(crate) too_many_strangers: LogRateLimiter,
    pub(crate) no_handshake: LogRateLimiter,
    /// Permits to move to the serving thread, [`HANDOVERS`] in all.
    pub(crate) handover: Arc<Semaphore>,
}

/// A listener, and whether it speaks TLS where the server can.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) listener: TcpListener,
    pub(crate) is_plain: bool,
}

impl Acceptor {
    /// Accepts until told to stop; then closes the listener.
    pub(crate) async fn run(self: Arc<Self>, entrance: Entrance, mut stop: watch::Receiver<bool>) {
        let Entrance { listener, is_plain } = entrance;
        let registered = self.descriptors.register(listener.as_raw_fd());
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
                    let stop = (!is_plain).then(|| stop.clone());
                    self.serve(stream, address, stop);
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
        drop(registered);
    }

    /// Accepts the next connection, once the serving thread has room for more.
    async fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        // The semaphore is never closed, so acquiring cannot fail.
        drop(self.handover.acquire().await);
        listener.accept().await
    }

    /// Serves a connection in a task of its own. `stop` ends its handshake, where there is one.
    fn serve(self: &Arc<Self>, stream: TcpStream, address: SocketAddr, stop: Option<watch::Receiver<bool>>) {
        self.node.counters.connections_accepted.add(1);
        let Some(place) = self.place(address.ip(), stop.is_some()) else {
            self.node.counters.connections_closed.add(1);
            return;
        };
        if let Err(error) = accept_options(&stream) {
            tracing::debug!(%error, "cannot set a connection's options");
        }
        let (mailbox, inbox) = mailbox();
        let (handle, open) = self.connections.open(|id| ConnectionHandle { id, mailbox });
        let socket = Socket::new(stream, &self.descriptors);
        let guard = ConnectionGuard {
            _closing: CountClosed(Arc::clone(&self.node)),
            place: Arc::clone(&place),
            _open: open,
        };
        let acceptor = Arc::clone(self);
        // The time that the peer may take to say who it is begins here, not when hands have been shaken.
        let since = Instant::now();
        let task = tokio::spawn(async move {
            let arrived = match (&acceptor.tls, stop) {
                // On the heap, and gone when it is over: a handshake takes more room than all else that a connection is.
                (Some(tls), Some(stop)) => Box::pin(acceptor.shake_hands(tls, socket, address, stop)).await,
                _ => Some((
                    Link::plain(socket),
                    Origin {
                        address,
                        peer_name: None,
                    },
                )),
            };
            match arrived {
                Some((link, origin)) if acceptor.lets_in(&guard.place, &origin) => {
                    let place = Arc::clone(&guard.place);
                    let application = Connection::new(Arc::clone(&acceptor.node), handle, origin, place);
                    let session = Session::new(acceptor.session.clone(), since);
                    let driven = drive_until_settled(link, session, application, inbox, &acceptor.memory);
                    // On the heap too: not there while hands are shaken.
                    Box::pin(acceptor.hand_over(driven, address, guard)).await;
                }
                Some(_) | None => drop(guard),
            }
        });
        place.ends_with(task.abort_handle());
    }

    /// A place for a new connection, if there is one. Where nobody is asked who it is and no hands are shaken, nobody is a
    /// stranger.
    fn place(&self, address: IpAddr, shakes_hands: bool) -> Option<Arc<Place>> {
        if !shakes_hands && self.node.access.is_none() {
            let place = self.places.for_known(address);
            return place
                .map_err(|no_place| self.tell_full(no_place, address))
                .ok()
                .map(Arc::new);
        }
        let (place, has_closed) = self.places.for_stranger(address);
        if has_closed && let Some(left_out) = self.too_many_strangers.due(Instant::now()) {
            tracing::warn!(
                %address,
                left_out,
                "too many connections of clients that have not said who they are; closing the oldest for a new one"
            );
        }
        Some(Arc::new(place))
    }

    /// Whether a client is served that has shaken hands: one who is not asked who it is, is no stranger from here on.
    fn lets_in(&self, place: &Place, origin: &Origin) -> bool {
        if self.node.access.is_some() {
            return true;
        }
        let known = place.become_known();
        known
            .map_err(|no_place| self.tell_full(no_place, origin.address.ip()))
            .is_ok()
    }

    fn tell_full(&self, NoPlace { limit }: NoPlace, address: IpAddr) {
        if let Some(left_out) = self.too_many.due(Instant::now()) {
            tracing::warn!(limit, %address, left_out, "too many connections; closing the new one");
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
    ) -> Option<(Link, Origin)> {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stopped| *stopped) => return None,
            accepted = Link::accept(socket, tls, self.handshake_timeout) => accepted,
        };
        match accepted {
            Ok(Accepted { mut link, peer_name }) => {
                if self.node.access.is_none() {
                    link.let_in();
                }
                Some((link, Origin { address, peer_name }))
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
        driven: impl Future<Output = Driven<Link, Connection>>,
        address: SocketAddr,
        guard: ConnectionGuard,
    ) {
        match driven.await {
            Driven::Over(reason) => {
                if matches!(reason, CloseReason::SpeaksTls)
                    && let Some(left_out) = self.no_handshake.due(Instant::now())
                {
                    tracing::warn!(%address, left_out, "a client speaks TLS to an address without TLS");
                }
                drop(guard);
            }
            Driven::Settled(settled) => {
                let handed_over = Arc::clone(&self.handover).acquire_owned().await;
                self.home.spawn(async move {
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

/// Counts a connection as open for as long as it is served. The order is that in which its parts are dropped.
struct ConnectionGuard {
    _closing: CountClosed,
    place: Arc<Place>,
    // Dropped last: a shutdown that waits for the connections to end dismantles the server next.
    _open: OpenConnection,
}

/// Counts a connection as closed.
struct CountClosed(Arc<Node>);

impl Drop for CountClosed {
    fn drop(&mut self) {
        self.0.counters.connections_closed.add(1);
    }
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
