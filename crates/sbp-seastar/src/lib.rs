//! Seastar RPC, for both ends: no socket, no clock, no runtime.
//!
//! A connection begins with a negotiation frame from each side, and then carries frames, little-endian throughout. Requests
//! name a verb and have an id that the response repeats; responses overtake each other, and a request may never get one. A
//! connection that names a parent when it negotiates is a stream instead: messages in both directions, until each side has
//! ended its own.
//!
//! - [`Connection`] is one end of a connection of either kind, as a driver's [`Endpoint`](sbp_wire::Endpoint).
//! - [`Codec`] is how frames are compressed, where that was agreed.
//! - [`Signature`] is what the arguments of a verb are; it makes bytes of [`Value`]s, and values of bytes.

// This crate handles bytes of a peer: no input may cause a panic or a silent truncation.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::cast_possible_truncation
    )
)]

mod arguments;
mod codec;
mod connection;
mod event;
mod exception;
mod fault;
mod limits;
mod negotiation;

pub use arguments::{ArgumentError, Signature, SignatureError, Type, Value};
pub use codec::Codec;
pub use connection::{ClientConfig, Connection, Refused, ServerConfig, Stats};
pub use event::{Call, CallFailure, CloseReason, Event, Negotiated};
pub use exception::Exception;
pub use fault::Fault;
pub use limits::{LONGEST_TIMEOUT, MAX_FRAME, MAX_NEGOTIATION, STREAM_WINDOW_BYTES, STREAM_WINDOW_FRAMES};
pub use negotiation::Features;
