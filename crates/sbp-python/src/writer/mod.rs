//! Writers, for blocking code and for asyncio: what both share, and the two classes.

pub(crate) mod asyncio;
pub(crate) mod blocking;
pub(crate) mod core;
mod delivery_callback;
pub(crate) mod options;
mod waiting_calls;
