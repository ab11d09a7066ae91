//! One connection: requests in, answers out.
//!
//! [`Connection`] is the application above a session. It decodes, asks the two halves of the server, and encodes; it
//! never blocks. What takes time (the log, the metadata store, reads from disk) answers later through the connection's
//! [`Port`].

mod append;
mod changes;
mod cluster;
mod ends;
mod fault;
mod fetch;
mod handler;
mod heartbeat;
mod port;
mod range_changes;
mod ranges;
mod reject;
mod replier;
mod results;
mod streams;
mod wire_range;

pub(crate) use fault::Fault;
pub(crate) use fetch::ReadJob;
pub(crate) use handler::Connection;
pub(crate) use heartbeat::{Offer, ToldLimits};
pub(crate) use port::{AppendDone, ConnectionCommand, NotStored, Port, Stored};
pub(crate) use reject::reject_status;
pub(crate) use replier::Replier;
