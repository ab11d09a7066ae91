//! A cluster in one thread: servers, placement drivers, their store, a network, writers and readers, as one value.
//!
//! The state machines are those of `sbp-replication`. Around them things happen in any order: a [`World`] lists what
//! may happen next, and does one of it. No clock runs. A timeout is an action that may come at any moment, so what holds here
//! holds for all of them.
//!
//! What does not happen here yet: several streams, deleted streams, other priorities of a range's servers than the order in
//! which they are named.
//!
//! | | |
//! | --- | --- |
//! | [`search`] | every order of everything, for small scenarios |
//! | [`chance`] | one order, by a seed, for large ones |
//!
//! After each action the whole world is looked at by somebody who sees everything, the ghost of `ghost.rs`: nothing
//! acknowledged is lost, nothing is stored twice, no reader saw what vanishes. At the end of a run all faults end, and appends
//! of a new writer and of those from before have to go on, a reader learns where the stream ends, and everything can be read
//! ([`Heal`]): after a restart of all connections, or as everything is, or while one server stays cut off.

mod act;
mod action;
pub mod chance;
mod drive;
mod driver;
mod entries;
mod ghost;
mod heal;
mod held;
mod node;
mod possible;
mod scenario;
pub mod search;
mod world;

pub use action::Action;
pub use ghost::Violation;
pub use heal::Heal;
pub use scenario::{Budget, Scenario};
pub use world::World;
