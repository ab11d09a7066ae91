//! How the placement driver reaches range servers in other processes.

use std::fmt;

use sbp_types::{Epoch, Offset, RangeKey, ServerId, StreamId};

use crate::range::{HeldRange, StreamFacts};
use crate::refusal::Refusal;

/// Called once with how it ended, on any thread. Dropped uncalled it counts as a refusal.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

/// The range servers in other processes, as the placement driver orders them about.
///
/// No call blocks; each ends by its `done`, after a while at the latest: an operation of a stream waits for it, and the
/// stream's next operation behind it. A server that does not answer is [`PD_NO_AVAILABLE_RS`](sbp_messages::ErrorCode::PD_NO_AVAILABLE_RS).
pub(crate) trait RangeServers: fmt::Debug + Send + Sync {
    /// The server is to be dialled here from now on.
    fn locate(&self, server: ServerId, address: &str);

    /// Seals the range; it is durable at the range server when this is done. With `seen`, the end must be this one, else
    /// nothing is done. Gives the end.
    fn seal(&self, server: ServerId, key: RangeKey, epoch: Epoch, seen: Option<Offset>, done: Done<Offset>);

    /// The server holds these ranges of the stream, whose settings may have changed; durable when this is done.
    fn sync(&self, server: ServerId, stream: StreamId, facts: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>);

    /// The stream begins at `start`.
    fn trim(&self, server: ServerId, stream: StreamId, start: Offset, done: Done<()>);

    /// The streams are gone.
    fn delete(&self, server: ServerId, streams: Vec<StreamId>, done: Done<()>);

    /// Where readers of these open ranges stand; `None` for one that the server does not hold.
    fn next_offsets(&self, server: ServerId, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>);
}

/// There are no range servers in other processes.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct NoOthers;

#[cfg(test)]
impl NoOthers {
    fn refuse<T>(server: ServerId, done: Done<T>) {
        let message = format!("range server {server} cannot be reached from here");
        done(Err(Refusal::new(sbp_messages::ErrorCode::PD_NO_AVAILABLE_RS, message)));
    }
}

#[cfg(test)]
impl RangeServers for NoOthers {
    fn locate(&self, _: ServerId, _: &str) {}

    fn seal(&self, server: ServerId, _: RangeKey, _: Epoch, _: Option<Offset>, done: Done<Offset>) {
        Self::refuse(server, done);
    }

    fn sync(&self, server: ServerId, _: StreamId, _: StreamFacts, _: Vec<HeldRange>, done: Done<()>) {
        Self::refuse(server, done);
    }

    fn trim(&self, server: ServerId, _: StreamId, _: Offset, done: Done<()>) {
        Self::refuse(server, done);
    }

    fn delete(&self, server: ServerId, _: Vec<StreamId>, done: Done<()>) {
        Self::refuse(server, done);
    }

    fn next_offsets(&self, server: ServerId, _: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>) {
        Self::refuse(server, done);
    }
}
