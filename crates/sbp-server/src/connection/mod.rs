//! One connection: requests in, answers out.
//!
//! [`Connection`] handles the events of a session: it decodes requests, calls the two roles of the server, and encodes
//! answers. It never blocks. Results that take time (the log, the metadata store, reads from disk) come later through
//! the connection's [`ConnectionHandle`].

mod append;
mod audited;
mod batch_head;
mod changes;
mod cluster;
mod ends;
mod fault;
mod fetch;
mod follow;
mod handle;
mod handler;
mod identification;
mod known_peer;
mod metadata;
mod range_server;
mod replier;
mod results;
mod streams;

pub(crate) use handle::{ConnectionCommand, ConnectionHandle};
pub(crate) use handler::Connection;
pub(crate) use identification::goodbye;
