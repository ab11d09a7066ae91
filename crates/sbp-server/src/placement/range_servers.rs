//! Range servers as a placement driver sees them: one trait for those in the same process and in others.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_replication::Term;
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId, StreamId};

use super::registry::Registry;
use crate::range::{FencedEnd, HeldRange, StreamFacts};
use crate::refusal::{Done, Refusal};

/// One range server.
///
/// A placement driver tells it what is durable: which ranges it holds, where a stream begins, that a stream is deleted.
/// It asks for what only the range server knows: where a range ends. A range with several replicas is on several such
/// servers, each told and asked separately.
///
/// No method blocks. Each `done` is called within bounded time, on any thread, because an operation waits for it, and
/// the stream's next operation behind that. For a server that does not answer the result is
/// [`PD_NO_AVAILABLE_RS`](sbp_messages::ErrorCode::PD_NO_AVAILABLE_RS).
pub(crate) trait RangeServer: Debug + Send + Sync {
    /// Has the range take no more appends, and gives its end once everything that it accepted is synced. `seen` is the
    /// end that the requester expects; a server that makes the end durable itself does so only if the two agree. The
    /// caller compares them too, and then says what becomes of the end: [`sync`](Self::sync),
    /// [`publish_end`](Self::publish_end) or [`abandon_seal`](Self::abandon_seal).
    fn seal(&self, key: RangeKey, epoch: Epoch, seen: Option<Offset>, done: Done<Offset>);

    /// Nobody waits any more for the seals that the server has not answered: those that it has not been asked for yet, it is not.
    fn give_up_seals(&self) {}

    /// Fences the server's copy of a range that others hold too, durably, and says where the copy ends.
    fn fence(&self, key: RangeKey, epoch: Epoch, done: Done<FencedEnd>);

    /// Has the server send a range that is being sealed, up to `end`, to servers that lack some of it.
    fn write_back(&self, key: RangeKey, epoch: Epoch, to: &[ServerId], end: Position, done: Done<()>);

    /// The placement driver did not make the end of a sealed range durable. A server that has made it durable itself
    /// keeps it.
    fn abandon_seal(&self, key: RangeKey, end: AbandonedEnd);

    /// The end of a sealed range is durable and readers may see it; used where the next range is not on this server. A
    /// server that cannot be reached learns of the end when it asks which ranges belong to it.
    fn publish_end(&self, key: RangeKey, end: Offset);

    /// The server holds these ranges of the stream, with these settings. `done` is called when the server has made that
    /// durable.
    fn sync(&self, stream: StreamId, facts: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>);

    /// The stream begins at `start` from now on.
    fn trim(&self, stream: StreamId, start: Offset, done: Done<()>);

    /// The streams are deleted. `done` is told whether the server has nothing of them any more, also after restarts.
    fn delete(&self, streams: Vec<StreamId>, done: Done<bool>);

    /// The server is to remove what it has of these ranges of a stream, which others have. `done` is told of which of them it still
    /// has something, also after restarts: it is removed in time.
    fn let_go(&self, stream: StreamId, ranges: Vec<HeldRange>, done: Done<Vec<RangeKey>>);

    /// Whether nobody listens at the server's address: dialling it is refused. What else happens says nothing.
    fn is_refused(&self, done: Done<bool>);

    /// Whether the server answers anything within a second.
    fn answers(&self, done: Done<bool>);

    /// The confirmed ends of these open ranges; `None` for a range that the server does not hold.
    fn next_offsets(&self, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>);
}

/// What is known about an end that the placement driver did not make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbandonedEnd {
    /// The end is not on the placement driver's disk, so the range may take appends again.
    NotStored,
    /// The end may be on the placement driver's disk, which only a restart can tell. The range must take no appends: if
    /// the end is there, records behind it would be lost.
    Unknown,
}

/// The range servers that a placement driver can reach.
pub(crate) trait RangeServers: Debug + Send + Sync {
    /// Orders carry this term from now on.
    fn lead_in(&self, term: Term) {
        let _in_this_process = term;
    }

    /// Sets the address at which the server is dialled from now on.
    fn locate(&self, server: ServerId, address: &str);

    /// The range server with this id; `None` if it never reported its address.
    fn server(&self, server: ServerId) -> Option<Arc<dyn RangeServer>>;

    /// Whether a deleted stream may be forgotten, because no restart on the placement driver's directory could find
    /// records of it. Range servers with directories of their own remember by themselves what they were told to delete.
    fn may_forget(&self, stream: StreamId) -> bool;
}

/// The range server with this id, if it is up and its address is known.
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

/// No range servers in other processes.
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
