//! Whom a server has heard lately. The time is the caller's: it must not go back, and means nothing to other servers.

use std::time::Duration;

use sbp_types::ServerId;
use smallvec::SmallVec;

use crate::range::ReplicatedRange;
use crate::rules::{Rule, Rules};

/// A server that was not heard for so long is missed.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// When a server heard others, for all ranges that it shares with them.
///
/// No record depends on it. It only keeps clients from waiting at a server that may be cut off from the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contact {
    me: ServerId,
    heard: SmallVec<[(ServerId, Duration); 4]>,
    /// Nobody can have been heard before.
    begun: Duration,
    patience: Duration,
}

impl Contact {
    /// A server that begins to listen now: nobody is missed before `patience` is over.
    #[must_use]
    pub fn new(me: ServerId, now: Duration, patience: Duration) -> Self {
        Self {
            me,
            heard: SmallVec::new(),
            begun: now,
            patience,
        }
    }

    /// Another server has said something.
    pub fn heard(&mut self, server: ServerId, now: Duration) {
        match self.heard.iter_mut().find(|(known, _)| *known == server) {
            Some((_, last)) => *last = now.max(*last),
            None => self.heard.push((server, now)),
        }
    }

    /// Whether another server was not heard for too long.
    #[must_use]
    pub fn misses(&self, server: ServerId, now: Duration) -> bool {
        let last = self.heard.iter().find(|(known, _)| *known == server);
        let last = last.map_or(self.begun, |(_, last)| *last);
        now.saturating_sub(last) > self.patience
    }

    /// The servers of a range that are missed: a seal is asked for, and told to avoid them.
    pub fn missed<'a>(&'a self, range: &'a ReplicatedRange, now: Duration) -> impl Iterator<Item = ServerId> + 'a {
        let others = range.servers.iter().copied().filter(|server| *server != self.me);
        others.filter(move |server| self.misses(*server, now))
    }

    /// Whether this server goes on with new appends and waiting fetches of a range ([`Rule::CutOffServesNobody`]): the
    /// primary as long as it hears enough of the others for an acknowledgement, a follower as long as it hears the primary.
    #[must_use]
    pub fn serves(&self, range: &ReplicatedRange, now: Duration, rules: Rules) -> bool {
        if !rules.hold(Rule::CutOffServesNobody) {
            return true;
        }
        match range.primary() {
            Some(primary) if primary != self.me => !self.misses(primary, now),
            _ => range.servers.len() - self.missed(range, now).count() >= range.quorum.acks(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId};

    use super::*;
    use crate::quorum::Quorum;

    fn range(members: i32, acks: usize) -> ReplicatedRange {
        ReplicatedRange {
            key: RangeKey {
                stream: StreamId(1),
                range: RangeIndex(0),
            },
            epoch: Epoch(0),
            start: Offset::ZERO,
            servers: (1..=members).map(ServerId).collect(),
            quorum: Quorum::new(usize::try_from(members).unwrap(), acks).unwrap(),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_primary_serves_while_it_hears_enough_for_an_acknowledgement() {
        let rules = Rules::default();
        let mut contact = Contact::new(ServerId(1), seconds(10), PATIENCE);
        assert!(
            contact.serves(&range(3, 2), seconds(13), rules),
            "nobody can be missed yet"
        );
        assert!(!contact.serves(&range(3, 2), seconds(14), rules));
        assert!(contact.serves(&range(3, 1), seconds(14), rules), "it needs nobody");
        assert!(contact.serves(&range(1, 1), seconds(99), rules), "there is nobody");
        contact.heard(ServerId(2), seconds(14));
        assert!(contact.serves(&range(3, 2), seconds(17), rules), "two of three suffice");
        assert!(!contact.serves(&range(3, 3), seconds(17), rules));
        let missed: Vec<_> = contact.missed(&range(3, 2), seconds(17)).collect();
        assert_eq!(missed, [ServerId(3)]);
        assert!(!contact.serves(&range(3, 2), seconds(18), rules));
    }

    #[test]
    fn a_follower_serves_while_it_hears_its_primary() {
        let rules = Rules::default();
        let mut contact = Contact::new(ServerId(2), seconds(0), PATIENCE);
        contact.heard(ServerId(3), seconds(9));
        assert!(
            !contact.serves(&range(3, 2), seconds(9), rules),
            "the other follower does not count"
        );
        contact.heard(ServerId(1), seconds(9));
        assert!(contact.serves(&range(3, 2), seconds(12), rules));
        contact.heard(ServerId(1), seconds(5));
        assert!(
            contact.serves(&range(3, 2), seconds(12), rules),
            "an older word takes nothing back"
        );
        assert!(!contact.serves(&range(3, 2), seconds(13), rules));
    }
}
