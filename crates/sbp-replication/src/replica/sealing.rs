//! The end of a range as one of its servers sees it, and what of the copy is damaged.

use sbp_types::{Epoch, Position};

use super::{Closing, Fence, NotTaken, Replica, Rule};
use crate::exchange::Vote;

impl Replica {
    /// The range is being sealed: nothing more is taken. When [`fenced_at`](Self::fenced_at) says so, the caller makes that
    /// durable.
    ///
    /// # Errors
    ///
    /// If the order is for another epoch of the range.
    pub fn fence(&mut self, epoch: Epoch) -> Result<(), NotTaken> {
        if epoch != self.range.epoch {
            return Err(NotTaken::OtherEpoch);
        }
        if self.fence == Fence::Absent {
            self.fence = Fence::Asked(self.queued);
        }
        Ok(())
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

    /// The vote on the range's end; `None` until the fence is durable and the log has ended what was queued, and for ever
    /// where [`end_is_damaged`](Self::end_is_damaged).
    #[must_use]
    pub fn vote(&self) -> Option<Vote> {
        let is_fenced = match self.fence {
            Fence::Absent => false,
            Fence::Asked(_) => !self.rules.hold(Rule::FenceBeforeVote),
            Fence::Durable(_) => true,
        };
        (is_fenced && self.queued == self.synced && !self.end_is_damaged()).then(|| Vote {
            end: self.synced,
            whole_to: self.whole_to(),
            begins_at: self.begins_at,
            writers_end: self.writers_end,
        })
    }

    /// The range ends here: the placement driver has stored it. What lies behind it is dropped.
    pub fn end_told(&mut self, end: Position) {
        self.end = Some(end);
        self.queued = self.queued.min(end);
        self.synced = self.synced.min(end);
        self.writers_end = self.writers_end.filter(|known| *known <= end);
        self.confirmed = end;
        self.unconfirmed.confirmed(end);
        self.unconfirmed.dropped_behind(end);
        self.orders.retain(|order| order.end == end);
        // Now it is known where the copy has to end: what is missing is made good.
        self.damage.is_at_end = false;
        self.damage.keep(self.begins_at, self.queued);
        self.skip_trimmed();
    }

    /// The copy's entries between two places cannot be read: it is complete when all of them are mended.
    pub fn damaged(&mut self, from: Position, to: Position) {
        let to = to.min(self.queued);
        if from < to {
            self.damage.add(from.max(self.first), to);
        }
    }

    /// Whether all of what [`damaged`](Self::damaged) would add is known already, or not needed.
    #[must_use]
    pub fn knows_damage(&self, from: Position, to: Position) -> bool {
        let (from, to) = (from.max(self.first), to.min(self.queued));
        from >= to || self.damage.covers(from, to)
    }

    /// What stands behind this place cannot be read, and nobody knows where the copy ends: it may have acknowledged more. It
    /// has no vote ([`Rule::DamagedEndIsNoVote`]) and takes nothing but what is written back, until it is told the end.
    pub fn end_damaged(&mut self, proven: Position) {
        self.queued = self.queued.min(proven);
        self.synced = self.synced.min(proven);
        self.damage.keep(self.begins_at, self.queued);
        if let Closing::Partly { .. } = self.closing {
            self.closing = Closing::Absent;
        }
        self.damage.is_at_end = self.end.is_none() && self.rules.hold(Rule::DamagedEndIsNoVote);
    }

    /// The entry that stands here is another one than the primary, or who writes back, has there: one of the two servers has
    /// something wrong. Nothing of this copy from there on counts any more, and it has no vote, like one whose
    /// [end is damaged](Self::end_damaged).
    ///
    /// To be made durable with [`disputed`](Self::disputed), and said again after a restart.
    pub fn contradicted(&mut self, at: Position) {
        self.damaged(at, self.queued);
        self.damage.dispute(at);
        self.damage.is_at_end = self.end.is_none() && self.rules.hold(Rule::DamagedEndIsNoVote);
    }

    /// From where on the copy was [contradicted](Self::contradicted), if it was and still counts for nothing there: what is
    /// [`Recovered`](crate::Recovered) after a restart.
    #[must_use]
    pub fn disputed(&self) -> Option<Position> {
        self.damage.disputed()
    }

    /// Entries between two places were put in the place of damaged ones, and are synced.
    pub fn mended(&mut self, from: Position, to: Position) {
        self.damage.remove(from, to);
    }

    /// Whether the server answers a seal, and everybody who appends or reads at the end, that the copy's end is damaged.
    #[must_use]
    pub fn end_is_damaged(&self) -> bool {
        self.damage.is_at_end
    }

    /// From and to of what of the copy cannot be read, in order.
    #[must_use]
    pub fn damaged_spans(&self) -> &[(Position, Position)] {
        self.damage.spans()
    }

    /// Everything before this place is synced and can be read.
    #[must_use]
    pub fn whole_to(&self) -> Position {
        self.whole(self.synced)
    }

    /// A place, or the damage before it.
    pub(super) fn whole(&self, at: Position) -> Position {
        match self.damage.first() {
            Some(first) if self.rules.hold(Rule::DamagedIsIncomplete) => at.min(first),
            _ => at,
        }
    }
}
