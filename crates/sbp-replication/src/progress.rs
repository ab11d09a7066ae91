//! What a sender knows of the servers that it sends entries of a range to.

use std::hash::{Hash, Hasher};

use sbp_types::{Position, ServerId};
use smallvec::SmallVec;

use crate::exchange::{Answer, NotTaken, Round, Standing};

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
    /// Nothing behind this place was ever sent to it, so that it can have nothing there; `None` where it may have entries
    /// from others too.
    pub(crate) most: Uncompared<Option<Position>>,
    /// The number of the order to send to it; 0 for what is sent to it as primary.
    order: Uncompared<u32>,
    /// How often the sender began again on the present connection.
    again: u32,
    /// Whether the server takes nothing: it is sent nothing until its connection is made anew.
    pub(crate) is_halted: bool,
}

/// What changes nothing while nobody says what is not so, and answers arrive at once. Two worlds of a search, where that holds,
/// are the same if they differ in it alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uncompared<T>(pub(crate) T);

impl<T> PartialEq for Uncompared<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Uncompared<T> {}

impl<T> Hash for Uncompared<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Peer {
    /// A server that may have entries from others too.
    pub(crate) fn new(server: ServerId, from: Position) -> Self {
        Self {
            server,
            synced: from,
            sent: from,
            most: Uncompared(None),
            order: Uncompared(0),
            again: 0,
            is_halted: false,
        }
    }

    /// A server that entries are sent to by this order.
    pub(crate) fn ordered(server: ServerId, from: Position, order: u32) -> Self {
        Self {
            order: Uncompared(order),
            ..Self::new(server, from)
        }
    }

    /// A server that has entries from this sender alone.
    fn follower(server: ServerId, from: Position) -> Self {
        Self {
            most: Uncompared(Some(from)),
            ..Self::new(server, from)
        }
    }

    /// Everything before this place was sent.
    pub(crate) fn sent(&mut self, to: Position) {
        self.sent = self.sent.max(to);
        self.most.0 = self.most.0.map(|most| most.max(to));
    }

    /// What tells the answer to an entry that is sent now from others.
    pub(crate) fn round(&self) -> Round {
        Round {
            order: self.order.0,
            again: self.again,
        }
    }

    /// It has answered to an entry of this round; `None` if nothing else was under way. The sender has nothing before `first`.
    pub(crate) fn hear(&mut self, answer: Answer, round: Option<Round>, first: Position) -> Standing {
        // What it said before this order says nothing of what it has now.
        if round.is_some_and(|round| round.order != self.order.0) {
            return Standing::Sound;
        }
        // What it cannot have counts for nothing, not even for what it may have.
        if let (Some(place), Some(most)) = (answer.place(), self.most.0)
            && place > most
        {
            let is_known = std::mem::replace(&mut self.is_halted, true);
            return if is_known {
                Standing::Sound
            } else {
                Standing::ClaimsTooMuch
            };
        }
        match answer {
            Answer::Synced(to) => {
                self.synced = self.synced.max(to);
                self.sent = self.sent.max(self.synced);
                Standing::Sound
            }
            Answer::GoOn(_) if round.is_some_and(|round| round.again != self.again) => Standing::Sound,
            Answer::GoOn(at) => {
                self.again = self.again.wrapping_add(1);
                let has_less = at < self.synced;
                // It counts for less from now on.
                self.synced = self.synced.min(at);
                self.sent = at;
                if has_less {
                    Standing::FollowerLost
                } else if at < first {
                    self.is_halted = true;
                    Standing::Refused(NotTaken::TrimUnknown)
                } else {
                    Standing::Sound
                }
            }
            Answer::Refused(why) => {
                self.is_halted = true;
                match why {
                    NotTaken::Damaged => Standing::FollowerLost,
                    _ => Standing::Refused(why),
                }
            }
        }
    }

    /// It is sent again what it is not known to have, while what was sent before may still be answered.
    pub(crate) fn begin_again(&mut self) {
        self.sent = self.synced;
        self.again = self.again.wrapping_add(1);
        self.is_halted = false;
    }

    /// The connection is gone, and with it all answers to what was sent.
    pub(crate) fn disconnected(&mut self) {
        self.sent = self.synced;
        self.again = 0;
        self.is_halted = false;
    }
}

impl Progress {
    /// Servers that have entries from this sender alone.
    pub(crate) fn new(servers: impl IntoIterator<Item = ServerId>, from: Position) -> Self {
        Self(servers.into_iter().map(|server| Peer::follower(server, from)).collect())
    }

    pub(crate) fn peer(&self, server: ServerId) -> Option<&Peer> {
        self.0.iter().find(|peer| peer.server == server)
    }

    pub(crate) fn peer_mut(&mut self, server: ServerId) -> Option<&mut Peer> {
        self.0.iter_mut().find(|peer| peer.server == server)
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter()
    }

    pub(crate) fn peers_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.0.iter_mut()
    }

    pub(crate) fn insert(&mut self, peer: Peer) {
        self.0.push(peer);
    }

    pub(crate) fn remove(&mut self, server: ServerId) {
        self.0.retain(|peer| peer.server != server);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn synced(&self) -> impl Iterator<Item = Position> {
        self.0.iter().map(|peer| peer.synced)
    }
}
