//! Somebody who sees the whole world, and says when a promise is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sbp_types::{Offset, Position, RangeIndex, ServerId};

use crate::driver::Store;
use crate::entries::{Batch, Content};
use crate::node::{Append, Held, Node, Waiting};

/// A promise that was broken, by the names of invariants of the specification's study: I for one server, R for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// I1: an acknowledged record is on no disk, or behind the end of its range.
    Lost(Offset),
    /// R10: a record that a reader saw is gone.
    Vanished(Offset),
    /// I2: one offset has two contents.
    TwoContents(Offset),
    /// I2: entries of a copy do not follow each other.
    Gap(Offset),
    /// I5: one batch of a writer is stored twice.
    Doubled(Offset),
    /// I5: a batch of a fenced writer is stored behind its fence.
    Fenced(Offset),
    /// R10: a server shows readers less than it has shown before.
    WentBack(Offset),
    /// R5: the end of a range was stored with fewer copies than have to acknowledge, although more servers live.
    TooFewCopies(RangeIndex),
    /// R5: a server that counts as complete lacks something on its disk.
    Incomplete(RangeIndex),
    /// I4: the end of a sealed range has changed.
    EndChanged(RangeIndex),
    /// A reader who asked where the stream ends was told less than was acknowledged before.
    OldEnd(Offset),
    /// Two servers have one number.
    TwoServers(i32),
    /// Appends do not go on once all faults have ended.
    StandsStill,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What has been promised to anybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// What somebody saw or was told, by offset.
    shown: BTreeMap<Offset, (RangeIndex, Batch)>,
    /// What was acknowledged, and where.
    acknowledged: BTreeMap<(u8, u8), Offset>,
    /// The highest epoch of each writer of which a fence was acknowledged.
    fenced: BTreeMap<u8, u8>,
    ends: BTreeMap<RangeIndex, Position>,
    /// Ranges of which more was lost than is promised to do no harm.
    forlorn: BTreeSet<RangeIndex>,
    pub(crate) violation: Option<Violation>,
}

impl Ghost {
    pub(crate) fn fenced(&self, writer: u8) -> u8 {
        self.fenced.get(&writer).copied().unwrap_or(0)
    }

    /// One behind the last offset that was acknowledged.
    pub(crate) fn acknowledged_end(&self) -> Offset {
        let last = self.acknowledged.values().max();
        last.map_or(Offset::ZERO, |last| Offset(last.0 + 1))
    }

    pub(crate) fn break_promise(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// A writer is told that its append is stored.
    pub(crate) fn acknowledge(&mut self, range: RangeIndex, waiting: &Waiting) {
        match waiting.what {
            Append::Fence { writer, epoch } => {
                let highest = self.fenced.entry(writer).or_default();
                *highest = (*highest).max(epoch);
            }
            Append::Batch(batch) => {
                let Some(offset) = waiting.offset else { return };
                let before = self.acknowledged.insert((batch.writer, batch.sequence), offset);
                if before.is_some_and(|before| before != offset) {
                    self.break_promise(Violation::Doubled(offset));
                }
                // A repeat may be of an older range, which is shown already.
                let known = self.shown.get(&offset).map_or(range, |(range, _)| *range);
                self.show(offset, known, batch);
            }
        }
    }

    fn show(&mut self, offset: Offset, range: RangeIndex, batch: Batch) {
        match self.shown.insert(offset, (range, batch)) {
            Some((_, before)) if before != batch => self.break_promise(Violation::TwoContents(offset)),
            Some(_) => {}
            None => {
                let again = self
                    .shown
                    .iter()
                    .filter(|(_, (_, one))| (one.writer, one.sequence) == (batch.writer, batch.sequence));
                if again.count() > 1 {
                    self.break_promise(Violation::Doubled(offset));
                }
            }
        }
    }

    /// Looks at what a server shows to readers.
    pub(crate) fn read(&mut self, held: &mut Held) {
        let Some(readable) = held.replica.readable() else {
            return;
        };
        let range = held.replica.range().key.range;
        if readable < held.shown {
            self.break_promise(Violation::WentBack(readable.offset));
        }
        held.shown = held.shown.max(readable);
        let mut next = held.replica.range().beginning();
        for logged in held.log.iter().take_while(|logged| logged.end() <= readable) {
            if logged.at != next {
                self.break_promise(Violation::Gap(logged.at.offset));
            }
            next = logged.end();
            if let Content::Batch(batch) = logged.content {
                if logged.is_late {
                    self.break_promise(Violation::Fenced(logged.at.offset));
                }
                self.show(logged.at.offset, range, batch);
            }
        }
    }

    /// Compares what was promised with what is stored.
    pub(crate) fn compare(&mut self, store: &Store, nodes: &[Node]) {
        for record in &store.ranges {
            let Some(end) = record.end else { continue };
            let index = record.range.key.range;
            if self.ends.insert(index, end).is_some_and(|before| before != end) {
                self.break_promise(Violation::EndChanged(index));
            }
            let holds = |server: &ServerId| {
                let node = nodes.iter().find(|node| node.id == Some(*server))?;
                let reaches = node.held(index).map_or(record.range.beginning(), durable_end);
                Some(reaches >= end)
            };
            if record.complete.iter().filter_map(holds).any(|complete| !complete) {
                self.break_promise(Violation::Incomplete(index));
            }
        }
        self.forlorn.extend(forlorn(store, nodes));
        let gone = self.shown.iter().filter(|(offset, (range, batch))| {
            let behind_end = self.ends.get(range).is_some_and(|end| **offset >= end.offset);
            if self.forlorn.contains(range) && !behind_end {
                return false;
            }
            behind_end || !nodes.iter().any(|node| on_disk(node, *range, **offset, *batch))
        });
        let gone: Vec<_> = gone.map(|(offset, (_, batch))| (*offset, *batch)).collect();
        for (offset, batch) in gone {
            let is_acknowledged = self.acknowledged.contains_key(&(batch.writer, batch.sequence));
            self.break_promise(if is_acknowledged {
                Violation::Lost(offset)
            } else {
                Violation::Vanished(offset)
            });
        }
        let mut numbers: Vec<_> = nodes.iter().filter_map(|node| node.id).collect();
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            self.break_promise(Violation::TwoServers(twice[0].0));
        }
    }
}

/// Ranges of which more was lost than is promised to do no harm: fewer servers had the end than acknowledge, because no
/// others could be reached, and those lost their disks before it was copied.
pub(crate) fn forlorn(store: &Store, nodes: &[Node]) -> Vec<RangeIndex> {
    let is_gone = |server: &ServerId| nodes.iter().all(|node| node.id != Some(*server));
    let sealed = store.ranges.iter().filter(|record| record.end.is_some());
    let few = sealed.filter(|record| record.complete.len() < record.range.quorum.acks());
    let lost = few.filter(|record| record.complete.iter().all(is_gone));
    lost.map(|record| record.range.key.range).collect()
}

/// Where the part of a copy ends that is on the disk.
fn durable_end(held: &Held) -> Position {
    let last = held.log.get(held.synced.wrapping_sub(1));
    last.map_or(held.replica.range().beginning(), crate::entries::Logged::end)
}

fn on_disk(node: &Node, range: RangeIndex, offset: Offset, batch: Batch) -> bool {
    let Some(held) = node.held(range) else { return false };
    let mut durable = held.log.iter().take(held.synced);
    durable.any(|logged| logged.at.offset == offset && logged.content == Content::Batch(batch))
}
