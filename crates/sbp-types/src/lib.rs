//! The identifiers and units that every other crate speaks in.
//!
//! Each wire integer is its own type here, so that a stream's id cannot be passed where an offset is wanted and a
//! duration in milliseconds cannot be taken for a point in time. The crate has no dependency, does no I/O and holds no
//! logic beyond checked arithmetic.

mod ids;
mod offset;
mod position;
mod time;

pub use ids::{Epoch, NotAnIdentity, RangeIndex, RangeKey, ServerId, StreamId, StreamIdentity, WriterId};
pub use offset::Offset;
pub use position::Position;
pub use time::TimestampMs;
