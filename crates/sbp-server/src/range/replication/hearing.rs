//! Whom this server has heard lately of those that hold ranges with it. Where it hears too few of them it may be cut off, and
//! clients are sent elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use sbp_replication::{NotTaken, Replica};
use sbp_types::{Epoch, RangeKey, ServerId};

use crate::range::copies::Hearing;
use crate::range::notifications::Notifications;
use crate::range::ranges::Ranges;
use crate::range::server::RangeServer;

/// The most ranges at once that are to go on without a follower that is missed, though they have enough others: what a lost server was
/// the primary of is taken over first.
const MOST_UNHURRIED: usize = 100;

/// An open range that has to be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedSeal {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
}

impl RangeServer {
    /// Begins to note whom this server hears, whose number is `me`, and to miss who was not heard for longer than `patience`.
    /// All times here are by the same clock, which never goes back.
    pub(crate) fn listen(&self, me: ServerId, now: Duration, patience: Duration) {
        let mut ranges = self.hub.ranges.lock();
        let servers = ranges.table.streams().flat_map(|(_, hosted)| &hosted.ranges);
        let known = servers.flat_map(|range| range.set.servers()).copied().collect();
        ranges.hearing = Some(Hearing::new(me, known, now, patience));
    }

    /// Another server has said something.
    pub(crate) fn hear(&self, server: ServerId, now: Duration) {
        if let Some(hearing) = &mut self.hub.ranges.lock().hearing {
            hearing.heard(server, now);
        }
    }

    /// Looks who was not heard for too long. To be called often: it notes the time.
    pub(crate) fn look_who_is_missed(&self, now: Duration) {
        let mut notifications = Notifications::default();
        let mut ranges = self.hub.ranges.lock();
        let is_new = ranges.hearing.as_mut().is_some_and(|hearing| hearing.note_time(now));
        if is_new {
            ranges.judge_contact(&mut notifications);
        }
        ranges.end_late_questions(&mut notifications);
        self.hub.finish(ranges);
        notifications.send();
    }

    /// This server is about to stop. Returns whether it takes the appends of ranges that it shares with others: those are to go on
    /// elsewhere.
    pub(crate) fn stop_leading(&self) -> bool {
        let mut ranges = self.hub.ranges.lock();
        ranges.is_stopping = true;
        let mut replicas = ranges.table.streams().flat_map(|(_, hosted)| &hosted.ranges);
        replicas.any(|range| {
            let open = range.replica.as_deref().filter(|replica| replica.end().is_none());
            open.is_some_and(Replica::is_first_life)
        })
    }

    /// The open ranges that this server shares with others and does not go on with, by the servers that the next range is
    /// better without. Either it was their primary in an earlier life, or the log dropped what others may have, or somebody
    /// has begun a seal, or a follower is missed, or this server's log has failed, or it takes the appends and is about to stop.
    pub(crate) fn want_seals(&self) -> BTreeMap<Vec<ServerId>, Vec<WantedSeal>> {
        let mut ranges = self.hub.ranges.lock();
        let Ranges {
            table,
            hearing,
            log_failure,
            is_stopping,
            ..
        } = &mut *ranges;
        let has_failed = log_failure.is_some();
        let me = self.log.server_id();
        if let Some(hearing) = hearing {
            hearing.forget_old_wishes();
        }
        let mut unhurried = MOST_UNHURRIED;
        let mut wanted: BTreeMap<Vec<ServerId>, Vec<WantedSeal>> = BTreeMap::new();
        for (stream, hosted) in table.streams().filter(|(_, hosted)| !hosted.withheld) {
            for range in &hosted.ranges {
                let Some(replica) = range.replica.as_deref().filter(|replica| replica.end().is_none()) else {
                    continue;
                };
                let missed = hearing
                    .as_mut()
                    .map(|hearing| hearing.missed_of(stream, replica, &mut unhurried));
                let mut missed = missed.unwrap_or_default();
                let leaves = has_failed || *is_stopping && replica.is_first_life();
                missed.extend(me.filter(|_| leaves));
                let stands_still = leaves || replica.is_fenced() || replica.takes_appends() == Err(NotTaken::NeedsSeal);
                if stands_still || !missed.is_empty() {
                    let (key, epoch) = (range.key(stream), range.epoch);
                    wanted.entry(missed).or_default().push(WantedSeal { key, epoch });
                }
            }
        }
        wanted
    }
}

impl Ranges {
    /// A range with these servers is here now: those that nobody spoke of before are missed from now on, and not since the
    /// start.
    pub(in crate::range) fn listen_to(&mut self, servers: &[ServerId]) {
        if let Some(hearing) = &mut self.hearing {
            hearing.listen_to(servers);
        }
    }

    /// Notes which ranges are cut off, and tells the fetches that wait for those that are so now.
    fn judge_contact(&mut self, notifications: &mut Notifications) {
        let Some(hearing) = &self.hearing else { return };
        let mut cut_off = Vec::new();
        for (stream, range) in self.table.ranges_mut() {
            let Some(replica) = range.replica.as_deref().filter(|replica| replica.end().is_none()) else {
                continue;
            };
            let serves = hearing.serves(replica);
            let was_cut_off = std::mem::replace(&mut range.is_cut_off, !serves);
            if !serves && !was_cut_off {
                cut_off.push(range.key(stream));
            }
        }
        for key in cut_off {
            self.wake(key.stream, notifications);
        }
    }
}
