//! What the disk has lost of copies: a copy that cannot be read through is not complete, and says so.

use std::io;

use sbp_log::DamagedInterval;
use sbp_replication::Replica;
use sbp_types::{Epoch, Offset, Position, RangeKey};

use crate::range::server::RangeServer;

/// A sealed range of which this server lacks some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IncompleteRange {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
}

impl RangeServer {
    /// Notes what the log has found damaged by now. Returns all of it.
    pub(crate) fn note_damage(&self) -> Vec<DamagedInterval> {
        let all = self.log.all_damage(usize::MAX);
        if all.is_empty() {
            return all;
        }
        let mut ranges = self.hub.ranges.lock();
        // Under the lock, so that nothing is noted that was put back meanwhile.
        let all = self.log.all_damage(usize::MAX);
        for DamagedInterval { key, from, to } in &all {
            let (from, to) = (Position::start(*from), Position::start(*to));
            let is_news = |replica: &Replica| !replica.knows_damage(from, to);
            if ranges.table.replica(*key).is_some_and(is_news) {
                ranges.change_copy(*key, |replica| replica.damaged(from, to));
            }
        }
        all
    }

    /// Puts a batch that another server has, and that begins at `base`, in its place in something damaged, if it is the one that
    /// the disk has lost. Returns whether it can be read now. Blocks on the disk.
    pub(crate) fn mend(&self, damaged: DamagedInterval, base: Offset, batch: &[u8]) -> io::Result<bool> {
        let key = damaged.key;
        let is_whole = self.log.repair(key, base, batch)?;
        if is_whole {
            let mut ranges = self.hub.ranges.lock();
            let left = self.log.damage(key).into_iter().map(|left| left.from);
            let whole_to = left.filter(|from| *from > base).fold(damaged.to, Offset::min);
            let (from, to) = (Position::start(base), Position::start(whole_to));
            ranges.change_copy(key, |replica| replica.mended(from, to));
        }
        Ok(is_whole)
    }

    /// The sealed ranges, at most so many, of which this server lacks some: others are to send it that.
    pub(crate) fn incomplete_ranges(&self, most: usize) -> Vec<IncompleteRange> {
        let ranges = self.hub.ranges.lock();
        let streams = ranges.table.streams().filter(|(_, hosted)| !hosted.withheld);
        let held = streams.flat_map(|(stream, hosted)| hosted.ranges.iter().map(move |range| (stream, range)));
        let lacking = held.filter(|(_, range)| range.replica.as_deref().is_some_and(Replica::says_incomplete));
        let named = lacking.map(|(stream, range)| IncompleteRange {
            key: range.key(stream),
            epoch: range.epoch,
        });
        named.take(most).collect()
    }
}
