//! The identifiers and units that every other crate speaks in.
//!
//! Each wire integer is its own type here, so that a stream's id cannot be passed where an offset is wanted and a
//! duration in milliseconds cannot be taken for a point in time. Distributions of durations, which client and server count
//! alike, are here too. The crate has no dependency, does no I/O and holds no logic beyond checked arithmetic.

mod histogram;
mod ids;
mod offset;
mod position;
mod time;

pub use histogram::{Durations, Histogram};
pub use ids::{ClusterId, Epoch, NotAnIdentity, RangeIndex, RangeKey, ServerId, StreamId, StreamIdentity, WriterId};
pub use offset::Offset;
pub use position::Position;
pub use time::TimestampMs;
