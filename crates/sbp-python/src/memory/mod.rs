//! Memory that crosses between Python and Rust, without copies where that is possible: buffers, Arrow data, and the
//! memory that batches are encoded into.

pub(crate) mod arrow;
pub(crate) mod buffer;
pub(crate) mod scratch;
