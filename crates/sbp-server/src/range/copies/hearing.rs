//! Whom a server has heard lately of those that hold ranges with it.

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

    /// A range with these servers is here now: those that nobody spoke of before are missed from now on, and not since the
    /// start.
    pub(in crate::range) fn listen_to(&mut self, servers: &[ServerId]) {
        self.has_new |= !servers.is_empty();
        for server in servers {
            if *server != self.me && self.known.insert(*server) {
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

    /// The followers of a range that are missed and of which no seal was asked for lately.
    pub(in crate::range) fn missed_of(&mut self, stream: StreamId, replica: &Replica) -> Vec<ServerId> {
        let range = replica.range();
        if range.primary() != Some(self.me) || !replica.is_first_life() {
            return Vec::new();
        }
        let (now, asked) = (self.now, &mut self.asked);
        asked.retain(|_, at| now.saturating_sub(*at) < ASKED_FOR);
        let mut missed: Vec<_> = self.contact.missed(range, now).collect();
        missed.retain(|server| asked.insert((stream, *server), now).is_none());
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_misses_himself() {
        let servers = HashSet::from([ServerId(1), ServerId(2)]);
        let mut hearing = Hearing::new(ServerId(1), servers, Duration::ZERO, Duration::from_secs(3));
        hearing.listen_to(&[ServerId(1), ServerId(2)]);
        hearing.note_time(Duration::from_secs(4));
        assert_eq!(hearing.missed, [ServerId(2)]);
    }
}
