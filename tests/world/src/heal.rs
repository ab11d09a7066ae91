//! The end of all faults: appends have to go on.

use std::collections::HashMap;
use std::sync::Arc;

use crate::action::Action;
use crate::ghost::{Violation, forlorn};
use crate::scenario::Scenario;
use crate::world::{Setup, World, Writer};

/// So many rounds are more than any seal takes.
const ROUNDS: usize = 30;

/// So many entries are more than a range has.
const ENTRIES: usize = 20;

impl World {
    /// Ends all faults, and lets everything happen that can until a batch that is new is acknowledged.
    ///
    /// # Errors
    ///
    /// The promise that is broken on the way, or [`Violation::StandsStill`], and what was done.
    pub fn heal(mut self) -> Result<(), (Violation, Vec<Action>)> {
        let mut done = Vec::new();
        self.left = Default::default();
        self.flight.clear();
        self.answers.clear();
        self.setup = Setup(Arc::new(Scenario {
            in_flight: false,
            ..Scenario::clone(&self.setup.0)
        }));
        for node in 0..self.nodes.len() {
            self.disconnect(node);
        }
        self.left.leads = 1;
        self.act(Action::Lead(0));
        let writer = u8::try_from(self.writers.len()).unwrap_or(u8::MAX);
        self.writers.push(Writer::default());
        for _ in 0..ROUNDS {
            self.round(writer, &mut done);
            if let Some(violation) = self.violation() {
                return Err((violation, done));
            }
            if self.writers[usize::from(writer)].acknowledged > 0 {
                return Ok(());
            }
        }
        Err((Violation::StandsStill, done))
    }

    /// Whether what is left suffices to go on: an operator has to decide where more disks are lost than acknowledgements
    /// can spare, or where the store is an old copy.
    #[must_use]
    pub fn can_heal(&self) -> bool {
        let budget = self.setup.0.budget;
        let lost = usize::from(budget.wipes - self.left.wipes);
        lost < self.setup.0.acks
            && self.left.restores == budget.restores
            && forlorn(&self.store, &self.nodes).is_empty()
    }

    fn round(&mut self, writer: u8, told: &mut Vec<Action>) {
        self.left.resends = u8::MAX;
        let accepting = (0..self.nodes.len()).find(|node| self.takes_appends(*node) && self.is_current(*node));
        // Who finds the range fenced asks for the rest of its seal: a deposed placement driver may have begun it.
        let accepting = accepting.filter(|_| !self.is_fenced());
        // And so does a primary that misses a follower.
        let accepting = accepting.filter(|_| self.writers[usize::from(writer)].sent == 0);
        match accepting {
            Some(node) => self.act(Action::Append {
                writer,
                sequence: 0,
                node,
            }),
            None if self.drivers[0].job.is_none() && self.drivers[0].open_range().is_some() => {
                self.left.seals = 1;
                self.act(Action::Seal(0));
                self.writers[usize::from(writer)].sent = 0;
            }
            None => {}
        }
        self.left.resends = 0;
        // Whatever else can happen, each as often as there may be entries.
        let mut done: HashMap<Action, usize> = HashMap::new();
        loop {
            let is_new = |one: &Action| done.get(one).is_none_or(|times| *times < ENTRIES);
            let next = self.actions().into_iter().find(|one| is_progress(one) && is_new(one));
            let Some(next) = next else { break };
            *done.entry(next).or_default() += 1;
            told.push(next);
            self.act(next);
            if self.violation().is_some() {
                return;
            }
        }
    }

    /// Whether any server has the open range fenced.
    fn is_fenced(&self) -> bool {
        let Some(open) = self.store.ranges.last() else {
            return false;
        };
        let mut copies = self.nodes.iter().filter_map(|node| node.held(open.range.key.range));
        copies.any(|held| held.replica.is_fenced())
    }

    /// Whether the server's last range is the one that the store has open.
    fn is_current(&self, node: usize) -> bool {
        let open = self.store.ranges.last().filter(|record| record.end.is_none());
        let held = self.nodes[node].ranges.last().map(|held| held.replica.range().key);
        open.is_some_and(|record| Some(record.range.key) == held)
    }
}

/// Whether it is no fault and no user's.
fn is_progress(action: &Action) -> bool {
    match action {
        Action::Fence { driver, .. }
        | Action::Vote { driver, .. }
        | Action::WrittenBack { driver, .. }
        | Action::Away { driver, .. }
        | Action::Tell { driver, .. }
        | Action::Number { driver, .. }
        | Action::Copied { driver, .. }
        | Action::Store { driver, .. } => *driver == 0,
        Action::Decide(driver) | Action::WriteBack(driver) | Action::Again(driver) => *driver == 0,
        Action::Send { .. }
        | Action::Retry { .. }
        | Action::Deliver(_)
        | Action::Report { .. }
        | Action::Hear(_)
        | Action::Sync { .. }
        | Action::Start(_) => true,
        _ => false,
    }
}
