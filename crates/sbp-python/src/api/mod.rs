//! The classes that users call: clients, streams, cursors, streams by key and batches, each for blocking code and for
//! asyncio.

pub(crate) mod asyncio;
pub(crate) mod batches;
pub(crate) mod blocking;
pub(crate) mod client;
pub(crate) mod cursor;
mod key;
pub(crate) mod keyed;
pub(crate) mod pair;
pub(crate) mod stream;
