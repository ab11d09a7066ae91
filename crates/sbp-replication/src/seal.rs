//! How the placement driver ends a range.

use std::sync::Arc;

use sbp_types::{Offset, Position, ServerId};
use smallvec::SmallVec;

use crate::exchange::Vote;
use crate::range::ReplicatedRange;
use crate::rules::{Rule, Rules};

/// The end of one range: fences, votes, what is written back.
///
/// Two of them may run for one range, of a deposed placement driver and its successor. Both ends are right; the one that is
/// stored first is the range's ([`Rule::FirstEndWins`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SealJob {
    range: Arc<ReplicatedRange>,
    votes: SmallVec<[(ServerId, Vote); 3]>,
    /// Records before it are trimmed.
    trimmed: Offset,
    phase: Phase,
    rules: Rules,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Voting,
    WritingBack {
        end: Position,
        /// Who has everything up to the end, and can read it.
        complete: SmallVec<[ServerId; 3]>,
        /// Who may lack something of it, as far as they can be reached: also who did not vote, but lives.
        lacking: SmallVec<[ServerId; 3]>,
        /// Who voted, and cannot be reached any more.
        away: SmallVec<[ServerId; 3]>,
    },
}

/// What the end needs next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SealStep {
    /// Fence the servers that have not voted, and ask for their votes.
    Vote,
    /// `source` sends everything up to `end` to the servers that lack it.
    WriteBack {
        /// Who has it.
        source: ServerId,
        /// Who lacks it.
        to: SmallVec<[ServerId; 3]>,
        /// The range's end.
        end: Position,
    },
    /// Nobody who has everything up to the end can be reached: begin anew. Others may end the range earlier, where
    /// nothing behind that was confirmed. The fences stay.
    Again,
    /// Store it.
    Store(Sealed),
}

/// A range's end, and who has everything up to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sealed {
    /// The end.
    pub end: Position,
    /// Who has everything up to it, synced.
    pub complete: SmallVec<[ServerId; 3]>,
    /// Who of the set knows the writers at the end of what it has.
    pub knowing: SmallVec<[ServerId; 3]>,
}

impl Sealed {
    /// Whether somebody has everything up to the end and knows the writers there. Nobody does in a range whose state of the
    /// writers was never stored whole: it is passed over, to the servers of the range before it.
    #[must_use]
    pub fn knows_writers(&self) -> bool {
        self.complete.iter().any(|server| self.knowing.contains(server))
    }
}

impl SealJob {
    /// Begins to end a range.
    #[must_use]
    pub fn new(range: Arc<ReplicatedRange>, rules: Rules) -> Self {
        let range_start = range.start;
        Self {
            range,
            votes: SmallVec::new(),
            trimmed: range_start,
            phase: Phase::Voting,
            rules,
        }
    }

    /// The stream was trimmed up to here: what is written back to a server that has less begins there, without what it takes
    /// to know the writers. A trim while the seal is under way is said too, before any server is told of it.
    pub fn trimmed(&mut self, start: Offset) {
        self.trimmed = self.trimmed.max(start);
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> &Arc<ReplicatedRange> {
        &self.range
    }

    /// Whether this server's vote is still wanted.
    #[must_use]
    pub fn wants_vote(&self, server: ServerId) -> bool {
        self.phase == Phase::Voting
            && self.range.servers.contains(&server)
            && self.votes.iter().all(|(voter, _)| *voter != server)
    }

    /// A fenced server says where its copy ends.
    pub fn vote(&mut self, server: ServerId, vote: Vote) {
        if self.wants_vote(server) {
            self.votes.push((server, vote));
        }
    }

    /// Whether the votes suffice to decide.
    #[must_use]
    pub fn can_decide(&self) -> bool {
        self.phase == Phase::Voting && self.end().is_some()
    }

    fn end(&self) -> Option<Position> {
        self.range
            .quorum
            .end(self.votes.iter().map(|(_, vote)| vote.end), self.rules)
    }

    fn vote_of(&self, server: ServerId) -> Option<&Vote> {
        let vote = self.votes.iter().find(|(voter, _)| *voter == server);
        vote.map(|(_, vote)| vote)
    }

    /// Where the state of the writers ends that begins the range; `None` if nobody who voted has any part of it.
    fn writers_known_from(&self) -> Option<Position> {
        let mut known = self.votes.iter().filter_map(|(_, vote)| vote.writers_end);
        self.range.writers_known_from(known.next(), self.rules)
    }

    /// Whether a server of the set knows the writers at the end of what it has: up to the range's end, if `is_complete`.
    fn knows_writers(&self, server: ServerId, is_complete: bool, end: Position) -> bool {
        let Some(known_from) = self.writers_known_from() else {
            return false;
        };
        let beginning = self.range.beginning();
        let (from, to) = match self.vote_of(server) {
            Some(vote) => (vote.begins_at, vote.end.min(end)),
            None => (beginning, beginning),
        };
        // What is written back goes on where the copy ended, unless that is trimmed.
        let goes_on = to >= end || to.offset >= self.trimmed;
        from == beginning && known_from <= if is_complete && goes_on { end } else { to }
    }

    /// Decides the end by the votes there are. Nothing happens while they are too few.
    pub fn decide(&mut self) {
        if let Some(end) = self.end().filter(|_| self.phase == Phase::Voting) {
            self.write_back_up_to(end);
        }
    }

    /// Decides the end by fewer votes than it takes, because no others will ever come: it is the best end that is left that can
    /// be read. What was confirmed behind it is lost. Nothing happens without any vote, or where there are enough.
    ///
    /// Returns the end, where it was decided so.
    pub fn decide_by_force(&mut self) -> Option<Position> {
        if self.phase != Phase::Voting || self.end().is_some() {
            return None;
        }
        let readable = self.votes.iter().map(|(_, vote)| vote.end.min(vote.whole_to));
        let end = readable.max()?;
        self.write_back_up_to(end);
        Some(end)
    }

    fn write_back_up_to(&mut self, end: Position) {
        let has_all = |server: &ServerId| self.vote_of(*server).is_some_and(|vote| vote.whole_to >= end);
        let (complete, lacking) = self.range.servers.iter().copied().partition(has_all);
        self.phase = Phase::WritingBack {
            end,
            complete,
            lacking,
            away: SmallVec::new(),
        };
    }

    /// A server has synced everything up to the end that [`SealStep::WriteBack`] named.
    pub fn written_back(&mut self, server: ServerId) {
        if let Phase::WritingBack { complete, lacking, .. } = &mut self.phase
            && let Some(place) = lacking.iter().position(|one| *one == server)
        {
            lacking.remove(place);
            complete.push(server);
        }
    }

    /// A server cannot be reached any more. Where too few are left that lack something, those who have it suffice.
    pub fn away(&mut self, server: ServerId) {
        let voters: SmallVec<[ServerId; 3]> = self.votes.iter().map(|(voter, _)| *voter).collect();
        if let Phase::WritingBack {
            complete,
            lacking,
            away,
            ..
        } = &mut self.phase
        {
            lacking.retain(|one| *one != server);
            if !away.contains(&server) && (complete.contains(&server) || voters.contains(&server)) {
                away.push(server);
            }
        }
    }

    /// The servers that the seal counts on: if one of them cannot be reached, it wants to know ([`away`](Self::away)).
    pub fn counts_on(&self) -> impl Iterator<Item = ServerId> {
        let (complete, lacking, away): (&[_], &[_], &[_]) = match &self.phase {
            Phase::Voting => (&[], &[], &[]),
            Phase::WritingBack {
                complete,
                lacking,
                away,
                ..
            } => (complete, lacking, away),
        };
        complete
            .iter()
            .chain(lacking)
            .copied()
            .filter(move |server| !away.contains(server))
    }

    /// What the end needs next.
    #[must_use]
    pub fn step(&self) -> SealStep {
        let Phase::WritingBack {
            end,
            complete,
            lacking,
            away,
        } = &self.phase
        else {
            return SealStep::Vote;
        };
        let can_be_reached = |server: &&ServerId| !away.contains(server);
        let knowing = self.range.servers.iter().copied();
        let knowing = knowing.filter(|server| self.knows_writers(*server, complete.contains(server), *end));
        let sealed = Sealed {
            end: *end,
            complete: complete.clone(),
            knowing: knowing.collect(),
        };
        let would_know = |server: &&ServerId| self.knows_writers(**server, true, *end);
        let waits_for_knowledge = !sealed.knows_writers() && lacking.iter().any(|server| would_know(&server));
        let is_enough =
            (complete.len() >= self.range.quorum.acks() && !waits_for_knowledge) || !self.rules.hold(Rule::WriteBack);
        // Without a whole copy, one with damage that reaches up to the end: it may lack only what others have.
        let reaches = |server: &&ServerId| self.vote_of(**server).is_some_and(|vote| vote.end >= *end);
        let damaged = lacking.iter().filter(reaches).find(can_be_reached);
        let source = complete.iter().find(can_be_reached);
        let to: SmallVec<[ServerId; 3]> = lacking
            .iter()
            .copied()
            .filter(|server| source.or(damaged) != Some(server))
            .collect();
        match source.or(damaged) {
            None => SealStep::Again,
            Some(_) if complete.is_empty() && to.is_empty() => SealStep::Again,
            // Who can be reached lacks something that only those have who cannot.
            Some(_) if source.is_none() && to.is_empty() && !is_enough => SealStep::Again,
            Some(source) if complete.is_empty() || (!is_enough && !to.is_empty()) => SealStep::WriteBack {
                source: *source,
                to,
                end: *end,
            },
            Some(_) => SealStep::Store(sealed),
        }
    }
}

#[cfg(test)]
mod tests;
