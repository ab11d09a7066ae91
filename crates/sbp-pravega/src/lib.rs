//! The protocol of Pravega's segment stores, for both ends: no socket, no clock, no runtime.
//!
//! A connection carries frames, big-endian throughout: a type (4 bytes), the length of what follows (4), and that. Both ends
//! begin with a Hello. Most requests carry an id that their reply repeats; replies may overtake each other.
//!
//! - [`Connection`] is one end of a connection, as a driver's [`Endpoint`](sbp_wire::Endpoint). A client sends [`Request`]s;
//!   a server sends [`Reply`]s. The blocks that an append may come in are put together here.
//! - [`Events`] cuts events out of what is read of a segment, which ends anywhere, [`WholeEvents`] out of bytes in one piece;
//!   [`put_event`] makes what is appended.
//! - [`Segment`] is the name of a segment of a stream, [`key_position`] tells which one events with a key belong to.
//! - [`controller`] has the messages of the controller, which tells where segments are.

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

mod append;
mod coding;
mod connection;
pub mod controller;
mod event;
mod events;
mod fault;
mod kinds;
mod limits;
mod reply;
mod request;
mod routing;
mod segment;
mod table;
mod text;

pub use coding::WriterId;
pub use connection::{ClientConfig, Connection, Refused, ServerConfig, Stats};
pub use event::{Call, CallFailure, CloseReason, Event, Violation};
pub use events::{Events, WholeEvents, put_event};
pub use fault::Fault;
pub use limits::{
    EVENT_HEAD, HIGH_VERSION, LOW_VERSION, MAX_APPEND, MAX_EVENT, MAX_FRAME, MAX_READ, MAX_SEGMENT_NAME, MIN_READ, NEW,
};
pub use reply::{Reply, SegmentInfo};
pub use request::{Attribute, Conditional, Page, Request};
pub use routing::key_position;
pub use segment::{Segment, SegmentId};
pub use table::{TableEntry, TableKey};
