//! Pravega: write events, read streams, and ask what there is.

mod arguments;
pub(crate) mod client;
mod core;
pub(crate) mod results;
pub(crate) mod writer;
