//! One order of what may happen, by chance.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::action::Action;
use crate::ghost::Violation;
use crate::heal::Heal;
use crate::scenario::Scenario;
use crate::world::World;

/// So many of the last actions are told of a run that failed.
const TOLD: usize = 50;

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Repeats the run.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// The last things that happened.
    pub last: Vec<Action>,
    /// Where everybody stands then.
    pub state: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: scenario {:?}, seed {}",
            self.violation, self.scenario, self.seed
        )?;
        self.last.iter().try_for_each(|action| writeln!(f, "  {action:?}"))?;
        write!(f, "{}", self.state)
    }
}

/// Lets so many things happen, then ends all faults.
///
/// # Errors
///
/// The promise that was broken.
pub fn run(scenario: &Arc<Scenario>, seed: u64, steps: usize) -> Result<(), Box<Failure>> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut world = World::new(scenario);
    let mut last = VecDeque::new();
    let failure = |violation, last: VecDeque<Action>, world: &World| {
        Err(Box::new(Failure {
            scenario: scenario.name,
            seed,
            violation,
            last: last.into(),
            state: world.summary(),
        }))
    };
    // Some runs have few faults, some many.
    let patience = chance.u32(1..20);
    for _ in 0..steps {
        let actions = world.actions();
        let (faults, rest): (Vec<_>, Vec<_>) = actions.into_iter().partition(|one| is_rare(one, scenario));
        let pool = if rest.is_empty() || (!faults.is_empty() && chance.u32(0..patience) == 0) {
            faults
        } else {
            rest
        };
        let Some(action) = chance.choice(pool) else { break };
        if last.len() == TOLD {
            last.pop_front();
        }
        last.push_back(action);
        world.act(action);
        if let Some(violation) = world.violation() {
            return failure(violation, last, &world);
        }
    }
    let how = match chance.u8(0..3) {
        0 => Heal::Anew,
        1 => Heal::AsItIs,
        _ => Heal::Without(chance.usize(0..scenario.servers)),
    };
    let how = if world.can_heal(how) { how } else { Heal::AsItIs };
    if !world.can_heal(how) {
        return Ok(());
    }
    world.heal(how).or_else(|(violation, done)| {
        last.extend(done.into_iter().rev().take(TOLD).rev());
        failure(violation, last, &world)
    })
}

fn is_rare(action: &Action, scenario: &Scenario) -> bool {
    if let Action::Commit(_) = action {
        return scenario.slow_commits;
    }
    matches!(
        action,
        Action::Break { .. }
            | Action::Drop(_)
            | Action::Crash(_)
            | Action::Wipe(_)
            | Action::Lead(_)
            | Action::Seal(_)
            | Action::Restore
            | Action::Replace { .. }
            | Action::FenceWriter { .. }
            | Action::Damage { .. }
            | Action::DamageEnd { .. }
            | Action::Force(_)
            | Action::Cut { .. }
            | Action::Miss { .. }
            | Action::Trim { .. }
            | Action::Move { .. }
    )
}
