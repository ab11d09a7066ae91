//! One SBP connection as a state machine: no socket, no clock, no runtime.
//!
//! Its driver knows it as an [`Endpoint`](sbp_wire::Endpoint). Bytes and the time come in as arguments; bytes, events and the next deadline are polled out. Both ends of a
//! connection are the same type. Headers are opaque here: the layer above encodes and decodes them.
//!
//! A driver's turn around a [`Session`]:
//!
//! 1. read into [`Session::recv_buffer`] while [`Session::wants_read`], then [`Session::handle_received`];
//!    [`Session::handle_eof`] at the end; [`Session::handle_timeout`] when [`Session::poll_timeout`] has passed;
//! 2. take every [`Event`] with [`Session::poll_event`];
//! 3. write [`Session::transmit`] and advance it;
//! 4. end when [`Session::is_closed`].

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

mod budget;
mod config;
mod endpoint;
mod error;
mod event;
mod id_table;
mod outgoing;
mod own_calls;
mod peer_calls;
mod phase;
mod receiver;
mod session;
mod stats;

pub use config::{Authentication, Limits, Role, SessionConfig};
pub use error::SendError;
pub use event::{CallFailure, CloseReason, Event, RejectReason, Violation};
pub use outgoing::Outgoing;
pub use session::Session;
pub use stats::SessionStats;
