//! A client of Pravega: write events, read streams, and ask what there is.
//!
//! A [`Pravega`] finds streams through a controller, or directly on one segment store. A [`Writer`] writes each event exactly
//! once; a [`Reader`] reads a stream's segments from one position to another.

mod client;
mod controller;
mod error;
mod history;
mod layout;
mod reader;
mod store;
mod writer;

pub use client::{Pravega, PravegaConfig};
pub use error::{Gap, PravegaError, PravegaErrorKind};
pub use history::StreamSegment;
pub use layout::{Owned, StreamName};
pub use reader::{End, ReadBatch, ReadPart, Reader, Start};
pub use sbp_pravega::{ClientConfig, MAX_EVENT, Segment, SegmentId, SegmentInfo};
pub use writer::{NewEvent, Writer};
