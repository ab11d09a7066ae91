//! Calls to another server: a range server's to its placement driver, a placement driver's to range servers.
//!
//! A [`PeerChannel`] is one connection at a time, dialled again whenever it is lost. Every request that servers send each
//! other may be carried out twice, so a call is sent again on the next connection until its time is up.

mod call;
mod channel;
mod connection;
mod error;
mod shared;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use channel::PeerChannel;
pub(crate) use error::PeerError;
pub(crate) use shared::{PeerConfig, PeerToken};
