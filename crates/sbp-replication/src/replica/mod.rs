//! One server's copy of a range.

mod following;
mod sealing;
mod sending;

use std::sync::Arc;

use sbp_types::{Offset, Position, ServerId};
use smallvec::SmallVec;

use crate::damage::Damage;
use crate::entry::Entry;
use crate::exchange::{NotTaken, Recovered};
use crate::progress::{Progress, Uncompared};
use crate::range::ReplicatedRange;
use crate::rules::{Rule, Rules};
use crate::unconfirmed::Unconfirmed;

/// One server's copy of a range: what it may do with it.
///
/// The server has made durable that it holds the range before it makes one ([`Rule::KnownBeforeOpened`]).
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
    /// Where the copy begins: where the range does, or where it was made from a trimmed one.
    begins_at: Position,
    /// Where the state of the writers ends that begins the range, once one of its parts is here.
    writers_end: Option<Position>,
    /// Records before it are trimmed.
    trimmed: Offset,
    /// The first entry that the log still has stands here.
    first: Position,
    fence: Fence,
    /// Where the range ends, once the placement driver has said so.
    end: Option<Position>,
    closing: Closing,
    damage: Damage,
    unconfirmed: Unconfirmed,
    orders: SmallVec<[Order; 1]>,
    /// How many orders were given: each has its number.
    orders_given: Uncompared<u32>,
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

/// The state of the writers that closes a copy of a sealed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Closing {
    Absent,
    Partly {
        from: ServerId,
        parts: u32,
        taken: u32,
        synced: u32,
    },
    Whole {
        parts: u32,
    },
}

/// Entries up to `end` on their way to servers that lack them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Order {
    end: Position,
    /// The end or, with the state of the writers that closes a copy, the place behind all its parts.
    target: Position,
    to: Progress,
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
            role,
            queued: beginning,
            synced: beginning,
            confirmed: beginning,
            begins_at: beginning,
            writers_end: None,
            trimmed: range.start,
            first: beginning,
            range,
            fence: Fence::Absent,
            end: None,
            closing: Closing::Absent,
            damage: Damage::default(),
            unconfirmed: Unconfirmed::default(),
            orders: SmallVec::new(),
            orders_given: Uncompared::default(),
            rules,
        }
    }

    /// The copy of a range after a restart of its server. What is trimmed or damaged is said afterwards
    /// ([`trimmed`](Self::trimmed), [`damaged`](Self::damaged), [`end_damaged`](Self::end_damaged)).
    ///
    /// A primary that shares the range appends no more to it ([`Rule::OneLife`]): entries that it had sent may be on the
    /// followers and not here, and their offsets must not be given to others.
    #[must_use]
    pub fn recover(me: ServerId, range: Arc<ReplicatedRange>, found: Recovered, rules: Rules) -> Self {
        let mut replica = Self::open(me, range, rules);
        if replica.is_shared() && rules.hold(Rule::OneLife) && matches!(replica.role, Role::Primary { .. }) {
            replica.role = Role::Former;
        }
        replica.queued = found.synced;
        replica.synced = found.synced;
        replica.begins_at = found.begins_at;
        replica.first = found.begins_at;
        replica.writers_end = found.writers_end;
        if let Some(taken) = found.fenced_at.filter(|_| rules.hold(Rule::FenceSurvives)) {
            replica.fence = Fence::Durable(taken);
        }
        if let Some(end) = found.end {
            replica.end_told(end);
        }
        if let Some(parts) = found.closed {
            replica.closing = Closing::Whole { parts };
        }
        if let Some(at) = found.disputed {
            replica.contradicted(at);
        }
        replica.reckon();
        replica
    }

    /// The same, with another bound than [`MOST_UNCONFIRMED`](crate::MOST_UNCONFIRMED) for what waits to be confirmed.
    #[must_use]
    pub fn with_most_unconfirmed(mut self, most: usize) -> Self {
        self.unconfirmed.most = most;
        self
    }

    /// The server whose copy it is.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.me
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> &Arc<ReplicatedRange> {
        &self.range
    }

    /// Whether this server is the range's primary, and was not restarted since.
    #[must_use]
    pub fn is_first_life(&self) -> bool {
        matches!(self.role, Role::Primary { .. })
    }

    fn is_shared(&self) -> bool {
        self.range.servers.len() > 1
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
            _ if self.damage.is_at_end => Err(NotTaken::Damaged),
            _ if self.fence != Fence::Absent && self.rules.hold(Rule::FenceHoldsAgainstClients) => {
                Err(NotTaken::Fenced)
            }
            Role::Former
            | Role::Primary {
                takes_appends: false, ..
            } => Err(NotTaken::NeedsSeal),
            _ if self.lacks_writers() => Err(NotTaken::WritersMissing),
            _ if self.room() == 0 => Err(NotTaken::TooManyUnconfirmed),
            Role::Primary { .. } => Ok(()),
        }
    }

    /// How many appends more may be given to the log before some are confirmed.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_shared() {
            self.unconfirmed.room(self.rules)
        } else {
            usize::MAX
        }
    }

    /// The state of the writers, which begins the range, has so many parts. A primary says so before it gives them to the log.
    pub fn begin_with_writers(&mut self, parts: u32) {
        let beginning = self.range.beginning();
        if self.queued == beginning && self.range.begins_with_writers() {
            self.writers_end = Some(Position {
                marks: beginning.marks.saturating_add(parts),
                ..beginning
            });
        }
    }

    /// Whether some of the state of the writers, which begins the range, was not given to the log yet, or was dropped.
    fn lacks_writers(&self) -> bool {
        let known_from = self.range.writers_known_from(self.writers_end, self.rules);
        self.rules.hold(Rule::WritersTravel) && known_from.is_none_or(|known| self.queued < known)
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

    /// The entry that ends at `to` was given to the log: one call for each.
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
        if self.is_shared() && matches!(self.role, Role::Primary { .. }) && self.end.is_none() {
            self.unconfirmed.add(to);
        }
        self.queued = self.queued.max(to);
        self.reckon();
    }

    /// The log was given nothing from this place on of what was [taken](crate::Verdict::Take): it refused that at once.
    pub fn not_queued(&mut self, from: Position) {
        let from = from.max(self.synced);
        self.queued = self.queued.min(from);
        if let Fence::Asked(taken) | Fence::Durable(taken) = &mut self.fence {
            *taken = (*taken).min(from);
        }
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
        if let Closing::Partly { taken, synced, .. } = &mut self.closing {
            *taken = *synced;
        }
        self.damage.forget_received();
        if self.queued == self.synced {
            return;
        }
        self.queued = self.synced;
        self.unconfirmed.dropped_behind(self.synced);
        // What comes back from others will be written back, and must not count.
        if let Fence::Asked(taken) | Fence::Durable(taken) = &mut self.fence {
            *taken = (*taken).min(self.synced);
        }
        let is_shared = self.is_shared();
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

    /// When an answer may be given that rests on what stands before `rests_on`, as that to a repeated batch, or the refusal of
    /// one that a queued one makes impossible: `None` for now, else once [`acknowledged`](Self::acknowledged) is there
    /// ([`Rule::RepeatsWaitForConfirmed`]).
    #[must_use]
    pub fn answers_at(&self, rests_on: Position) -> Option<Position> {
        // What stands before the range is confirmed: the range began behind it.
        let waits = rests_on > self.range.beginning() && rests_on > self.acknowledged();
        (waits && self.rules.hold(Rule::RepeatsWaitForConfirmed)).then_some(rests_on)
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
        let readable = if self.rules.hold(Rule::ReadersSeeConfirmed) {
            self.confirmed.min(self.synced)
        } else {
            self.synced
        };
        Some(self.undisputed(readable))
    }

    /// The range's end, if this server was told.
    #[must_use]
    pub fn end(&self) -> Option<Position> {
        self.end
    }

    /// Whether the range is sealed and all of it that is not trimmed is synced here, and can be read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.synced >= end && self.whole_to() >= end)
    }

    /// Whether the server says, when it is told of the sealed range, that it lacks some of it ([`Rule::IncompleteSaysSo`]): the
    /// placement driver counts it no more among those that have everything. It may have had that when it voted.
    #[must_use]
    pub fn says_incomplete(&self) -> bool {
        self.end.is_some() && !self.is_complete() && self.rules.hold(Rule::IncompleteSaysSo)
    }

    /// Where the copy begins: where the range does, or where it was made from a trimmed one. To be made durable with the
    /// copy, as part of what is [`Recovered`].
    #[must_use]
    pub fn begins_at(&self) -> Position {
        self.begins_at
    }

    /// The place behind all parts of the state of the writers that begins the range, if one of them is here.
    #[must_use]
    pub fn writers_end(&self) -> Option<Position> {
        self.writers_end
    }

    /// The place from which on the copy's entries say all about the writers; `None` if they never do.
    #[must_use]
    pub fn writers_known_from(&self) -> Option<Position> {
        let is_continued = self.range.goes_on_alone() && self.range.primary() != Some(self.me);
        let says_all = !is_continued || !self.rules.hold(Rule::ContinuationTellsNoWriters);
        if self.begins_at == self.range.beginning() && says_all {
            self.range.writers_known_from(self.writers_end, self.rules)
        } else {
            None
        }
    }

    /// Whether the copy says all about the writers at its present end.
    #[must_use]
    pub fn knows_writers(&self) -> bool {
        let known_from = self.writers_known_from();
        known_from.is_some_and(|known| self.synced >= known) || self.is_closed()
    }

    /// Whether all of the state of the writers that closes the copy is on the disk.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.closing, Closing::Whole { .. })
    }

    /// The stream was trimmed: records before `start` are gone. `first` is where the first entry stands that the log still
    /// has of the range, or its next one. Of an open range the log keeps what [`needed_from`](Self::needed_from) says.
    pub fn trimmed(&mut self, start: Offset, first: Position) {
        self.trimmed = self.trimmed.max(start);
        self.first = self.first.max(first.min(self.queued));
        self.damage.keep(self.first, self.queued);
        self.skip_trimmed();
        for order in &mut self.orders {
            order.skip_before(self.first);
        }
    }

    /// Of a range that is trimmed up to its end nothing is wanted.
    fn skip_trimmed(&mut self) {
        if let Some(end) = self.end
            && self.trimmed >= end.offset
            && self.queued.offset < self.trimmed
            && self.queued < end
        {
            self.begins_at = end;
            self.first = end;
            (self.queued, self.synced) = (end, end);
            self.damage = Damage::default();
        }
    }

    /// Everything before this place was taken before the range was fenced, if it was.
    fn taken(&self) -> Position {
        match self.fence {
            Fence::Asked(taken) | Fence::Durable(taken) if self.rules.hold(Rule::WrittenBackConfirmsNothing) => taken,
            _ => self.queued.max(self.synced),
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
        let own = self.own_share();
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
        self.unconfirmed.confirmed(self.confirmed);
    }

    /// What this server counts for in what is confirmed.
    fn own_share(&self) -> Position {
        let synced = if self.rules.hold(Rule::AnsweredWhenSynced) {
            self.synced
        } else {
            self.queued
        };
        self.undisputed(self.taken().min(synced))
    }

    /// A place, or where a copy without a vote begins to be damaged or another one than it should be.
    fn undisputed(&self, at: Position) -> Position {
        if self.damage.is_at_end { self.whole(at) } else { at }
    }
}

#[cfg(test)]
mod tests;
