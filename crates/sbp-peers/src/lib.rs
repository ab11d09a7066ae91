//! Clients of what speaks other protocols than SBP.
//!
//! [`tank`] is a client of TANK brokers, [`pravega`] of Pravega's servers.

mod calls;
pub mod pravega;
pub mod tank;
