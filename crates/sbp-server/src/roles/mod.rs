//! The two roles apart: a placement driver and range servers that speak the protocol with each other.
//!
//! A range server alone has a [`RangeRole`]: a link to its placement driver, over which it says who it is, asks what
//! belongs to it and tells how it does, and a [`Keeper`](keeper::Keeper) that makes its holdings durable. A placement driver reaches
//! range servers through [`RemoteServers`](remote::RemoteServers).

mod answers;
mod halves;
mod holdings;
mod keeper;
mod members;
mod metrics;
mod range_role;
mod registration;
mod remote;
mod retention;
mod scrub;
mod wire;

pub(crate) use answers::{Answer, answers, handle_request};
pub(crate) use halves::{Halves, Surroundings};
pub(crate) use holdings::Holdings;
pub(crate) use range_role::RangeRole;
pub(crate) use registration::{keep_in_touch, watch_itself};
pub(crate) use retention::trim_what_is_due;
pub(crate) use scrub::scrub_what_is_sealed;
#[cfg(test)]
pub(crate) use {
    holdings::News,
    keeper::{Job, Keeper},
};
