//! Who is let in, and what is served: the server's part of accepting connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use sbp_session::{Session, SessionConfig};
use sbp_transport::{Admitted, LogRateLimiter, Mailbox, NoPlace, Place, Places, Reception};
use tokio::task::AbortHandle;

use crate::connection::{Connection, ConnectionCommand, ConnectionHandle};
use crate::connections::{Connections, OpenConnection};
use crate::node::Node;
use crate::origin::Origin;

/// Lets connections in and serves them.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    pub(crate) node: Arc<Node>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) session: SessionConfig,
    pub(crate) places: Arc<Places>,
    pub(crate) too_many: LogRateLimiter,
    pub(crate) too_many_strangers: LogRateLimiter,
}

impl Doorkeeper {
    /// A place for a new connection, if there is one. Where nobody is asked who it is and no hands are shaken, nobody is a
    /// stranger.
    fn place(&self, address: IpAddr, shakes_hands: bool) -> Option<Place> {
        if !shakes_hands && self.node.access.is_none() {
            let place = self.places.for_known(address);
            return place.map_err(|no_place| self.tell_full(no_place, address)).ok();
        }
        let (place, has_closed) = self.places.for_stranger(address);
        if has_closed && let Some(left_out) = self.too_many_strangers.due(Instant::now()) {
            tracing::warn!(
                %address,
                left_out,
                "too many connections of clients that have not said who they are; closing the oldest for a new one"
            );
        }
        Some(place)
    }

    fn tell_full(&self, NoPlace { limit }: NoPlace, address: IpAddr) {
        if let Some(left_out) = self.too_many.due(Instant::now()) {
            tracing::warn!(limit, %address, left_out, "too many connections; closing the new one");
        }
    }
}

impl Reception for Doorkeeper {
    type Application = Connection;
    type Admitted = Guest;

    fn admit(&self, address: SocketAddr, shakes_hands: bool, mailbox: Mailbox<ConnectionCommand>) -> Option<Guest> {
        self.node.counters.connections_accepted.add(1);
        let closing = CountClosed(Arc::clone(&self.node));
        let place = Arc::new(self.place(address.ip(), shakes_hands)?);
        let (handle, open) = self.connections.open(|id| ConnectionHandle { id, mailbox });
        Some(Guest {
            _closing: closing,
            place,
            handle,
            _open: open,
        })
    }

    fn asks_who_they_are(&self) -> bool {
        self.node.access.is_some()
    }

    /// One who is not asked who it is, is no stranger from here on.
    fn lets_in(&self, guest: &Guest, address: SocketAddr) -> bool {
        if self.node.access.is_some() {
            return true;
        }
        let known = guest.place.become_known();
        known.map_err(|no_place| self.tell_full(no_place, address.ip())).is_ok()
    }

    fn serve(
        &self,
        guest: &Guest,
        address: SocketAddr,
        peer_name: Option<Arc<str>>,
        since: Instant,
    ) -> (Session, Connection) {
        let origin = Origin { address, peer_name };
        let (handle, place) = (Arc::clone(&guest.handle), Arc::clone(&guest.place));
        let connection = Connection::new(Arc::clone(&self.node), handle, origin, place);
        (Session::new(self.session.clone(), since), connection)
    }
}

/// Counts a connection as open for as long as it is served. The order is that in which its parts are dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    _closing: CountClosed,
    place: Arc<Place>,
    handle: Arc<ConnectionHandle>,
    // Dropped last: a shutdown that waits for the connections to end dismantles the server next.
    _open: OpenConnection,
}

impl Admitted for Guest {
    fn ends_with(&self, task: AbortHandle) {
        self.place.ends_with(task);
    }
}

/// Counts a connection as closed.
#[derive(Debug)]
struct CountClosed(Arc<Node>);

impl Drop for CountClosed {
    fn drop(&mut self) {
        self.0.counters.connections_closed.add(1);
    }
}
