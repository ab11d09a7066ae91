//! Every order of everything that may happen in a small scenario.

use std::sync::Arc;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::action::Action;
use crate::ghost::Violation;
use crate::scenario::Scenario;
use crate::world::World;

/// What a search has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// How many different worlds it has seen.
    pub worlds: usize,
    /// The promise that is broken, and how it comes to that.
    pub broken: Option<(Violation, Vec<Action>)>,
}

struct Search(Arc<Scenario>);

/// Looks at every world that can be reached, until one breaks a promise.
#[must_use]
pub fn search(scenario: Scenario) -> Found {
    let checker = Search(Arc::new(scenario)).checker().finish_when(HasDiscoveries::Any);
    let checker = checker.threads(2).spawn_bfs().join();
    let path = checker.discovery(KEPT);
    let broken = path.and_then(|path| {
        let violation = path.last_state().violation()?;
        Some((violation, path.into_actions()))
    });
    Found {
        worlds: checker.unique_state_count(),
        broken,
    }
}

const KEPT: &str = "every promise is kept";

impl Model for Search {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        *actions = world.actions();
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(KEPT, |_, world: &World| world.violation().is_none())]
    }
}
