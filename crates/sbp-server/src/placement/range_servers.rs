//! Range servers as a placement driver sees them: behind one trait, whichever process they are in.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_types::{Epoch, Offset, RangeKey, ServerId, StreamId};

use super::registry::Registry;
use crate::range::{HeldRange, StreamFacts};
use crate::refusal::{Done, Refusal};

/// One range server.
///
/// A placement driver tells it what is durable: which ranges it holds, where a stream begins, that a stream is gone.
/// What only a range server knows, where a range ends, it is asked for. A range on several servers is several of these,
/// each told and asked by itself.
///
/// No method blocks. Each `done` is called after a while at the latest, on any thread: an operation of a stream waits for
/// it, and the stream's next operation behind it. A server that does not answer is
/// [`PD_NO_AVAILABLE_RS`](sbp_messages::ErrorCode::PD_NO_AVAILABLE_RS).
pub(crate) trait RangeServer: Debug + Send + Sync {
    /// Has the range take no more appends, and gives its end once everything that it accepted is synced. `seen` is the
    /// end that somebody else saw: a server that makes the end durable itself does so only if it is this one. The caller
    /// compares too, and then says what becomes of the end: [`sync`](Self::sync), [`publish_end`](Self::publish_end) or
    /// [`abandon_seal`](Self::abandon_seal).
    fn seal(&self, key: RangeKey, epoch: Epoch, seen: Option<Offset>, done: Done<Offset>);

    /// The end that a seal gave was not made durable by the placement driver. A server that has made it durable itself
    /// stays with it.
    fn abandon_seal(&self, key: RangeKey, end: AbandonedEnd);

    /// The end that a seal gave is durable, and the next range is on another server: readers may see the end. A server
    /// that cannot be reached learns of it when it asks what belongs to it.
    fn publish_end(&self, key: RangeKey, end: Offset);

    /// The server holds these ranges of the stream, whose settings may have changed; durable when this is done.
    fn sync(&self, stream: StreamId, facts: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>);

    /// The stream begins at `start`.
    fn trim(&self, stream: StreamId, start: Offset, done: Done<()>);

    /// The streams are gone.
    fn delete(&self, streams: Vec<StreamId>, done: Done<()>);

    /// Where readers of these open ranges stand; `None` for one that the server does not hold.
    fn next_offsets(&self, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>);
}

/// What is known about an end that was not made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbandonedEnd {
    /// It is not on the placement driver's disk: the range may take appends again.
    NotStored,
    /// It may be on the disk, and a restart finds out: records behind it would be lost then.
    Unknown,
}

/// The range servers that a placement driver can reach.
pub(crate) trait RangeServers: Debug + Send + Sync {
    /// The server is to be dialled here from now on.
    fn locate(&self, server: ServerId, address: &str);

    /// The server; `None` if it never said where it is.
    fn server(&self, server: ServerId) -> Option<Arc<dyn RangeServer>>;

    /// Whether a deleted stream may be forgotten: no start of the placement driver's directory could find anything of it.
    /// A range server with a directory of its own remembers for itself what it was told to delete.
    fn may_forget(&self, stream: StreamId) -> bool;
}

/// The range server, where it is up and can be reached.
pub(super) fn reach(
    servers: &dyn RangeServers,
    registry: &Mutex<Registry>,
    server: ServerId,
) -> Result<Arc<dyn RangeServer>, Refusal> {
    let unavailable = |message| Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message);
    if !registry.lock().is_up(server, Instant::now()) {
        return Err(unavailable(format!("range server {server} is down")));
    }
    let found = servers.server(server);
    found.ok_or_else(|| unavailable(format!("range server {server} never said where it is")))
}

/// There are no range servers in other processes.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct NoOthers;

#[cfg(test)]
impl RangeServers for NoOthers {
    fn locate(&self, _: ServerId, _: &str) {}

    fn server(&self, _: ServerId) -> Option<Arc<dyn RangeServer>> {
        None
    }

    fn may_forget(&self, _: StreamId) -> bool {
        true
    }
}
