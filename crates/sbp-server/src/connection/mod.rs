//! One connection: requests in, answers out.
//!
//! [`Connection`] is the application above a session. It decodes, asks the two halves of the server, and encodes; it
//! never blocks. What takes time (the log, the metadata store, reads from disk) answers later through the connection's
//! [`Port`].

mod append;
mod describe;
mod fetch;
mod handler;
mod heartbeat;
mod port;
mod reject;
mod replier;
mod streams;

pub(crate) use fetch::ReadJob;
pub(crate) use handler::Connection;
pub(crate) use heartbeat::{Offer, ToldLimits};
pub(crate) use port::{AppendDone, ConnectionCommand, NotStored, Port, Stored};
