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
    /// What they cannot read of their copies.
    damaged: Spans<(ServerId, Position, Position)>,
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
    /// It ends without records that nobody who voted can read.
    WithLoss(Sealed),
}

/// A list of which most seals have nothing.
type Spans<T> = SmallVec<[T; 0]>;

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

/// What an end by force means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forced {
    /// The range's end.
    pub end: Position,
    /// From and to of what stands before it and nobody who voted can read.
    pub lost: Vec<(Position, Position)>,
}

/// A range's end, and who has everything up to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sealed {
    /// The end.
    pub end: Position,
    /// Who has everything up to it, synced.
    ///
    /// Where the range [ends by force without what is lost](SealJob::end_by_force): who has everything of it that is left, or other parts of that.
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
            damaged: Spans::new(),
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

    /// Before its vote: a fenced server cannot read what stands between these places of its copy.
    pub fn cannot_read(&mut self, server: ServerId, spans: impl IntoIterator<Item = (Position, Position)>) {
        if self.wants_vote(server) {
            self.damaged
                .extend(spans.into_iter().map(|(from, to)| (server, from, to)));
        }
    }

    /// Whether the votes suffice to decide, and everything before the end can be read by somebody who voted.
    #[must_use]
    pub fn can_decide(&self) -> bool {
        self.has_enough_votes() && self.would_lose().is_empty()
    }

    /// Whether the votes say where the range ends.
    #[must_use]
    pub fn has_enough_votes(&self) -> bool {
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

    /// The servers of the set that know the writers at the end of what they have.
    fn knowing(&self, complete: &[ServerId], end: Position) -> SmallVec<[ServerId; 3]> {
        let set = self.range.servers.iter().copied();
        set.filter(|server| self.knows_writers(*server, complete.contains(server), end))
            .collect()
    }

    /// Decides the end by the votes there are. Nothing happens while it [cannot](Self::can_decide) be decided.
    pub fn decide(&mut self) {
        if let Some(end) = self.end().filter(|_| self.can_decide()) {
            self.write_back_up_to(end);
        }
    }

    /// Ends the range by force, because nobody will come who has more: where the votes say or, if they are too few for ever, where the
    /// best copy ends that is left. What was confirmed behind that is lost. Where nobody who voted can read some of it, it ends all the
    /// same, with those that reach the end.
    ///
    /// `None`, and nothing happens, without any vote, or where the votes suffice and nothing is lost.
    pub fn end_by_force(&mut self) -> Option<Forced> {
        if self.phase != Phase::Voting || self.can_decide() {
            return None;
        }
        let lost = self.would_lose();
        let end = self.best_end()?;
        let broken = (!self.rules.hold(Rule::ForcedEndReaches))
            .then(|| lost.first())
            .flatten();
        let end = broken.map_or(end, |(first, _)| *first);
        if lost.is_empty() {
            self.write_back_up_to(end);
        } else {
            let reaches = |(server, vote): &(ServerId, Vote)| (vote.end >= end).then_some(*server);
            let complete: SmallVec<[ServerId; 3]> = self.votes.iter().filter_map(reaches).collect();
            let knowing = self.knowing(&complete, end);
            self.phase = Phase::WithLoss(Sealed { end, complete, knowing });
        }
        Some(Forced { end, lost })
    }

    /// Where the range ends by the votes or, where these are too few, where the best copy does.
    fn best_end(&self) -> Option<Position> {
        self.end().or_else(|| self.votes.iter().map(|(_, vote)| vote.end).max())
    }

    /// From and to of what stands before the end that the votes give, and nobody who voted can read. Nothing where it is decided.
    #[must_use]
    pub fn would_lose(&self) -> Vec<(Position, Position)> {
        let Some(end) = self.best_end().filter(|_| self.phase == Phase::Voting) else {
            return Vec::new();
        };
        let beginning = Position::start(self.trimmed).max(self.range.beginning());
        let mut lost = vec![(beginning, end)];
        for (server, vote) in &self.votes {
            let of_server = self.damaged.iter().filter(|(of, ..)| of == server);
            let damaged = of_server.map(|(_, from, to)| (*from, *to));
            let lacking = damaged.chain([(vote.end, end), (beginning, vote.begins_at)]);
            let of_both = |(from, to): (Position, Position)| {
                let both = lost.iter().map(move |span| (span.0.max(from), span.1.min(to)));
                both.filter(|(from, to)| from < to)
            };
            let mut left: Vec<_> = lacking.flat_map(of_both).collect();
            left.sort_unstable();
            lost = left;
        }
        lost
    }

    /// Who has voted.
    pub fn voters(&self) -> impl Iterator<Item = ServerId> {
        self.votes.iter().map(|(server, _)| *server)
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
            Phase::Voting | Phase::WithLoss(_) => (&[], &[], &[]),
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
        let (end, complete, lacking, away) = match &self.phase {
            Phase::Voting => return SealStep::Vote,
            Phase::WithLoss(sealed) => return SealStep::Store(sealed.clone()),
            Phase::WritingBack {
                end,
                complete,
                lacking,
                away,
            } => (end, complete, lacking, away),
        };
        let can_be_reached = |server: &&ServerId| !away.contains(server);
        let sealed = Sealed {
            end: *end,
            complete: complete.clone(),
            knowing: self.knowing(complete, *end),
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
