//! TANK brokers: produce, read, and ask what there is.

mod arguments;
pub(crate) mod broker;
pub(crate) mod results;
pub(crate) mod spans;
