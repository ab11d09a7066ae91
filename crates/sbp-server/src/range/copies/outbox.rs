//! Which ranges have something for which follower.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use sbp_types::{Position, RangeKey, ServerId};
use smallvec::SmallVec;

/// What waits to be sent, by follower.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    by_server: HashMap<ServerId, Outbox>,
    /// Whom to wake when the lock is released.
    woken: SmallVec<[ServerId; 2]>,
}

/// The ranges that may have something for one follower.
#[derive(Debug, Default)]
pub(in crate::range) struct Outbox {
    /// Ranges that may have entries, in turn.
    waiting: VecDeque<RangeKey>,
    is_waiting: HashSet<RangeKey>,
    /// Ranges of which the follower has refused entries: it is sent none of them meanwhile.
    refused: HashSet<RangeKey>,
    /// Since when the follower has taken nothing of these ranges behind a place, because of what its disk has lost.
    damaged: HashMap<RangeKey, (Duration, Position)>,
    /// Ranges of which the follower does not know all that is confirmed.
    stale: HashSet<RangeKey>,
    /// Ranges of which the follower has to say whether it is fenced, and the numbers of the questions.
    asked: Vec<(RangeKey, u64)>,
    /// Ranges of which entries were sent over the present connection.
    pub(in crate::range) sent: HashSet<RangeKey>,
    /// What the follower was told to be confirmed.
    told: HashMap<RangeKey, Position>,
}

impl Outboxes {
    /// A range has entries for a follower. If that has refused some, they wait until it [may take](Outbox::may_take) them.
    pub(in crate::range) fn has_entries(&mut self, server: ServerId, key: RangeKey) {
        let outbox = self.by_server.entry(server).or_default();
        if outbox.is_refused(key) {
            return;
        }
        if outbox.is_waiting.insert(key) {
            outbox.waiting.push_back(key);
        }
        self.wake(server);
    }

    /// So much of a range is confirmed: a follower has to be told, unless it was.
    pub(in crate::range) fn is_confirmed(&mut self, server: ServerId, key: RangeKey, confirmed: Position) {
        let outbox = self.by_server.entry(server).or_default();
        let told = outbox.told.get(&key);
        if told.is_none_or(|told| *told < confirmed) && outbox.stale.insert(key) {
            self.wake(server);
        }
    }

    /// A follower has to say whether it is fenced.
    pub(in crate::range) fn ask(&mut self, server: ServerId, key: RangeKey, question: u64) {
        let outbox = self.by_server.entry(server).or_default();
        // An earlier question is over, or it would not be asked again.
        outbox.asked.retain(|(asked, _)| *asked != key);
        outbox.asked.push((key, question));
        self.wake(server);
    }

    fn wake(&mut self, server: ServerId) {
        if !self.woken.contains(&server) {
            self.woken.push(server);
        }
    }

    /// What waits for this follower.
    pub(in crate::range) fn of(&mut self, server: ServerId) -> &mut Outbox {
        self.by_server.entry(server).or_default()
    }

    /// The followers to wake, once the lock is released.
    pub(crate) fn take_woken(&mut self) -> SmallVec<[ServerId; 2]> {
        std::mem::take(&mut self.woken)
    }
}

impl Outbox {
    /// The next range that may have entries.
    pub(in crate::range) fn next(&mut self) -> Option<RangeKey> {
        loop {
            let key = self.waiting.pop_front()?;
            self.is_waiting.remove(&key);
            if !self.is_refused(key) {
                return Some(key);
            }
        }
    }

    /// The follower has refused entries of the range: no more are sent to it before it [may take](Self::may_take) them.
    pub(in crate::range) fn refuses(&mut self, key: RangeKey) {
        self.refused.insert(key);
    }

    /// The follower may take entries of the range that it has refused.
    pub(in crate::range) fn may_take(&mut self, key: RangeKey) {
        self.refused.remove(&key);
    }

    /// The follower has refused entries of the range behind this place because of what its disk has lost. Returns since when it has
    /// taken nothing more.
    pub(in crate::range) fn is_damaged(&mut self, key: RangeKey, behind: Position, now: Duration) -> Duration {
        let (since, place) = self.damaged.entry(key).or_insert((now, behind));
        *place = behind.max(*place);
        *since
    }

    /// The follower has everything of the range up to here.
    pub(in crate::range) fn takes(&mut self, key: RangeKey, to: Position) {
        if self.damaged.get(&key).is_some_and(|(_, place)| *place < to) {
            self.damaged.remove(&key);
        }
    }

    /// Whether the follower has refused entries of the range, and is sent none yet.
    pub(in crate::range) fn is_refused(&self, key: RangeKey) -> bool {
        self.refused.contains(&key)
    }

    /// The range has more entries than were taken.
    pub(in crate::range) fn put_back(&mut self, key: RangeKey) {
        if self.is_waiting.insert(key) {
            self.waiting.push_back(key);
        }
    }

    /// What the follower has to be asked, at most so many ranges.
    pub(in crate::range) fn take_asked(&mut self, most: usize) -> Vec<(RangeKey, u64)> {
        let count = most.min(self.asked.len());
        self.asked.drain(..count).collect()
    }

    /// Ranges of which the follower has to be told what is confirmed.
    pub(in crate::range) fn take_stale(&mut self) -> HashSet<RangeKey> {
        std::mem::take(&mut self.stale)
    }

    /// The follower is still to be told what is confirmed of a range.
    pub(in crate::range) fn stays_stale(&mut self, key: RangeKey) {
        self.stale.insert(key);
    }

    /// The follower is told that so much of a range is confirmed.
    pub(in crate::range) fn tell(&mut self, key: RangeKey, confirmed: Position) {
        self.stale.remove(&key);
        self.told.insert(key, confirmed);
    }

    /// The connection is gone: what was sent over it may not have arrived.
    pub(in crate::range) fn disconnected(&mut self) -> HashSet<RangeKey> {
        self.told.clear();
        std::mem::take(&mut self.sent)
    }

    /// The range is gone.
    pub(in crate::range) fn forget(&mut self, key: RangeKey) {
        self.refused.remove(&key);
        self.damaged.remove(&key);
        self.stale.remove(&key);
        self.told.remove(&key);
        self.sent.remove(&key);
        self.asked.retain(|(asked, _)| *asked != key);
    }

    pub(in crate::range) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }
}
