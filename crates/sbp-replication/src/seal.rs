//! How the placement driver ends a range.

use std::sync::Arc;

use sbp_types::{Position, ServerId};
use smallvec::SmallVec;

use crate::range::ReplicatedRange;
use crate::replica::Vote;
use crate::rules::{Rule, Rules};

/// The end of one range: fences, votes, what is written back.
///
/// Two of them may run for one range, of a deposed placement driver and its successor. Both ends are right; the one that is
/// stored first is the range's ([`Rule::FirstEndWins`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SealJob {
    range: Arc<ReplicatedRange>,
    votes: SmallVec<[(ServerId, Vote); 3]>,
    phase: Phase,
    rules: Rules,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Voting,
    WritingBack {
        end: Position,
        /// Who has everything up to the end.
        complete: SmallVec<[ServerId; 3]>,
        /// Who may lack something of it, as far as they can be reached: also who did not vote, but lives.
        lacking: SmallVec<[ServerId; 3]>,
        /// Who has everything, and cannot be reached any more.
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
    /// Whether those know the writers at the end. `false` in a range where nothing was ever stored.
    pub knows_writers: bool,
}

impl SealJob {
    /// Begins to end a range.
    #[must_use]
    pub fn new(range: Arc<ReplicatedRange>, rules: Rules) -> Self {
        Self {
            range,
            votes: SmallVec::new(),
            phase: Phase::Voting,
            rules,
        }
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

    /// Decides the end by the votes there are. Nothing happens while they are too few.
    pub fn decide(&mut self) {
        let Some(end) = self.end().filter(|_| self.phase == Phase::Voting) else {
            return;
        };
        let has_all = |server: &ServerId| {
            let vote = self.votes.iter().find(|(voter, _)| voter == server);
            vote.is_some_and(|(_, vote)| vote.end >= end)
        };
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
        if let Phase::WritingBack {
            complete,
            lacking,
            away,
            ..
        } = &mut self.phase
        {
            lacking.retain(|one| *one != server);
            if complete.contains(&server) && !away.contains(&server) {
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
        let is_enough = complete.len() >= self.range.quorum.acks() || !self.rules.hold(Rule::WriteBack);
        match complete.iter().find(|server| !away.contains(server)) {
            None => SealStep::Again,
            Some(source) if !is_enough && !lacking.is_empty() => SealStep::WriteBack {
                source: *source,
                to: lacking.clone(),
                end: *end,
            },
            Some(_) => SealStep::Store(Sealed {
                end: *end,
                complete: complete.clone(),
                knows_writers: self.range.knows_writers(*end),
            }),
        }
    }
}
