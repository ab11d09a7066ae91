//! Clients of what speaks other protocols than SBP.
//!
//! [`tank`] is a client of TANK brokers.

pub mod tank;
