//! Reading, for blocking code and for asyncio: sources of batches, and steps through them that can be cancelled.

pub(crate) mod pravega;
pub(crate) mod shared_source;
pub(crate) mod source;
pub(crate) mod tank;
