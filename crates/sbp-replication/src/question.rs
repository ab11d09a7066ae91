//! A reader's question where a stream ends.

use sbp_types::{Position, ServerId};
use smallvec::SmallVec;

use crate::replica::Replica;
use crate::rules::{Rule, Rules};

/// A question where a stream ends, which the primary of its open range answers once as many servers of the set as
/// acknowledge, itself included, have said since the question came that they are not fenced
/// ([`Rule::EndToldByTheLivingPrimary`]). Else the range may be sealed, and the next one grow elsewhere.
///
/// Every server of the set is asked when the question has come. A question that comes later is another one: what was asked
/// before says nothing about it. Many that come while one is under way may wait for it and be one together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EndQuestion {
    not_fenced: SmallVec<[ServerId; 3]>,
    is_refused: bool,
}

/// How a question ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndTold {
    /// Not enough servers have said that they are not fenced.
    NotYet,
    /// Here.
    At(Position),
    /// This server cannot say: the reader asks where the stream's ranges are.
    Elsewhere,
}

impl EndQuestion {
    /// The servers that are asked whether they are fenced.
    pub fn asks<'a>(&'a self, replica: &'a Replica) -> impl Iterator<Item = ServerId> + 'a {
        let set = replica.range().servers.iter().copied();
        set.filter(|server| Some(*server) != replica.range().primary() && !self.not_fenced.contains(server))
    }

    /// A server says whether the range is fenced or sealed there. It was asked after the question had come.
    pub fn said(&mut self, server: ServerId, is_fenced: bool) {
        if is_fenced {
            self.is_refused = true;
        } else if !self.not_fenced.contains(&server) {
            self.not_fenced.push(server);
        }
    }

    /// The answer by what was said so far.
    #[must_use]
    pub fn answer(&self, replica: &Replica, me: ServerId, rules: Rules) -> EndTold {
        let range = replica.range();
        let is_primary = range.primary() == Some(me);
        if !rules.hold(Rule::EndToldByTheLivingPrimary) {
            return EndTold::At(replica.confirmed());
        }
        // A former primary knows no more than a follower what is confirmed.
        if !is_primary || !replica.is_first_life() || replica.is_fenced() || replica.end().is_some() || self.is_refused
        {
            return EndTold::Elsewhere;
        }
        let others = self
            .not_fenced
            .iter()
            .filter(|server| **server != me && range.servers.contains(server));
        if 1 + others.count() >= range.quorum.acks() {
            EndTold::At(replica.confirmed())
        } else {
            EndTold::NotYet
        }
    }
}
