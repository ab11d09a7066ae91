//! Somebody who sees the whole world, and says when a promise is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sbp_types::{Offset, Position, RangeIndex, ServerId};

use crate::driver::Store;
use crate::entries::{Append, Batch, Content, Logged};
use crate::held::{Held, Waiting};
use crate::node::Node;
use crate::scenario::Scenario;

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
    /// I6: a reader who asked where the stream ends was told less than was acknowledged before.
    OldEnd(Offset),
    /// R1: two servers have one number, and may both be a range's primary.
    TwoServers(i32),
    /// I7: a server that recovers twice is another one than after the first time.
    RecoversTwice(i32),
    /// I9: ranges do not follow each other, with rising epochs, or one of them is open that is not the last.
    NotTiled(RangeIndex),
    /// R7: appends, those of a writer from before, or answers where the stream ends do not go on although enough servers live.
    StandsStill,
    /// I3: a record that was shown, and is not trimmed, can be read nowhere although enough servers live.
    Unreadable(Offset),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What has been promised to anybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// Whether as many disks may lose the same entry as there are.
    disks_may_lose_all: bool,
    /// What somebody saw or was told, by offset.
    shown: BTreeMap<Offset, (RangeIndex, Batch)>,
    /// What was acknowledged, and where.
    acknowledged: BTreeMap<(u8, u8), Offset>,
    /// The highest epoch of each writer of which a fence was acknowledged.
    fenced: BTreeMap<u8, u8>,
    ends: BTreeMap<RangeIndex, Position>,
    /// Ranges of which more was lost than is promised to do no harm.
    forlorn: BTreeSet<RangeIndex>,
    /// Records before it are trimmed.
    trimmed: Offset,
    pub(crate) violation: Option<Violation>,
}

impl Ghost {
    /// Somebody who has seen nothing yet.
    pub(crate) fn new(disks_may_lose_all: bool) -> Self {
        Self {
            disks_may_lose_all,
            ..Self::default()
        }
    }

    pub(crate) fn fenced(&self, writer: u8) -> u8 {
        self.fenced.get(&writer).copied().unwrap_or(0)
    }

    /// One behind the last offset that was acknowledged.
    pub(crate) fn acknowledged_end(&self) -> Offset {
        let last = self.acknowledged.values().max();
        last.map_or(Offset::ZERO, |last| Offset(last.0 + 1))
    }

    /// The stream is trimmed up to here.
    pub(crate) fn trimmed(&mut self, start: Offset) {
        self.trimmed = self.trimmed.max(start);
    }

    /// A server has started. Whether it would be the same after another start.
    pub(crate) fn recovered(&mut self, node: &Node, scenario: &Scenario) {
        let mut again = node.clone();
        again.crash();
        again.start(scenario);
        again.missed.clone_from(&node.missed);
        if again != *node {
            self.break_promise(Violation::RecoversTwice(node.id.map_or(0, |id| id.0)));
        }
    }

    /// Records that were shown and that no server that can be asked has for readers.
    pub(crate) fn unreadable(&self, nodes: &[&Node]) -> Option<Offset> {
        let shows = |node: &Node, offset: Offset, range: RangeIndex, batch: Batch| {
            let held = node.held(range).filter(|_| node.is_up)?;
            let behind = Position::start(Offset(offset.0 + 1));
            let is_shown = held.replica.readable().is_some_and(|end| behind <= end);
            is_shown
                .then(|| on_disk(node, range, offset, batch))
                .filter(|is_there| *is_there)
        };
        let mut shown = self
            .shown
            .iter()
            .filter(|(offset, (range, _))| **offset >= self.trimmed && !self.forlorn.contains(range));
        let is_ruined = |offset: Offset, range: RangeIndex, batch: Batch| {
            let has = |what: fn(&Node, RangeIndex, Offset, Batch) -> bool| {
                nodes.iter().any(|node| what(node, range, offset, batch))
            };
            self.disks_may_lose_all && has(was_on_disk) && !has(on_disk)
        };
        let gone = shown.find(|(offset, (range, batch))| {
            let is_shown = |node: &&Node| shows(node, **offset, *range, *batch).is_some();
            !nodes.iter().any(is_shown) && !is_ruined(**offset, *range, *batch)
        });
        gone.map(|(offset, _)| *offset)
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
                self.show(offset, range, batch);
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
            // What is trimmed may be missing, between what begins the range and the rest.
            if logged.at != next && logged.at.offset > self.trimmed {
                self.break_promise(Violation::Gap(logged.at.offset));
            }
            next = logged.end();
            if logged.is_damaged {
                continue;
            }
            if let Content::Batch(batch) = logged.content {
                if logged.is_late {
                    self.break_promise(Violation::Fenced(logged.at.offset));
                }
                self.show(logged.at.offset, range, batch);
            }
        }
    }

    fn check_tiles(&mut self, store: &Store) {
        for pair in store.ranges.windows(2) {
            let (range, next) = (&pair[0].range, &pair[1].range);
            let tiles = pair[0].end.is_some_and(|end| end.offset == next.start);
            let rises = next.epoch > range.epoch && next.key.range > range.key.range;
            if !tiles || !rises {
                self.break_promise(Violation::NotTiled(range.key.range));
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
                let held = node.held(index);
                let is_damaged = held.is_some_and(|held| held.has_unsaid_loss);
                let reaches = held.map_or(record.range.beginning(), Held::reaches);
                Some(reaches >= end || is_damaged || self.trimmed >= end.offset)
            };
            if record.complete.iter().filter_map(holds).any(|complete| !complete) {
                self.break_promise(Violation::Incomplete(index));
            }
        }
        self.check_tiles(store);
        // What the disks themselves have lost is not lost by anybody's decision.
        let is_there = if self.disks_may_lose_all { was_on_disk } else { on_disk };
        self.forlorn.extend(forlorn(store, nodes));
        let gone = self.shown.iter().filter(|(offset, (range, batch))| {
            if **offset < self.trimmed {
                return false;
            }
            let behind_end = self.ends.get(range).is_some_and(|end| **offset >= end.offset);
            if self.forlorn.contains(range) && !behind_end {
                return false;
            }
            behind_end || !nodes.iter().any(|node| is_there(node, *range, **offset, *batch))
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

/// Whether a server has all of a range up to its end on its disk, and can read it.
pub(crate) fn has_whole(node: &Node, range: RangeIndex, end: Position) -> bool {
    let Some(held) = node.held(range) else { return false };
    let mut wanted = held.log.iter().take_while(|logged| logged.end() <= end);
    held.reaches() >= end && wanted.all(|logged| !logged.is_damaged)
}

/// Ranges of which more was lost than is promised to do no harm: fewer servers had the end than acknowledge, because no
/// others could be reached, and those lost their disks before it was copied.
pub(crate) fn forlorn(store: &Store, nodes: &[Node]) -> Vec<RangeIndex> {
    let harmed = |held: &Held| held.is_end_damaged || held.log.iter().any(|logged| logged.is_damaged);
    let is_gone = |server: &ServerId, range: RangeIndex| {
        let node = nodes.iter().find(|node| node.id == Some(*server));
        node.is_none_or(|node| node.held(range).is_some_and(harmed))
    };
    let sealed = store.ranges.iter().filter(|record| record.end.is_some());
    let few = sealed.filter(|record| record.complete.len() < record.range.quorum.acks());
    let lost = few.filter(|record| {
        let range = record.range.key.range;
        record.complete.iter().all(|server| is_gone(server, range))
    });
    lost.map(|record| record.range.key.range).collect()
}

fn on_disk(node: &Node, range: RangeIndex, offset: Offset, batch: Batch) -> bool {
    has_on_disk(node, range, offset, batch, false)
}

/// The same, or damaged.
fn was_on_disk(node: &Node, range: RangeIndex, offset: Offset, batch: Batch) -> bool {
    has_on_disk(node, range, offset, batch, true)
}

fn has_on_disk(node: &Node, range: RangeIndex, offset: Offset, batch: Batch, also_damaged: bool) -> bool {
    let Some(held) = node.held(range) else { return false };
    let mut durable = held.log.iter().take(held.synced);
    let is_it = |one: &Logged| one.at.offset == offset && one.content == Content::Batch(batch);
    durable.any(|one| is_it(one) && (also_damaged || !one.is_damaged))
}
