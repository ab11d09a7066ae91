//! The world as one value.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sbp_replication::{Answer, Offered, Quorum, ReplicatedRange, Round, Rules, Term};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId};

use crate::driver::{Driver, RangeRecord, Store};
use crate::entries::{Append, Logged};
use crate::ghost::{Ghost, Violation};
use crate::node::Node;
use crate::scenario::{Budget, Scenario};

/// The term in which a world begins. Older terms are those of a store that was put back from an old copy.
const TERM: Term = Term(100);

/// A cluster with one stream, its users, and what it has promised them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Store,
    pub(crate) drivers: Vec<Driver>,
    pub(crate) writers: Vec<Writer>,
    /// Entries on their way between servers.
    pub(crate) flight: Vec<Message>,
    /// Answers to them on their way back.
    pub(crate) answers: Vec<Reply>,
    /// Who does not reach whom: servers by their place, placement drivers behind them.
    pub(crate) cuts: BTreeSet<(usize, usize)>,
    pub(crate) left: Budget,
    pub(crate) ghost: Ghost,
    pub(crate) setup: Setup,
}

/// What never changes; it is no part of what tells two worlds apart.
#[derive(Clone, Debug)]
pub(crate) struct Setup(pub(crate) Arc<Scenario>);

impl PartialEq for Setup {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Setup {}

impl Hash for Setup {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A writer, as it knows itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    /// So many of its batches are acknowledged.
    pub(crate) acknowledged: u8,
    /// So many were sent.
    pub(crate) sent: u8,
    /// The epoch of its newest instance.
    pub(crate) epoch: u8,
}

/// An entry on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) from: ServerId,
    pub(crate) to: ServerId,
    pub(crate) range: RangeIndex,
    pub(crate) offered: Offered,
    pub(crate) logged: Logged,
    /// What the sender needs to understand the answer.
    pub(crate) round: Round,
    /// Whether its connection is broken: it may still arrive, but nobody hears the answer.
    pub(crate) is_stray: bool,
}

/// An answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply {
    pub(crate) from: ServerId,
    pub(crate) to: ServerId,
    pub(crate) range: RangeIndex,
    /// What the entries that it answers were sent with.
    pub(crate) sealed_end: Option<Position>,
    /// The same of the entry that it answers.
    pub(crate) round: Round,
    pub(crate) answer: Answer,
}

impl World {
    /// A world in which nothing has happened yet: one stream with its first range open.
    ///
    /// # Panics
    ///
    /// If the scenario is none, as with more acknowledgements than servers.
    #[must_use]
    pub fn new(scenario: &Arc<Scenario>) -> Self {
        let number = |place: usize| ServerId(i32::try_from(place).expect("few servers") + 1);
        let ids: Vec<_> = (0..scenario.servers).map(number).collect();
        let quorum = Quorum::new(scenario.replicas, scenario.acks).expect("a set of servers");
        let range = Arc::new(ReplicatedRange {
            key: RangeKey {
                stream: StreamId(1),
                range: RangeIndex(0),
            },
            epoch: Epoch(0),
            start: Offset::ZERO,
            servers: ids.iter().copied().take(scenario.replicas).collect(),
            quorum,
        });
        let record = RangeRecord::open(range);
        let store = Store {
            term: TERM,
            ranges: vec![record.clone()],
            start: Offset::ZERO,
            next_server: number(scenario.servers).0,
        };
        let mut drivers = vec![Driver::default(); scenario.drivers];
        drivers[0].term = Some(TERM);
        drivers[0].load(&store);
        let mut nodes: Vec<_> = ids.iter().map(|id| Node::new(Some(*id))).collect();
        for node in &mut nodes {
            node.follows(TERM, scenario.rules);
            node.told(&record, scenario);
            node.commit(scenario);
        }
        Self {
            nodes,
            store,
            drivers,
            writers: vec![Writer::default(); usize::from(scenario.writers)],
            flight: Vec::new(),
            answers: Vec::new(),
            cuts: BTreeSet::new(),
            left: scenario.budget,
            ghost: Ghost::new(scenario.budget.forces > 0),
            setup: Setup(Arc::clone(scenario)),
        }
    }

    /// The promise that was broken, if one was.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.ghost.violation
    }

    /// Where everybody stands, a line for each copy.
    #[must_use]
    pub fn summary(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(
                text,
                "  server {place}: {:?}, up {}, misses {:?}",
                node.id, node.is_up, node.missed
            );
            for held in node.ranges.iter().rev().take(3) {
                let replica = &held.replica;
                let _ = writeln!(
                    text,
                    "    range {} of {:?}: {} to {}, synced {}, on the disk {}, confirmed {}, whole to {}, end {:?}, fenced {}, \
                     known {}, {:?}, {} entries, {} wait",
                    held.index(),
                    replica.range().servers,
                    replica.begins_at(),
                    replica.next(),
                    replica.synced_end(),
                    held.reaches(),
                    replica.confirmed(),
                    replica.whole_to(),
                    replica.end(),
                    replica.is_fenced(),
                    held.is_known,
                    replica.takes_appends(),
                    held.log.len(),
                    held.waiting.len()
                );
            }
        }
        for driver in &self.drivers {
            let step = driver.job.as_ref().map(sbp_replication::SealJob::step);
            let _ = writeln!(text, "  driver of term {:?}: {step:?}", driver.term);
        }
        let last = self.store.ranges.last();
        let _ = writeln!(text, "  store: {last:?}, {:?}, cuts {:?}", self.writers, self.cuts);
        text
    }

    pub(crate) fn rules(&self) -> Rules {
        self.setup.0.rules
    }

    pub(crate) fn place_of(&self, server: ServerId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == Some(server))
    }

    /// Whether what one says reaches the other. Placement drivers have their places behind the servers.
    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        !self.cuts.contains(&(from, to))
    }

    /// Whether a placement driver can ask a server, and hears its answer.
    pub(crate) fn converses(&self, driver: usize, node: usize) -> bool {
        let driver = self.nodes.len() + driver;
        self.reaches(driver, node) && self.reaches(node, driver)
    }

    /// Everything that follows of itself: what is confirmed is acknowledged, and everybody may read.
    pub(crate) fn settle(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.is_up) {
            for held in &mut node.ranges {
                let acknowledged = held.replica.acknowledged();
                let index = held.replica.range().key.range;
                let ready: Vec<_> = held.waiting.extract_if(.., |one| one.until <= acknowledged).collect();
                for waiting in ready {
                    // A repeat may be of an older range.
                    let older = waiting.offset.filter(|offset| *offset < held.replica.range().start);
                    let range = older.and_then(|offset| self.store.range_of(offset)).unwrap_or(index);
                    self.ghost.acknowledge(range, &waiting);
                    if let Append::Batch(batch) = waiting.what {
                        let writer = &mut self.writers[usize::from(batch.writer)];
                        writer.acknowledged = writer.acknowledged.max(batch.sequence + 1);
                    }
                }
                self.ghost.read(held);
            }
        }
        self.ghost.compare(&self.store, &self.nodes);
    }
}
