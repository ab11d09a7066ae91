//! One server's copy of a range.

use std::sync::Arc;

use sbp_types::{Position, ServerId};

use crate::entry::Entry;
use crate::progress::{Peer, Progress};
use crate::range::ReplicatedRange;
use crate::rules::{Rule, Rules};

/// One server's copy of a range: what it may do with it.
///
/// Invariants: `synced <= queued`; the confirmed position never falls; once fenced, it takes nothing but what is written back
/// up to the range's end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    me: ServerId,
    range: Arc<ReplicatedRange>,
    role: Role,
    /// Everything before it was given to the log.
    queued: Position,
    /// Everything before it is synced.
    synced: Position,
    /// Everything before it is known to be confirmed.
    confirmed: Position,
    fence: Fence,
    /// Where the range ends, once the placement driver has said so.
    end: Option<Position>,
    copying: Option<Copying>,
    rules: Rules,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Sends entries to the followers; whether it takes appends too.
    Primary {
        followers: Progress,
        takes_appends: bool,
    },
    Follower,
    /// The primary in an earlier life of its process: whatever it had in flight then is unknown.
    Former,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fence {
    Absent,
    /// Nothing is taken any more; a crash may still forget that. The copy ended here.
    Asked(Position),
    Durable(Position),
}

/// Entries up to `end` on their way to servers that lack them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Copying {
    to: Progress,
    end: Position,
}

/// What a server finds of a range when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// Everything before it is on the disk.
    pub synced: Position,
    /// Where the copy ended when it was fenced, if it was: what [`Replica::fenced_at`] said when that was made durable.
    pub fenced_at: Option<Position>,
    /// The range's end, if the server was told.
    pub end: Option<Position>,
}

/// An entry that another server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offered {
    /// The server that sends it.
    pub from: ServerId,
    /// Where it stands.
    pub at: Position,
    /// How much it takes.
    pub entry: Entry,
    /// What the sender knows to be confirmed.
    pub confirmed: Position,
    /// The range's end, where the entry is written back or copied.
    pub sealed_end: Option<Position>,
}

/// What to do with an entry that another server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Give it to the log, and answer when it is synced.
    Take,
    /// It is here: compare the two, and answer when it is synced.
    Held,
    /// Something before it is missing: the sender goes on here.
    GoOn(Position),
    /// Nothing is taken.
    Refused(NotTaken),
}

/// Why a copy takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotTaken {
    /// Another server is the range's primary.
    NotPrimary,
    /// This server has to have the range sealed: in an earlier life it was its primary, its log dropped what was queued, or a
    /// follower has less than it acknowledged.
    NeedsSeal,
    /// The range is being sealed.
    Fenced,
    /// The range is sealed.
    Sealed,
    /// The state of the writers, which begins the range, is missing.
    WritersMissing,
}

/// What a follower answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Everything before this place is synced there.
    Synced(Position),
    /// The follower's copy ends here: send what follows.
    GoOn(Position),
}

impl Answer {
    /// The place that it names.
    #[must_use]
    pub fn place(self) -> Position {
        match self {
            Self::Synced(at) | Self::GoOn(at) => at,
        }
    }
}

/// What a fenced server says when a range is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// Its synced end.
    pub end: Position,
}

/// Whether a primary goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It does.
    Sound,
    /// The follower has less than it acknowledged: the range has to be sealed.
    FollowerLost,
}

impl Replica {
    /// The copy of a range that is opened.
    #[must_use]
    pub fn open(me: ServerId, range: Arc<ReplicatedRange>, rules: Rules) -> Self {
        let beginning = range.beginning();
        let role = if range.primary() == Some(me) {
            let others = range.servers.iter().copied().filter(|server| *server != me);
            Role::Primary {
                followers: Progress::new(others, beginning),
                takes_appends: true,
            }
        } else {
            Role::Follower
        };
        Self {
            me,
            range,
            role,
            queued: beginning,
            synced: beginning,
            confirmed: beginning,
            fence: Fence::Absent,
            end: None,
            copying: None,
            rules,
        }
    }

    /// The copy of a range after a restart of its server.
    ///
    /// A primary that shares the range appends no more to it ([`Rule::OneLife`]): entries that it had sent may be on the
    /// followers and not here, and their offsets must not be given to others.
    #[must_use]
    pub fn recover(me: ServerId, range: Arc<ReplicatedRange>, found: Recovered, rules: Rules) -> Self {
        let is_shared = range.servers.len() > 1;
        let mut replica = Self::open(me, range, rules);
        if is_shared && rules.hold(Rule::OneLife) && matches!(replica.role, Role::Primary { .. }) {
            replica.role = Role::Former;
        }
        replica.queued = found.synced;
        replica.synced = found.synced;
        if let Some(taken) = found.fenced_at.filter(|_| rules.hold(Rule::FenceSurvives)) {
            replica.fence = Fence::Durable(taken);
        }
        if let Some(end) = found.end {
            replica.end_told(end);
        }
        replica.reckon();
        replica
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> &Arc<ReplicatedRange> {
        &self.range
    }

    /// Whether an append of a client may be taken.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn takes_appends(&self) -> Result<(), NotTaken> {
        if self.end.is_some() {
            return Err(NotTaken::Sealed);
        }
        match &self.role {
            Role::Follower => Err(NotTaken::NotPrimary),
            _ if self.fence != Fence::Absent && self.rules.hold(Rule::FenceHoldsAgainstClients) => {
                Err(NotTaken::Fenced)
            }
            Role::Former
            | Role::Primary {
                takes_appends: false, ..
            } => Err(NotTaken::NeedsSeal),
            _ if self.lacks_writers() => Err(NotTaken::WritersMissing),
            Role::Primary { .. } => Ok(()),
        }
    }

    /// Whether the state of the writers, which begins the range, was not given to the log yet, or was dropped.
    fn lacks_writers(&self) -> bool {
        let begins = self.range.begins_with_writers() && self.queued == self.range.beginning();
        begins && self.rules.hold(Rule::WritersTravel)
    }

    /// Where the next entry stands: everything before it was given to the log.
    #[must_use]
    pub fn next(&self) -> Position {
        self.queued
    }

    /// Everything before this place is synced here.
    #[must_use]
    pub fn synced_end(&self) -> Position {
        self.synced
    }

    /// Entries up to `to` were given to the log.
    pub fn queued(&mut self, to: Position) {
        #[cfg(feature = "testing")]
        if let (
            Role::Primary {
                takes_appends: true, ..
            },
            Fence::Asked(taken) | Fence::Durable(taken),
            false,
        ) = (
            &self.role,
            &mut self.fence,
            self.rules.hold(Rule::FenceHoldsAgainstClients),
        ) {
            // The rule that the fence holds against clients is broken: their appends count as ever.
            *taken = (*taken).max(to);
        }
        self.queued = self.queued.max(to);
        self.reckon();
    }

    /// The log has synced everything before `to`.
    pub fn synced(&mut self, to: Position) {
        let to = self.end.map_or(to, |end| to.min(end));
        self.synced = self.synced.max(to);
        self.queued = self.queued.max(to);
        self.reckon();
    }

    /// The log dropped what was queued and not synced, as on a full disk.
    ///
    /// A primary's followers may have it, so that its offsets are spent: it asks for a seal ([`Rule::OffsetsOnce`]).
    pub fn dropped(&mut self) {
        if self.queued == self.synced {
            return;
        }
        self.queued = self.synced;
        // What comes back from others will be written back, and must not count.
        if let Fence::Asked(taken) | Fence::Durable(taken) = &mut self.fence {
            *taken = (*taken).min(self.synced);
        }
        let is_shared = self.range.servers.len() > 1;
        if let Role::Primary { takes_appends, .. } = &mut self.role
            && is_shared
            && self.rules.hold(Rule::OffsetsOnce)
        {
            *takes_appends = false;
        }
    }

    /// What is acknowledged: appends before this place succeed.
    #[must_use]
    pub fn acknowledged(&self) -> Position {
        if self.rules.hold(Rule::AcknowledgedWhenConfirmed) {
            self.confirmed
        } else {
            self.synced
        }
    }

    /// What is known to be confirmed.
    #[must_use]
    pub fn confirmed(&self) -> Position {
        self.confirmed
    }

    /// What readers may see here; `None` where the copy is of a sealed range and incomplete.
    #[must_use]
    pub fn readable(&self) -> Option<Position> {
        if self.end.is_some_and(|end| self.synced < end) {
            return None;
        }
        Some(if self.rules.hold(Rule::ReadersSeeConfirmed) {
            self.confirmed.min(self.synced)
        } else {
            self.synced
        })
    }

    /// The range's end, if this server was told.
    #[must_use]
    pub fn end(&self) -> Option<Position> {
        self.end
    }

    /// Whether the range is sealed and all of it is synced here.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.synced >= end)
    }

    /// Whether the copy says all about the writers at its present end.
    #[must_use]
    pub fn knows_writers(&self) -> bool {
        self.range.knows_writers(self.synced)
    }

    // As primary, or as the one that writes back.

    /// The place of the next entry to send to a server, and the end if it is written back or copied; `None` if there is
    /// nothing to send.
    #[must_use]
    pub fn next_for(&self, server: ServerId) -> Option<(Position, Option<Position>)> {
        if let Some(copying) = &self.copying
            && let Some(peer) = copying.to.peer(server)
        {
            return (peer.sent < copying.end).then_some((peer.sent, Some(copying.end)));
        }
        let Role::Primary { followers, .. } = &self.role else {
            return None;
        };
        let peer = followers.peer(server)?;
        (peer.sent < self.queued && self.end.is_none()).then_some((peer.sent, None))
    }

    /// The servers that this one sends entries to.
    pub fn sends_to(&self) -> impl Iterator<Item = ServerId> {
        let copying = self.copying.iter().flat_map(|copying| copying.to.servers());
        let followers = match &self.role {
            Role::Primary { followers, .. } => Some(followers.servers()),
            Role::Follower | Role::Former => None,
        };
        followers.into_iter().flatten().chain(copying)
    }

    /// Where the first entry stands that a follower may still have to be sent; `None` if there are no followers.
    #[must_use]
    pub fn needed_from(&self) -> Option<Position> {
        match &self.role {
            Role::Primary { followers, .. } => followers.synced().min(),
            Role::Follower | Role::Former => None,
        }
    }

    /// The entry that ends at `to` was sent.
    pub fn sent(&mut self, server: ServerId, to: Position) {
        if let Some(peer) = self.peer_mut(server) {
            peer.sent = peer.sent.max(to);
        }
    }

    /// A server has answered to entries that were sent with this `sealed_end` ([`next_for`](Self::next_for)). An answer to an
    /// order to write back that is not in force any more changes nothing: above all it is no answer to the primary.
    pub fn heard(&mut self, server: ServerId, sealed_end: Option<Position>, answer: Answer) -> Standing {
        let peer = match (sealed_end, &mut self.copying, &mut self.role) {
            (Some(end), Some(copying), _) if copying.end == end => copying.to.peer_mut(server),
            (None, _, Role::Primary { followers, .. }) => followers.peer_mut(server),
            _ => None,
        };
        let Some(peer) = peer else {
            return Standing::Sound;
        };
        let mut standing = Standing::Sound;
        match answer {
            Answer::Synced(to) => {
                peer.synced = peer.synced.max(to);
                peer.sent = peer.sent.max(peer.synced);
            }
            Answer::GoOn(at) => {
                if at < peer.synced {
                    // It counts for less from now on.
                    standing = Standing::FollowerLost;
                    peer.synced = at;
                }
                peer.sent = at;
            }
        }
        if standing == Standing::FollowerLost
            && sealed_end.is_none()
            && let Role::Primary { takes_appends, .. } = &mut self.role
        {
            *takes_appends = false;
        }
        self.reckon();
        standing
    }

    /// The connection to a server is gone, and with it what was on its way.
    pub fn disconnected(&mut self, server: ServerId) {
        let beginning = self.range.beginning();
        let holds = self.rules.hold(Rule::ConfirmedNeverFalls);
        if let Some(peer) = self.peer_mut(server) {
            if !holds {
                peer.synced = beginning;
            }
            peer.sent = peer.synced;
        }
        self.reckon();
    }

    /// Begins to send everything up to `end`, which this server has synced, to these servers.
    pub fn write_back(&mut self, to: impl IntoIterator<Item = ServerId>, end: Position) {
        let to = Progress::new(to, self.range.beginning());
        self.copying = Some(Copying { to, end });
    }

    /// Whether a server has synced everything up to `end`, which is written back to it, by its own answers. An earlier
    /// order may have asked for less.
    #[must_use]
    pub fn is_written_back(&self, server: ServerId, end: Position) -> bool {
        let copying = self.copying.as_ref().filter(|copying| copying.end >= end);
        copying.is_some_and(|copying| copying.to.peer(server).is_some_and(|peer| peer.synced >= end))
    }

    /// Whether this is being sent to these servers.
    #[must_use]
    pub fn writes_back(&self, to: &[ServerId], end: Position) -> bool {
        let copying = self.copying.as_ref();
        copying.is_some_and(|copying| copying.end == end && to.iter().all(|server| copying.to.peer(*server).is_some()))
    }

    /// The end up to which entries are written back to this server, if they are.
    #[must_use]
    pub fn writes_back_up_to(&self, server: ServerId) -> Option<Position> {
        let copying = self.copying.as_ref()?;
        copying.to.peer(server).map(|_| copying.end)
    }

    /// What another server has synced, by its own answers; `None` if nothing is sent to it.
    #[must_use]
    pub fn heard_of(&self, server: ServerId) -> Option<Position> {
        self.peer(server).map(|(peer, _)| peer.synced)
    }

    /// What was sent to another server, and whether it is written back or copied.
    #[must_use]
    pub fn sent_to(&self, server: ServerId) -> Option<(Position, bool)> {
        self.peer(server).map(|(peer, is_copy)| (peer.sent, is_copy))
    }

    fn peer(&self, server: ServerId) -> Option<(&Peer, bool)> {
        let copying = self.copying.as_ref().and_then(|copying| copying.to.peer(server));
        let sending = || match &self.role {
            Role::Primary { followers, .. } => followers.peer(server),
            Role::Follower | Role::Former => None,
        };
        copying
            .map(|peer| (peer, true))
            .or_else(|| sending().map(|peer| (peer, false)))
    }

    /// Another set of servers, as [`Rule::SetNeverChanges`] forbids it.
    #[cfg(feature = "testing")]
    pub fn replace_set(&mut self, range: &Arc<ReplicatedRange>) {
        self.range = Arc::clone(range);
        if let Role::Primary { followers, .. } = &mut self.role {
            let me = self.me;
            let others = range.servers.iter().copied().filter(|server| *server != me);
            *followers = Progress::new(others, range.beginning());
        }
        self.reckon();
    }

    // As follower.

    /// Another server sends an entry.
    pub fn offered(&mut self, offered: &Offered) -> Verdict {
        let Some(to) = offered.entry.end(offered.at) else {
            return Verdict::Refused(NotTaken::Sealed);
        };
        if let Some(why) = self.refuses(offered, to) {
            return Verdict::Refused(why);
        }
        #[cfg(feature = "testing")]
        if let (None, Fence::Asked(taken) | Fence::Durable(taken)) = (offered.sealed_end, &mut self.fence) {
            // The rule that the fence holds against the primary is broken: its entries count as ever.
            *taken = (*taken).max(to);
        }
        let is_ahead = offered.at > self.queued && self.rules.hold(Rule::OnlyWhatContinues);
        if is_ahead || (offered.at < self.queued && to > self.queued) {
            return Verdict::GoOn(self.queued);
        }
        self.learn(offered.confirmed);
        if offered.at < self.queued {
            Verdict::Held
        } else {
            Verdict::Take
        }
    }

    fn refuses(&self, offered: &Offered, to: Position) -> Option<NotTaken> {
        let limit = self.end.or(offered.sealed_end);
        if limit.is_some_and(|end| to > end) {
            return Some(NotTaken::Sealed);
        }
        if offered.sealed_end.is_none() {
            if self.end.is_some() {
                return Some(NotTaken::Sealed);
            }
            if self.range.primary() != Some(offered.from) || self.role != Role::Follower {
                return Some(NotTaken::NotPrimary);
            }
            if self.fence != Fence::Absent && self.rules.hold(Rule::FenceHoldsAgainstPrimary) {
                return Some(NotTaken::Fenced);
            }
        }
        let begins = self.range.begins_with_writers() && offered.at == self.range.beginning();
        (begins && offered.entry != Entry::Writers && self.rules.hold(Rule::WritersTravel))
            .then_some(NotTaken::WritersMissing)
    }

    /// The primary says what is confirmed.
    pub fn learn(&mut self, confirmed: Position) {
        self.confirmed = self.confirmed.max(confirmed);
    }

    /// What the primary is answered for entries that were taken.
    ///
    /// What is written back while the range is sealed is no part of it ([`Rule::WrittenBackConfirmsNothing`]): another
    /// seal of the range may have this server's vote from before, and end the range below.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let synced = if self.rules.hold(Rule::AnsweredWhenSynced) {
            self.synced
        } else {
            self.queued
        };
        Answer::Synced(self.taken().min(synced))
    }

    /// Everything before this place was taken before the range was fenced, if it was.
    fn taken(&self) -> Position {
        match self.fence {
            Fence::Asked(taken) | Fence::Durable(taken) if self.rules.hold(Rule::WrittenBackConfirmsNothing) => taken,
            _ => self.queued.max(self.synced),
        }
    }

    /// As [`answer`](Self::answer), for what is written back or, once the range is sealed, copied.
    #[must_use]
    pub fn answer_written_back(&self) -> Answer {
        let rule = match self.end {
            None => Rule::WriteBackSynced,
            Some(_) => Rule::CopiesCountWhenSynced,
        };
        Answer::Synced(if self.rules.hold(rule) {
            self.synced
        } else {
            self.queued
        })
    }

    // While it is sealed.

    /// The range is being sealed: nothing more is taken. When [`fenced_at`](Self::fenced_at) says so, the caller makes that
    /// durable.
    pub fn fence(&mut self) {
        if self.fence == Fence::Absent {
            self.fence = Fence::Asked(self.queued);
        }
    }

    /// What is to be made durable of a fence, and restored after a restart: where the copy ended. `None` while there is no
    /// fence, or the log has not ended what was queued before.
    #[must_use]
    pub fn fenced_at(&self) -> Option<Position> {
        match self.fence {
            Fence::Asked(taken) => (self.queued == self.synced).then_some(taken.min(self.synced)),
            Fence::Durable(taken) => Some(taken),
            Fence::Absent => None,
        }
    }

    /// The place that [`fenced_at`](Self::fenced_at) said is on the disk.
    pub fn fence_is_durable(&mut self, taken: Position) {
        if let Fence::Asked(_) = self.fence {
            self.fence = Fence::Durable(taken);
        }
    }

    /// Whether the range is fenced here, durably or not yet.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fence != Fence::Absent
    }

    /// The vote on the range's end; `None` until the fence is durable and the log has ended what was queued.
    #[must_use]
    pub fn vote(&self) -> Option<Vote> {
        let is_fenced = match self.fence {
            Fence::Absent => false,
            Fence::Asked(_) => !self.rules.hold(Rule::FenceBeforeVote),
            Fence::Durable(_) => true,
        };
        (is_fenced && self.queued == self.synced).then_some(Vote { end: self.synced })
    }

    /// The range ends here: the placement driver has stored it. What lies behind it is dropped.
    pub fn end_told(&mut self, end: Position) {
        self.end = Some(end);
        self.queued = self.queued.min(end);
        self.synced = self.synced.min(end);
        self.confirmed = end;
    }

    fn peer_mut(&mut self, server: ServerId) -> Option<&mut Peer> {
        if let Some(copying) = &mut self.copying
            && copying.to.peer(server).is_some()
        {
            return copying.to.peer_mut(server);
        }
        match &mut self.role {
            Role::Primary { followers, .. } => followers.peer_mut(server),
            Role::Follower | Role::Former => None,
        }
    }

    /// Computes what is confirmed from what the set has synced.
    fn reckon(&mut self) {
        let Role::Primary { followers, .. } = &self.role else {
            return;
        };
        if self.end.is_some() {
            return;
        }
        let own = self.answer().place();
        let ends = std::iter::once(own).chain(followers.synced());
        let confirmed = if self.rules.hold(Rule::PositionsNotOffsets) {
            self.range.quorum.confirmed(ends)
        } else {
            let blind = |end: Position| Position { marks: u32::MAX, ..end };
            self.range.quorum.confirmed(ends.map(blind))
        };
        let confirmed = confirmed.unwrap_or(self.confirmed);
        self.confirmed = if self.rules.hold(Rule::ConfirmedNeverFalls) {
            self.confirmed.max(confirmed)
        } else {
            confirmed
        };
    }
}
