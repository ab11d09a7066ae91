//! How the bytes of any protocol move between a state machine and its socket: no socket, no clock, no runtime.
//!
//! [`Endpoint`] is one end of a connection as its driver sees it, whatever it speaks. Below that is what protocols share:
//! [`WriteQueue`] (bytes on their way to a socket), [`Collector`] (the payload of a frame for it),
//! [`Intake`] (bytes that have arrived, and frames cut out of them),
//! [`Payload`] (received bytes in several pieces), [`Deadlines`] (which of many calls runs out of time next),
//! [`OwnCalls`] (the requests that wait for an answer), [`Phase`] (whether a connection is open), [`Arrival`] (whether a
//! frame arrives fast enough) and [`Keepalive`] (whether the peer says and takes anything). A protocol whose both ends are
//! one state machine has a [`Core`] of these, and is an [`Endpoint`] once it is a [`Machine`].

// This crate handles bytes of a peer: no input may cause a panic or a silent truncation.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation
    )
)]

mod arrival;
mod checksum;
mod collector;
mod deadlines;
mod endpoint;
mod intake;
mod keepalive;
mod machine;
mod own_calls;
mod payload;
mod phase;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod write_queue;

pub use arrival::{Arrival, Pace, Part, TooSlow};
pub use checksum::{Checksum, checksum};
pub use collector::Collector;
pub use deadlines::Deadlines;
pub use endpoint::{Endpoint, Reason};
pub use intake::Intake;
pub use keepalive::{Due, Keepalive, Patience};
pub use machine::{Core, Machine, MachineReason};
pub use own_calls::{OwnCall, OwnCalls};
pub use payload::{Payload, aligned_buffer};
pub use phase::Phase;
pub use write_queue::{SHARE_FROM, WHOLE_UP_TO, WriteQueue};
