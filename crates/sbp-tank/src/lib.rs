//! The protocol of the TANK message broker, for both ends: no socket, no clock, no runtime.
//!
//! A connection carries frames, little-endian throughout: a message id (1 byte), the length of what follows (4), and that.
//! Requests carry an id that their answer repeats; answers may overtake each other.
//!
//! - [`Connection`] is one end of a connection, as a driver's [`Endpoint`](sbp_wire::Endpoint). A client sends [`Request`]s,
//!   and is told of every bundle of an answer as soon as that is complete; a server sends [`Answer`]s.
//! - [`Bundle`] is what messages are stored and sent in, on the wire as on a broker's disk; [`Numbering`] gives the messages
//!   of bundles that follow each other their sequence numbers.

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

mod answer;
mod bundle;
mod coding;
mod connection;
mod event;
mod fault;
mod limits;
mod numbering;
mod outcome;
mod request;

pub use answer::{Answer, ConsumedTopic, Consumption, Discovered, PartitionBounds, TopicSummary};
pub use bundle::{Bundle, BundleHead, EncodeError, Message, Messages, Span, encode_bundle, encode_sparse_bundle};
pub use coding::{frame_bundle, take_framed};
pub use connection::{ClientConfig, Connection, Refused, ServerConfig, Stats};
pub use event::{Call, CallFailure, CloseReason, ConsumedPartition, Event, Violation};
pub use fault::Fault;
pub use limits::{COMPRESS_ABOVE, END, MAX_ANSWER, MAX_BUNDLE, MAX_HEADER, MAX_KEY, MAX_REQUEST, PARTITIONS};
pub use numbering::Numbering;
pub use outcome::{PartitionState, Produced};
pub use request::{ConsumedFrom, Produce, ProducedTo, Request, Topic};
