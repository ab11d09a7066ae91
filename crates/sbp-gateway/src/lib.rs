//! Between SBP and other protocols: what other brokers hold comes into streams, and their clients are served from streams.
//!
//! Everything here is a client of an SBP service. [`import`] copies topics of TANK brokers into streams, from a running broker or
//! from its files, so that each message is stored once. [`tank`] is a TANK broker in front of streams; [`seastar`] serves them as
//! verbs of Seastar RPC.

mod appends;
mod catalog;
pub mod import;
mod names;
mod numbers;
pub mod pravega;
mod records;
pub mod seastar;
pub mod tank;
mod watch;
