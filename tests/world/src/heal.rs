//! The end of all faults: appends and reads have to go on.

use std::collections::HashMap;
use std::sync::Arc;

use crate::action::Action;
use crate::ghost::{Violation, forlorn};
use crate::node::Node;
use crate::scenario::Scenario;
use crate::world::{Setup, World, Writer};

/// So many rounds are more than any seal takes.
const ROUNDS: usize = 40;

/// So many entries are more than a range has.
const ENTRIES: usize = 20;

/// How faults end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heal {
    /// All connections are made anew, and a placement driver becomes the leader.
    Anew,
    /// Whoever is away comes back, cuts are mended, and everything goes on as it is.
    AsItIs,
    /// As [`AsItIs`](Self::AsItIs), but one server stays cut off from all others, and does not know.
    Without(usize),
}

impl World {
    /// Ends all faults, and lets everything happen that can until a batch that is new is acknowledged, then one of each
    /// writer from before, a reader knows where the stream ends, and everything can be read.
    ///
    /// # Errors
    ///
    /// The promise that is broken on the way, or [`Violation::StandsStill`], and what was done.
    pub fn heal(&mut self, how: Heal) -> Result<(), (Violation, Vec<Action>)> {
        let mut done = Vec::new();
        self.left = Default::default();
        if self.setup.0.budget.forces > 0 {
            self.left.forces = u8::MAX;
        }
        self.cuts.clear();
        self.setup = Setup(Arc::new(Scenario {
            in_flight: false,
            ..Scenario::clone(&self.setup.0)
        }));
        if how == Heal::Anew {
            self.flight.clear();
            self.answers.clear();
            for node in 0..self.nodes.len() {
                self.disconnect(node);
            }
        }
        if let Heal::Without(node) = how {
            self.cut_off(node);
        }
        let leads = |driver: &usize| self.drivers[*driver].term == Some(self.store.term);
        let leader = (0..self.drivers.len()).find(leads).filter(|_| how != Heal::Anew);
        let leader = leader.unwrap_or_else(|| {
            self.left.leads = 1;
            self.act(Action::Lead(0));
            0
        });
        let fresh = u8::try_from(self.writers.len()).unwrap_or(u8::MAX);
        self.writers.push(Writer::default());
        // A writer who was fenced does not go on.
        let older = (0..fresh).filter(|writer| self.writers[usize::from(*writer)].epoch == 0);
        let writers: Vec<_> = std::iter::once(fresh).chain(older).collect();
        for writer in writers {
            self.until_acknowledged(writer, leader, &mut done)
                .map_err(|violation| (violation, done.clone()))?;
        }
        let result = self.read_all();
        result.map_err(|violation| (violation, done))
    }

    /// Whether what is left suffices to go on: an operator has to decide where more disks are lost than acknowledgements
    /// can spare, or where the store is an old copy.
    #[must_use]
    pub fn can_heal(&self, how: Heal) -> bool {
        let budget = self.setup.0.budget;
        let lost = usize::from(budget.wipes - self.left.wipes) + usize::from(budget.damages - self.left.damages);
        // Of records that all disks have lost an administrator says that they are.
        let is_whole = (lost < self.setup.0.acks || budget.forces > 0)
            && self.left.restores == budget.restores
            && forlorn(&self.store, &self.nodes).is_empty();
        let Heal::Without(_) = how else { return is_whole };
        // One server less is what acknowledgements can spare, if nothing else has gone.
        let scenario = &self.setup.0;
        let spares = |record: &crate::driver::RangeRecord| {
            let acks = record.range.quorum.acks();
            let is_safe = record.end.is_none() || record.complete.len() >= acks;
            is_safe && acks >= 2 && record.range.servers.len() > acks
        };
        is_whole
            && lost == 0
            && self.left.trims == budget.trims
            && self.left.replacements == budget.replacements
            && scenario.servers > scenario.acks
            && self.store.ranges.iter().all(spares)
    }

    /// What a server says reaches nobody, and it hears nothing.
    fn cut_off(&mut self, node: usize) {
        let places = self.nodes.len() + self.drivers.len();
        let others = (0..places).filter(|place| *place != node);
        self.cuts
            .extend(others.flat_map(|place| [(node, place), (place, node)]));
        let id = |node: &Node| node.id;
        let ids: Vec<_> = self.nodes.iter().filter_map(id).collect();
        let me = self.nodes[node].id;
        // After a while they all know that they do not hear each other.
        self.nodes[node].missed.extend(ids.iter().filter(|id| Some(**id) != me));
        for (place, other) in self.nodes.iter_mut().enumerate() {
            other.missed.extend(me.filter(|_| place != node));
        }
    }

    fn until_acknowledged(&mut self, writer: u8, driver: usize, done: &mut Vec<Action>) -> Result<(), Violation> {
        let wanted = self.writers[usize::from(writer)].acknowledged;
        // A client goes on with the server that it knows until that refuses its appends.
        let mut route = (0..self.nodes.len()).rev().find(|node| self.takes_appends(*node));
        let mut is_sent = false;
        for _ in 0..ROUNDS {
            // An append that waits nowhere any more was refused.
            let waits = |node: usize| self.nodes[node].ranges.iter().any(|held| !held.waiting.is_empty());
            is_sent &= route.is_some_and(waits);
            let refuses = route.is_none_or(|node| !self.takes_appends(node));
            if refuses {
                route = (0..self.nodes.len()).find(|node| self.takes_appends(*node) && self.is_current(*node));
                is_sent = false;
            }
            match route {
                Some(node) if !is_sent => {
                    self.left.resends = u8::MAX;
                    self.act(Action::Append {
                        writer,
                        sequence: wanted,
                        node,
                    });
                    self.left.resends = 0;
                    is_sent = true;
                }
                // A server that misses another one, or is fenced, asks for a seal.
                _ if self.drivers[driver].job.is_none() && self.drivers[driver].open_range().is_some() => {
                    self.left.seals = 1;
                    self.act(Action::Seal(driver));
                    self.left.seals = 0;
                }
                _ => {}
            }
            self.everything(driver, done)?;
            if self.writers[usize::from(writer)].acknowledged > wanted {
                return Ok(());
            }
        }
        Err(Violation::StandsStill)
    }

    /// Whatever can happen, each as often as there may be entries.
    fn everything(&mut self, driver: usize, told: &mut Vec<Action>) -> Result<(), Violation> {
        let mut done: HashMap<Action, usize> = HashMap::new();
        loop {
            let is_new = |one: &Action| done.get(one).is_none_or(|times| *times < ENTRIES);
            let actions = self.actions();
            let next = actions.into_iter().find(|one| is_progress(one, driver) && is_new(one));
            let Some(next) = next else { return self.kept() };
            *done.entry(next).or_default() += 1;
            told.push(next);
            self.act(next);
            self.kept()?;
        }
    }

    fn kept(&self) -> Result<(), Violation> {
        self.violation().map_or(Ok(()), Err)
    }

    /// A reader asks where the stream ends, and reads everything up to there.
    fn read_all(&mut self) -> Result<(), Violation> {
        let node = (0..self.nodes.len()).find(|node| self.takes_appends(*node) && self.is_current(*node));
        let node = node.ok_or(Violation::StandsStill)?;
        self.left.questions = 1;
        self.act(Action::Ask(node));
        for by in 0..self.nodes.len() {
            let said = Action::SayUnfenced { node, by };
            if self.actions().contains(&said) {
                self.act(said);
            }
        }
        self.kept()?;
        if self.nodes[node]
            .ranges
            .last()
            .is_some_and(|held| held.question.is_some())
        {
            return Err(Violation::StandsStill);
        }
        let nodes = self.nodes.iter().enumerate();
        let reachable = nodes.filter(|(place, _)| *place == node || self.reaches(node, *place));
        let reachable: Vec<_> = reachable.map(|(_, node)| node).collect();
        self.ghost
            .unreadable(&reachable)
            .map_or(Ok(()), |offset| Err(Violation::Unreadable(offset)))
    }

    /// Whether the server's last range is the one that the store has open.
    fn is_current(&self, node: usize) -> bool {
        let open = self.store.ranges.last().filter(|record| record.end.is_none());
        let held = self.nodes[node].ranges.last().map(|held| held.replica.range().key);
        open.is_some_and(|record| Some(record.range.key) == held)
    }
}

/// Whether it is no fault and no user's.
fn is_progress(action: &Action, leader: usize) -> bool {
    match action {
        Action::Fence { driver, .. }
        | Action::Vote { driver, .. }
        | Action::WrittenBack { driver, .. }
        | Action::Away { driver, .. }
        | Action::Tell { driver, .. }
        | Action::Number { driver, .. }
        | Action::Copied { driver, .. }
        | Action::Store { driver, .. } => *driver == leader,
        Action::Decide(driver) | Action::WriteBack(driver) | Action::Again(driver) | Action::Force(driver) => {
            *driver == leader
        }
        Action::Send { .. }
        | Action::Retry { .. }
        | Action::Deliver(_)
        | Action::Report { .. }
        | Action::Hear(_)
        | Action::Sync { .. }
        | Action::Commit(_)
        | Action::Start(_) => true,
        _ => false,
    }
}
