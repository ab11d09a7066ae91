//! What this project asks of etcd: keys and values, transactions, and leases, over etcd's version 3 API.
//!
//! A [`Client`] knows several members and asks one at a time. Each call takes a second at most; after one that brought no
//! answer the next member is asked. Whether something that was not answered has happened is never guessed: errors say
//! [whether it may have](EtcdError::may_have_happened), and the caller decides what to send again.
//!
//! The messages are written by hand in `message.rs`, those and those fields alone that are used here: a generator, with its
//! compiler of protocol files, would be more to build than the rest of the crate, for seven calls whose field numbers
//! never change. The tests in `tests/e2e/etcd` show with a real etcd that they are right.

mod client;
mod error;
mod location;
mod member;
mod message;
mod request;

pub use client::{Client, ClientConfig};
pub use error::{EtcdError, Failure};
pub use location::{Location, LocationError};
pub use request::{Committed, Compare, KeyValue, LeaseId, Page, PageRequest, Transaction, Write, after_prefix};
