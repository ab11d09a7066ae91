//! Between SBP and other protocols: what other brokers hold comes into streams.
//!
//! Everything here is a client of an SBP service. [`import`] copies topics of TANK brokers into streams, from a running broker or
//! from its files, so that each message is stored once.

pub mod import;
mod names;
mod numbers;
mod records;
