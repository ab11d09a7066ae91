//! What tests with real servers, clients and sockets share: servers in this process and in others, clients, peers that
//! say exactly what a test tells them to, and waiting with a bound. The tests are the binaries beside this library.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on fails where it stands"
)]

pub mod access;
pub mod admin;
pub mod batches;
pub mod certificates;
pub mod clients;
pub mod damage;
pub mod etcd;
pub mod frames;
pub mod issuer;
pub mod ledger;
pub mod load;
pub mod peer;
pub mod process;
pub mod scripted;
pub mod servers;
pub mod wait;
