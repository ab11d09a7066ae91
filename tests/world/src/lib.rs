//! A cluster in one thread: servers, placement drivers, their store, a network, writers and readers, as one value.
//!
//! The state machines are those of `sbp-replication`. Around them things happen in any order: a [`World`] lists what
//! may happen next, and does one of it. No clock runs. A timeout is an action that may come at any moment, so what holds here
//! holds for all of them.
//!
//! What does not happen here yet: cuts that last or go one way, records of ranges that are not durable at once, the state of the
//! writers in several parts, damage, trims, deleted streams, several streams, moves to servers outside a range, a bound on what
//! is unconfirmed. Where a run ends, all servers start again.
//!
//! | | |
//! | --- | --- |
//! | [`search`] | every order of everything, for small scenarios |
//! | [`chance`] | one order, by a seed, for large ones |
//!
//! After each action the whole world is looked at by somebody who sees everything, the ghost of `ghost.rs`: nothing
//! acknowledged is lost, nothing is stored twice, no reader saw what vanishes. At the end of a run all faults end, and appends
//! have to go on.

mod act;
mod action;
pub mod chance;
mod drive;
mod driver;
mod entries;
mod ghost;
mod heal;
mod node;
mod possible;
mod scenario;
pub mod search;
mod world;

pub use action::Action;
pub use ghost::Violation;
pub use scenario::{Budget, Scenario};
pub use world::World;
