//! Entries that this server sends: as primary, or because it writes back or copies.

use sbp_types::{Position, ServerId};
use smallvec::SmallVec;

use super::{Order, Progress, Replica, Role, Rule};
use crate::exchange::{Answer, Round, Standing};
use crate::progress::Peer;
#[cfg(feature = "testing")]
use crate::progress::Uncompared;

impl Order {
    /// Whether a server has all of it, by its own answers.
    fn is_done(&self, server: ServerId) -> bool {
        self.to.peer(server).is_some_and(|peer| peer.synced >= self.target)
    }

    /// The sender has nothing before `first`. Where that is everything, nothing is to be sent.
    pub(super) fn skip_before(&mut self, first: Position) {
        if first >= self.target {
            let target = self.target;
            self.to.peers_mut().for_each(|peer| peer.synced = target);
        }
    }
}

impl Replica {
    /// The place of the next entry to send to a server, and the end if it is written back or copied; `None` if there is
    /// nothing to send. A server that something is written back to is fenced, and would refuse what the primary sends: to it
    /// go only orders. What it answers to entries of before counts as ever.
    ///
    /// From the end of a copied range on follow the parts of the state of the writers, each a mark.
    #[must_use]
    pub fn next_for(&self, server: ServerId) -> Option<(Position, Option<Position>)> {
        let mut ends = self.orders_for(server).peekable();
        if ends.peek().is_none() {
            return self.next_in(server, None).map(|at| (at, None));
        }
        let mut next = ends.filter_map(|end| Some((self.next_in(server, Some(end))?, Some(end))));
        next.next()
    }

    /// The place of the next entry to send to a server as primary or, with a `sealed_end`, of what is written back or copied
    /// up to there.
    #[must_use]
    pub fn next_in(&self, server: ServerId, sealed_end: Option<Position>) -> Option<Position> {
        let peer = self.peer(server, sealed_end).filter(|peer| !peer.is_halted)?;
        let behind = match sealed_end {
            Some(_) => self.order(server, sealed_end)?.target,
            None if self.end.is_some() => return None,
            None => self.queued,
        };
        let next = peer.sent.max(self.first);
        (next < behind).then_some(next)
    }

    /// Where the first entry stands that this server can read, as far as it is known what its disk has lost.
    #[must_use]
    pub fn first_readable(&self) -> Position {
        let at_first = self
            .damage
            .spans()
            .iter()
            .find(|(from, to)| *from <= self.first && self.first < *to);
        at_first.map_or(self.first, |(_, to)| *to)
    }

    /// The servers that this one sends entries to, those twice that are also in an order.
    pub fn sends_to(&self) -> impl Iterator<Item = ServerId> {
        let ordered = self.orders.iter().flat_map(|order| order.to.peers());
        let followers = self.followers().into_iter().flat_map(Progress::peers);
        followers.chain(ordered).map(|peer| peer.server)
    }

    /// The ends up to which entries are written back, or copied, to this server.
    pub fn orders_for(&self, server: ServerId) -> impl Iterator<Item = Position> {
        let orders = self.orders.iter().filter(move |order| order.to.peer(server).is_some());
        orders.map(|order| order.end)
    }

    /// Where the first entry stands that another server may still have to be sent: the log keeps it, also if it is trimmed.
    /// `None` if there is none.
    #[must_use]
    pub fn needed_from(&self) -> Option<Position> {
        let followers = self.followers().filter(|_| self.end.is_none());
        let followers = followers.into_iter().flat_map(Progress::synced);
        let ordered = self.orders.iter().flat_map(|order| {
            let lacking = order.to.synced().filter(|synced| *synced < order.target);
            lacking.map(|synced| synced.max(self.first))
        });
        followers.chain(ordered).min()
    }

    /// The entry that ends at `to` was sent. What is returned tells its answer from others.
    pub fn sent(&mut self, server: ServerId, sealed_end: Option<Position>, to: Position) -> Round {
        let Some(peer) = self.peer_mut(server, sealed_end) else {
            return Round::default();
        };
        peer.sent(to);
        peer.round()
    }

    /// What [`sent`](Self::sent) would say of an entry that is sent to a server now.
    #[must_use]
    pub fn round(&self, server: ServerId, sealed_end: Option<Position>) -> Round {
        self.peer(server, sealed_end).map(Peer::round).unwrap_or_default()
    }

    /// A server has answered to an entry that was sent with this `sealed_end` ([`next_for`](Self::next_for)). `round` is what
    /// [`sent`](Self::sent) said of that entry, or `None` where the caller has waited until nothing was under way. An answer to
    /// an order that is not in force any more changes nothing: above all it is no answer to the primary, nor to a later order.
    ///
    /// After [`disconnected`](Self::disconnected) no refusal and no [`Answer::GoOn`] of before is to be told.
    pub fn heard(
        &mut self,
        server: ServerId,
        sealed_end: Option<Position>,
        round: Option<Round>,
        answer: Answer,
    ) -> Standing {
        let first = self.first;
        let Some(peer) = self.peer_mut(server, sealed_end) else {
            return Standing::Sound;
        };
        let standing = peer.hear(answer, round, first);
        if standing == Standing::FollowerLost
            && sealed_end.is_none()
            && let Role::Primary { takes_appends, .. } = &mut self.role
        {
            *takes_appends = false;
        }
        self.reckon();
        standing
    }

    /// A server has not taken what was sent to it as primary or up to this end, for a reason that may pass: it is sent again
    /// what it is not known to have. Answers to what was sent before may still come: what they say of where to go on is older
    /// than that ([`Round`]).
    pub fn begin_again(&mut self, server: ServerId, sealed_end: Option<Position>) {
        if let Some(peer) = self.peer_mut(server, sealed_end) {
            peer.begin_again();
        }
    }

    /// The connection to a server is gone, and with it what was on its way, and what would have been answered.
    pub fn disconnected(&mut self, server: ServerId) {
        let beginning = self.range.beginning();
        let holds = self.rules.hold(Rule::ConfirmedNeverFalls);
        if let Some(peer) = self.peer_mut(server, None) {
            if !holds {
                peer.synced = beginning;
            }
            peer.disconnected();
        }
        let ordered = self.orders.iter_mut().filter_map(|order| order.to.peer_mut(server));
        ordered.for_each(Peer::disconnected);
        self.reckon();
    }

    /// Begins to send everything up to `end`, which this server has synced, to these servers. What is sent to them with
    /// another end, or as primary, goes on beside it.
    ///
    /// What a server answered to an earlier order counts no more: it may have lost since what it had then, and a seal that
    /// gives this order knows that it lacks something. A copy of a sealed range may have been removed, and given to the server
    /// again, since it answered; one that is under way goes on to be sent where it is, and the server says anew what it has.
    ///
    /// Returns the servers for which it is begun, or begun anew.
    pub fn write_back(&mut self, to: impl IntoIterator<Item = ServerId>, end: Position) -> SmallVec<[ServerId; 3]> {
        let mut begun = SmallVec::new();
        for server in to {
            let under_way = self.under_way(server, end);
            if self.rules.hold(Rule::AskedAnew) {
                self.forget(server, end);
            }
            if !self.writes_back(&[server], end) {
                self.order_to([server], end, 0);
                match under_way {
                    Some(sent) => self.goes_on_from(server, end, sent),
                    None => begun.push(server),
                }
            }
        }
        begun
    }

    /// Up to where a server was sent the sealed range, if it is not known to have all of it.
    fn under_way(&self, server: ServerId, end: Position) -> Option<Position> {
        self.end?;
        let peer = self.peer(server, Some(end))?;
        (!self.is_written_back(server, end)).then_some(peer.sent)
    }

    /// What was sent by an earlier order is not sent again, unless that was everything: nothing else is left for the server to answer.
    fn goes_on_from(&mut self, server: ServerId, end: Position, sent: Position) {
        let target = self.order(server, Some(end)).map(|order| order.target);
        if let Some(peer) = self.peer_mut(server, Some(end))
            && target.is_some_and(|target| sent < target)
        {
            peer.sent = peer.sent.max(sent);
        }
    }

    /// Begins to copy the sealed range, which is complete here, to these servers. With `closing_parts` the state of the
    /// writers at its end follows in so many parts: the copy of a stream's last range ends with it.
    pub fn copy(&mut self, to: impl IntoIterator<Item = ServerId>, closing_parts: u32) {
        if let Some(end) = self.end {
            self.order_to(to, end, closing_parts);
        }
    }

    fn order_to(&mut self, to: impl IntoIterator<Item = ServerId>, end: Position, closing_parts: u32) {
        let target = Position {
            marks: end.marks.saturating_add(closing_parts),
            ..end
        };
        for server in to {
            // Another order to the same end gets another aim, and goes on.
            let known = self.peer(server, Some(end)).copied();
            if self
                .order(server, Some(end))
                .is_some_and(|order| order.target >= target)
            {
                continue;
            }
            self.forget(server, end);
            let peer = known.unwrap_or_else(|| {
                self.orders_given.0 += 1;
                Peer::ordered(server, self.range.beginning(), self.orders_given.0)
            });
            let place = self
                .orders
                .iter()
                .position(|order| order.target == target && order.end == end);
            let place = place.unwrap_or_else(|| {
                self.orders.push(Order {
                    end,
                    target,
                    to: Progress::default(),
                });
                self.orders.len() - 1
            });
            self.orders[place].to.insert(peer);
            self.orders[place].skip_before(self.first);
        }
    }

    /// Nothing more is written back, or copied, to this server up to this end.
    pub fn forget(&mut self, server: ServerId, end: Position) {
        let orders = self.orders.iter_mut().filter(|order| order.end == end);
        orders.for_each(|order| order.to.remove(server));
        self.orders.retain(|order| !order.to.is_empty());
    }

    /// Whether a server has synced everything up to `end`, which is written back to it, by its own answers since that was
    /// ordered. What it answers to orders with other ends does not count.
    #[must_use]
    pub fn is_written_back(&self, server: ServerId, end: Position) -> bool {
        let counts = |order: &&Order| order.end == end || (order.end > end && !self.rules.hold(Rule::AskedAnew));
        let mut orders = self.orders.iter().filter(counts);
        orders.any(|order| order.to.peer(server).is_some_and(|peer| peer.synced >= end))
    }

    /// Whether this is being sent to these servers, or was.
    #[must_use]
    pub fn writes_back(&self, to: &[ServerId], end: Position) -> bool {
        to.iter().all(|server| self.orders_for(*server).any(|one| one == end))
    }

    /// Whether a server has synced all that it was ordered to be sent, by its own answers; `false` also without an order.
    #[must_use]
    pub fn copying_done(&self, server: ServerId) -> bool {
        let mut orders = self
            .orders
            .iter()
            .filter(|order| order.to.peer(server).is_some())
            .peekable();
        orders.peek().is_some() && orders.all(|order| order.is_done(server))
    }

    /// What another server has synced of what is sent to it as primary or up to this end, by its own answers; `None` if
    /// nothing is.
    #[must_use]
    pub fn heard_of(&self, server: ServerId, sealed_end: Option<Position>) -> Option<Position> {
        self.peer(server, sealed_end).map(|peer| peer.synced)
    }

    /// What was sent to another server as primary or up to this end.
    #[must_use]
    pub fn sent_to(&self, server: ServerId, sealed_end: Option<Position>) -> Option<Position> {
        self.peer(server, sealed_end).map(|peer| peer.sent)
    }

    /// Whether a server has refused what is sent to it as primary or up to this end: it is sent nothing more until its
    /// connection is made anew.
    #[must_use]
    pub fn is_halted(&self, server: ServerId, sealed_end: Option<Position>) -> bool {
        self.peer(server, sealed_end).is_some_and(|peer| peer.is_halted)
    }

    fn followers(&self) -> Option<&Progress> {
        match &self.role {
            Role::Primary { followers, .. } => Some(followers),
            Role::Follower | Role::Former => None,
        }
    }

    fn order(&self, server: ServerId, sealed_end: Option<Position>) -> Option<&Order> {
        let mut orders = self.orders.iter().filter(|order| Some(order.end) == sealed_end);
        orders.find(|order| order.to.peer(server).is_some())
    }

    fn peer(&self, server: ServerId, sealed_end: Option<Position>) -> Option<&Peer> {
        match sealed_end {
            None => self.followers()?.peer(server),
            Some(_) => self.order(server, sealed_end)?.to.peer(server),
        }
    }

    fn peer_mut(&mut self, server: ServerId, sealed_end: Option<Position>) -> Option<&mut Peer> {
        if sealed_end.is_none() {
            return match &mut self.role {
                Role::Primary { followers, .. } => followers.peer_mut(server),
                Role::Follower | Role::Former => None,
            };
        }
        let orders = self.orders.iter_mut().filter(|order| Some(order.end) == sealed_end);
        orders.filter_map(|order| order.to.peer_mut(server)).next()
    }

    /// Another set of servers, as [`Rule::SetNeverChanges`] forbids it.
    #[cfg(feature = "testing")]
    pub fn replace_set(&mut self, range: &std::sync::Arc<crate::range::ReplicatedRange>) {
        self.range = std::sync::Arc::clone(range);
        if let Role::Primary { followers, .. } = &mut self.role {
            let me = self.me;
            let others = range.servers.iter().copied().filter(|server| *server != me);
            *followers = Progress::new(others, range.beginning());
            // They may have been sent anything that is here.
            let queued = self.queued;
            followers
                .peers_mut()
                .for_each(|peer| peer.most = Uncompared(Some(queued)));
        }
        self.reckon();
    }
}
