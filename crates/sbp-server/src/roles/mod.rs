//! Roles in separate processes: a placement driver and range servers that speak the protocol with each other.
//!
//! A range server in a process of its own has a [`RangeRole`]: a channel to each of its placement drivers, over which it
//! registers, asks which ranges belong to it and reports its load, and a [`RangeStore`] that makes its hosted ranges
//! durable. A placement driver reaches range servers through [`RemoteServers`].
//!
//! A server that has both roles and shares its metadata with others is both in one process: its two roles speak with each other
//! over the protocol too, at the address that all others dial.

mod drivers;
mod greeting;
mod hosted_ranges;
mod local;
mod members;
mod metrics;
mod range_role;
mod range_store;
mod registration;
mod remote;
mod wire;

pub(crate) use drivers::Drivers;
pub(crate) use greeting::{allocate_id, greeting};
pub(crate) use hosted_ranges::HostedRanges;
#[cfg(test)]
pub(crate) use hosted_ranges::Update;
pub(crate) use local::{LocalAndOthers, LocalRangeServer, SharedStore};
pub(crate) use members::follow_members;
pub(crate) use metrics::{Sample, resident_bytes};
pub(crate) use range_role::{AskPlacementDriver, RangeRole};
pub(crate) use range_store::{Job, RangeStore};
pub(crate) use registration::{keep_in_touch, until_registered};
pub(crate) use remote::RemoteServers;
pub(crate) use wire::{held_range, is_on, located, voted, wire_range};
