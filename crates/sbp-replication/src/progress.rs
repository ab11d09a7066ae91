//! What a sender knows of the servers that it sends entries of a range to.

use sbp_types::{Position, ServerId};
use smallvec::SmallVec;

/// How far the other servers are, as the sender of entries knows it: a primary, or who writes back and copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress(SmallVec<[Peer; 2]>);

/// One server that entries are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) server: ServerId,
    /// It has synced everything before this place, by its own answers.
    pub(crate) synced: Position,
    /// Everything before this place was sent on the present connection.
    pub(crate) sent: Position,
}

impl Progress {
    pub(crate) fn new(servers: impl IntoIterator<Item = ServerId>, from: Position) -> Self {
        let peer = |server| Peer {
            server,
            synced: from,
            sent: from,
        };
        Self(servers.into_iter().map(peer).collect())
    }

    pub(crate) fn peer(&self, server: ServerId) -> Option<&Peer> {
        self.0.iter().find(|peer| peer.server == server)
    }

    pub(crate) fn peer_mut(&mut self, server: ServerId) -> Option<&mut Peer> {
        self.0.iter_mut().find(|peer| peer.server == server)
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.0.iter().map(|peer| peer.server)
    }

    pub(crate) fn synced(&self) -> impl Iterator<Item = Position> {
        self.0.iter().map(|peer| peer.synced)
    }
}
