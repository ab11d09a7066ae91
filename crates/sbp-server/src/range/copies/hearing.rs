//! Whom a server has heard lately of those that hold ranges with it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sbp_replication::{Contact, Replica, Rules};
use sbp_types::{ServerId, StreamId};

/// How long no seal is asked for again because of a server that is missed in the same stream: the next range may have had to
/// be opened on it again.
const ASKED_FOR: Duration = Duration::from_secs(300);

/// Whom a server has heard.
#[derive(Debug)]
pub(in crate::range) struct Hearing {
    contact: Contact,
    me: ServerId,
    /// The servers that hold ranges with this one.
    known: HashSet<ServerId>,
    /// Those of them that were missed when it was looked last.
    missed: Vec<ServerId>,
    /// Whether ranges came that were not looked at.
    has_new: bool,
    now: Duration,
    /// When a seal was asked for because a server was missed.
    asked: HashMap<(StreamId, ServerId), Duration>,
}

impl Hearing {
    /// A server that begins to listen to the others among these.
    pub(in crate::range) fn new(me: ServerId, mut known: HashSet<ServerId>, now: Duration, patience: Duration) -> Self {
        known.remove(&me);
        Self {
            contact: Contact::new(me, now, patience),
            me,
            known,
            missed: Vec::new(),
            has_new: true,
            now,
            asked: HashMap::new(),
        }
    }

    /// Another server has said something.
    pub(in crate::range) fn heard(&mut self, server: ServerId, now: Duration) {
        self.contact.heard(server, now);
    }

    /// A range with these servers begins here: they are missed from now on, and not since the start, or since they were heard about
    /// another range.
    pub(in crate::range) fn listen_to(&mut self, servers: &[ServerId]) {
        self.has_new |= !servers.is_empty();
        for server in servers {
            // Two that followed a third one had nothing to say to each other until now.
            if *server != self.me {
                self.known.insert(*server);
                self.contact.heard(*server, self.now);
            }
        }
    }

    /// Notes the time. Returns whether it has to be judged anew which ranges are cut off.
    pub(in crate::range) fn note_time(&mut self, now: Duration) -> bool {
        self.now = now;
        let known = self.known.iter().copied();
        let mut missed: Vec<_> = known.filter(|server| self.contact.misses(*server, now)).collect();
        missed.sort_unstable();
        let has_changed = missed != self.missed;
        if has_changed {
            tracing::warn!(
                ?missed,
                "the servers that hold ranges of this one too and are not heard are these"
            );
        }
        self.missed = missed;
        std::mem::take(&mut self.has_new) || has_changed
    }

    /// Whether this server hears enough of those that hold a range too.
    pub(in crate::range) fn serves(&self, replica: &Replica) -> bool {
        self.contact.serves(replica.range(), self.now, Rules::default())
    }

    /// Forgets of whom seals were asked for long ago.
    pub(in crate::range) fn forget_old_wishes(&mut self) {
        let now = self.now;
        self.asked.retain(|_, at| now.saturating_sub(*at) < ASKED_FOR);
    }

    /// The followers of a range that are missed and of which no seal was asked for lately. A range that goes on without them is
    /// one of `unhurried`, and where that is 0 none of it is missed yet.
    pub(in crate::range) fn missed_of(
        &mut self,
        stream: StreamId,
        replica: &Replica,
        unhurried: &mut usize,
    ) -> Vec<ServerId> {
        let range = replica.range();
        if range.primary() != Some(self.me) || !replica.is_first_life() {
            return Vec::new();
        }
        let mut missed: Vec<_> = self.contact.missed(range, self.now).collect();
        let goes_on = range.servers.len() - missed.len() >= range.quorum.acks();
        if goes_on && *unhurried == 0 {
            return Vec::new();
        }
        missed.retain(|server| {
            let entry = self.asked.entry((stream, *server));
            let is_new = matches!(entry, Entry::Vacant(_));
            entry.or_insert(self.now);
            is_new
        });
        if goes_on && !missed.is_empty() {
            *unhurried -= 1;
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sbp_replication::{Quorum, ReplicatedRange};
    use sbp_types::{Epoch, Offset, RangeIndex, RangeKey};

    use super::*;

    #[test]
    fn nobody_misses_himself() {
        let servers = HashSet::from([ServerId(1), ServerId(2)]);
        let mut hearing = Hearing::new(ServerId(1), servers, Duration::ZERO, Duration::from_secs(3));
        hearing.listen_to(&[ServerId(1), ServerId(2)]);
        hearing.note_time(Duration::from_secs(4));
        assert_eq!(hearing.missed, [ServerId(2)]);
        // A range with both begins, in which it has had nothing to say yet.
        hearing.listen_to(&[ServerId(1), ServerId(2)]);
        hearing.note_time(Duration::from_secs(7));
        assert_eq!(hearing.missed, []);
        hearing.note_time(Duration::from_secs(8));
        assert_eq!(hearing.missed, [ServerId(2)]);
    }

    #[test]
    fn a_seal_is_asked_for_once_in_a_while_and_not_hurried_where_enough_servers_are_left() {
        let replica = |servers: &[i32], acks| {
            let range = ReplicatedRange {
                key: RangeKey {
                    stream: StreamId(servers.len().try_into().unwrap()),
                    range: RangeIndex(0),
                },
                epoch: Epoch(0),
                start: Offset(0),
                servers: servers.iter().copied().map(ServerId).collect(),
                quorum: Quorum::new(servers.len(), acks).unwrap(),
            };
            Replica::open(ServerId(1), Arc::new(range), Rules::default())
        };
        let (goes_on, stands) = (replica(&[1, 2, 3], 2), replica(&[1, 2], 2));
        let known = HashSet::from([ServerId(2), ServerId(3)]);
        let mut hearing = Hearing::new(ServerId(1), known, Duration::ZERO, Duration::from_secs(3));
        let mut at = |second: u64, replica: &Replica, unhurried: &mut usize| {
            let now = Duration::from_secs(second);
            hearing.heard(ServerId(3), now);
            hearing.note_time(now);
            hearing.forget_old_wishes();
            hearing.missed_of(replica.range().key.stream, replica, unhurried)
        };
        for second in 0..4 {
            assert_eq!(at(second, &stands, &mut 0), []);
        }
        let mut room = 0;
        assert_eq!(at(4, &goes_on, &mut room), [], "others come first");
        assert_eq!(at(4, &stands, &mut room), [ServerId(2)], "it cannot wait");
        room = 1;
        assert_eq!((at(5, &goes_on, &mut room), room), (vec![ServerId(2)], 0));
        room = 1;
        for second in (6..305).step_by(2) {
            assert_eq!(
                (at(second, &goes_on, &mut room), room),
                (vec![], 1),
                "asked for already"
            );
        }
        assert_eq!((at(305, &goes_on, &mut room), room), (vec![ServerId(2)], 0));
    }
}
