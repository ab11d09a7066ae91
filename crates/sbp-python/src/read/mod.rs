//! Reading, for blocking code and for asyncio: a source of batches, and steps through it that can be cancelled.

pub(crate) mod shared_source;
pub(crate) mod source;
