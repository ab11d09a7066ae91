//! Accepting connections.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sbp_session::{Session, SessionConfig};
use sbp_transport::{Descriptors, Driven, Memory, Socket, accept_options, drive_until_settled, mailbox};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::connection::{Connection, ConnectionHandle};
use crate::connections::{Connections, OpenConnection};
use crate::log_rate_limiter::LogRateLimiter;
use crate::node::Node;

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
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) exhausted: LogRateLimiter,
    pub(crate) too_many: LogRateLimiter,
    /// Permits to move to the serving thread, [`HANDOVERS`] in all.
    pub(crate) handover: Arc<Semaphore>,
}

impl Acceptor {
    /// Accepts until told to stop; then closes the listener.
    pub(crate) async fn run(self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
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
                    self.serve(stream, peer.ip().to_canonical());
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

    fn serve(&self, stream: TcpStream, address: IpAddr) {
        self.node.counters.connections_accepted.add(1);
        let counts = [
            (self.connections.count(), self.max_connections),
            (self.connections.count_from(address), self.max_connections_per_address),
        ];
        if let Some((_, limit)) = counts.iter().find(|(count, limit)| count >= limit) {
            if let Some(left_out) = self.too_many.due(Instant::now()) {
                tracing::warn!(limit, %address, left_out, "too many connections; closing the new one");
            }
            self.node.counters.connections_closed.add(1);
            return;
        }
        if let Err(error) = accept_options(&stream) {
            tracing::debug!(%error, "cannot set a connection's options");
        }
        let (mailbox, inbox) = mailbox();
        let (handle, open) = self.connections.open(address, |id| ConnectionHandle { id, mailbox });
        let session = Session::new(self.session.clone(), Instant::now());
        let application = Connection::new(Arc::clone(&self.node), handle);
        let socket = Socket::new(stream, &self.descriptors);
        let guard = ConnectionGuard {
            node: Arc::clone(&self.node),
            open,
        };
        let (home, memory, handover) = (self.home.clone(), Arc::clone(&self.memory), Arc::clone(&self.handover));
        tokio::spawn(async move {
            match drive_until_settled(socket, session, application, inbox, &memory).await {
                Driven::Over(_reason) => guard.leave(),
                Driven::Settled(settled) => {
                    let handed_over = handover.acquire_owned().await;
                    home.spawn(async move {
                        let driven = settled.drive(Socket::rehome);
                        after_first_poll(driven, || drop(handed_over)).await;
                        guard.leave();
                    });
                }
            }
        });
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

/// Counts a connection as open for as long as it is served.
struct ConnectionGuard {
    node: Arc<Node>,
    open: OpenConnection,
}

impl ConnectionGuard {
    fn leave(self) {
        self.node.counters.connections_closed.add(1);
        drop(self.node);
        // Dropped last: a shutdown that waits for the connections to end dismantles the server next.
        drop(self.open);
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
