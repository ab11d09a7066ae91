//! Entries that other servers send: as primary, written back, or copied.

use sbp_types::Position;

use super::{Closing, Entry, Fence, NotTaken, Replica, Role, Rule};
use crate::exchange::{Answer, Offered, Verdict};

impl Replica {
    /// Another server sends an entry.
    pub fn offered(&mut self, offered: &Offered) -> Verdict {
        let Some(to) = offered.entry.end(offered.at) else {
            return Verdict::Refused(NotTaken::OutOfPlace);
        };
        if offered.epoch != self.range.epoch {
            return Verdict::Refused(NotTaken::OtherEpoch);
        }
        if let Some(verdict) = self.offered_closing(offered) {
            return verdict;
        }
        if let Some(why) = self.refuses(offered, to) {
            return Verdict::Refused(why);
        }
        #[cfg(feature = "testing")]
        if let (None, Fence::Asked(taken) | Fence::Durable(taken)) = (offered.sealed_end, &mut self.fence) {
            // The rule that the fence holds against the primary is broken: its entries count as ever.
            *taken = (*taken).max(to);
        }
        if self.begins_with(offered) {
            self.begin_at(offered.at);
            self.learn(offered.confirmed);
            return Verdict::Begin;
        }
        let is_ahead = offered.at > self.queued && self.rules.hold(Rule::OnlyWhatContinues);
        if is_ahead || (offered.at < self.queued && to > self.queued) {
            return Verdict::GoOn(self.queued);
        }
        if let Some(why) = self.misplaced(offered) {
            return Verdict::Refused(why);
        }
        if let Some(at) = self.lacks_before(offered) {
            return Verdict::GoOn(at);
        }
        self.learn(offered.confirmed);
        if offered.at >= self.queued {
            if let Entry::Writers { parts, .. } = offered.entry {
                self.writers_end = Some(Position {
                    marks: parts,
                    ..self.range.beginning()
                });
            }
            Verdict::Take
        } else if self.damage.touches(offered.at, to) {
            self.damage.receive(offered.at, to);
            Verdict::Mend
        } else {
            Verdict::Held
        }
    }

    fn refuses(&self, offered: &Offered, to: Position) -> Option<NotTaken> {
        let limit = self.end.or(offered.sealed_end);
        if limit.is_some_and(|end| to > end) {
            return Some(NotTaken::Sealed);
        }
        if offered.sealed_end.is_some() {
            return None;
        }
        if self.end.is_some() {
            return Some(NotTaken::Sealed);
        }
        if self.range.primary() != Some(offered.from) || self.role != Role::Follower {
            return Some(NotTaken::NotPrimary);
        }
        if self.fence != Fence::Absent && self.rules.hold(Rule::FenceHoldsAgainstPrimary) {
            return Some(NotTaken::Fenced);
        }
        self.damage.is_at_end.then_some(NotTaken::Damaged)
    }

    /// Whether an entry is what a range begins with where that has to stand, and nowhere else.
    fn misplaced(&self, offered: &Offered) -> Option<NotTaken> {
        if let Entry::Writers { part, parts } = offered.entry {
            let beginning = self.range.beginning();
            let stands = self.range.begins_with_writers()
                && offered.at.offset == beginning.offset
                && offered.at.marks == part
                && self.writers_end.is_none_or(|end| end.marks == parts);
            return (!stands).then_some(NotTaken::OutOfPlace);
        }
        let is_first = self.begins_at == self.range.beginning() && self.lacks_writers();
        (is_first && !self.continues(offered)).then_some(NotTaken::WritersMissing)
    }

    /// Whether the copy is one of a sealed range that one server alone had, and that goes on without the state of the writers where
    /// the range before it ended: its first entry stands where that state would. Such a copy never says anything of the writers.
    fn continues(&self, offered: &Offered) -> bool {
        offered.sealed_end.is_some() && self.end.is_some() && self.writers_end.is_none()
    }

    /// Where a damaged entry stands that comes before what is written back or copied, and for which nothing was received: it was
    /// damaged after this server had said that it has it, and who sends does not send it by itself.
    fn lacks_before(&self, offered: &Offered) -> Option<Position> {
        let is_wanted = offered.sealed_end.is_some() && self.rules.hold(Rule::DamagedIsIncomplete);
        let lacking = self.damage.first_lacking().filter(|_| is_wanted);
        lacking.filter(|lacking| *lacking < offered.at)
    }

    /// Whether a copy that is written back or made begins with this entry, because what stands before it is trimmed.
    fn begins_with(&self, offered: &Offered) -> bool {
        let is_wanted = offered.sealed_end.is_some() && offered.at > self.queued;
        is_wanted && self.queued.offset < self.trimmed && offered.at.offset <= self.trimmed
    }

    fn begin_at(&mut self, at: Position) {
        self.begins_at = at;
        self.first = at;
        (self.queued, self.synced) = (at, at);
        self.writers_end = None;
        self.damage.keep(at, at);
    }

    /// A part of the state of the writers that closes the copy; `None` for every other entry.
    fn offered_closing(&mut self, offered: &Offered) -> Option<Verdict> {
        let Entry::Writers { part, parts } = offered.entry else {
            return None;
        };
        let end = offered.sealed_end.filter(|end| offered.at >= *end)?;
        if self.end != Some(end) {
            return Some(Verdict::Refused(NotTaken::EndUnknown));
        }
        let stands = offered.at.offset == end.offset && offered.at.marks - end.marks == part;
        if !stands {
            return Some(Verdict::Refused(NotTaken::OutOfPlace));
        }
        if self.queued < end {
            return Some(Verdict::GoOn(self.queued));
        }
        let (taken, synced) = match self.closing {
            Closing::Whole { .. } => {
                // It is whole however many parts the sender has made of it.
                self.closing = Closing::Whole { parts };
                return Some(Verdict::Held);
            }
            Closing::Partly {
                from,
                parts: known,
                taken,
                synced,
            } if from == offered.from && known == parts => (taken, synced),
            // Another server may have divided it otherwise.
            Closing::Partly { .. } | Closing::Absent => (0, 0),
        };
        if part < taken {
            return Some(Verdict::Held);
        }
        if part > taken {
            return Some(Verdict::GoOn(Position {
                marks: end.marks + taken,
                ..end
            }));
        }
        self.closing = Closing::Partly {
            from: offered.from,
            parts,
            taken: part + 1,
            synced,
        };
        Some(Verdict::Close)
    }

    /// So many parts of the state of the writers that closes the copy, which `from` sent, are on the disk.
    pub fn closing_synced(&mut self, from: sbp_types::ServerId, count: u32) {
        if let Closing::Partly {
            from: known,
            parts,
            taken,
            synced,
        } = &mut self.closing
            && *known == from
        {
            *synced = (*synced).max(count.min(*taken));
            if *synced == *parts {
                self.closing = Closing::Whole { parts: *parts };
            }
        }
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
        Answer::Synced(self.own_share())
    }

    /// As [`answer`](Self::answer), for what is written back or, once the range is sealed, copied.
    #[must_use]
    pub fn answer_written_back(&self) -> Answer {
        let rule = match self.end {
            None => Rule::WriteBackSynced,
            Some(_) => Rule::CopiesCountWhenSynced,
        };
        let at = if self.rules.hold(rule) {
            self.synced
        } else {
            self.queued
        };
        let at = self.whole(at);
        let closed = match self.closing {
            Closing::Absent => 0,
            Closing::Partly { synced, .. } => synced,
            Closing::Whole { parts } => parts,
        };
        Answer::Synced(match self.end {
            Some(end) if at >= end => Position {
                marks: end.marks + closed,
                ..end
            },
            _ => at,
        })
    }
}
