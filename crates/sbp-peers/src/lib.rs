//! Clients of what speaks other protocols than SBP.
//!
//! [`tank`] is a client of TANK brokers, [`pravega`] of Pravega's servers. [`seastar`] is a client of Seastar RPC services, and
//! a server for their clients.

mod calls;
pub mod pravega;
pub mod seastar;
pub mod tank;
