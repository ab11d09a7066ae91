//! One connection: requests in, answers out.
//!
//! [`Connection`] is the application above a session. It decodes, asks the two roles of the server, and encodes; it
//! never blocks. What takes time (the log, the metadata store, reads from disk) answers later through the connection's
//! [`ConnectionHandle`].

mod answer;
mod append;
mod changes;
mod cluster;
mod ends;
mod fault;
mod fetch;
mod handle;
mod handler;
mod range_changes;
mod range_server;
mod ranges;
mod replier;
mod results;
mod streams;
mod turn;
mod wire_range;

pub(crate) use handle::{ConnectionCommand, ConnectionHandle};
pub(crate) use handler::Connection;
