//! FETCH requests on their way, and their answers as they arrive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_messages::FetchRequest;
use tokio::sync::{mpsc, oneshot};

use crate::channel::Channel;
use crate::channel::command::{Command, Fetch, FetchEvent};
use crate::channel::credit::Charge;
use crate::channel::header::encoded;
use crate::clock::now;
use crate::failure::Failure;
use crate::pool::ConnectionPool;
use crate::read::answer::{Part, parts};
use crate::read::plan::{self, ServerRequest, Wanted};

/// Asks each server for what it has, as far as is known; see [`plan::by_server`].
pub(super) fn by_server(
    pool: &ConnectionPool,
    wanted: impl IntoIterator<Item = (usize, Wanted)>,
    most: usize,
) -> Vec<ServerRequest<Arc<Channel>>> {
    let route = |wanted: &Wanted| pool.for_fetch(wanted.stream, wanted.from);
    plan::by_server(wanted, route, Arc::ptr_eq, most)
}

/// Sends a FETCH whose answers go to a sender under a tag. `begins` gets the header of the first large one before its
/// payload is here.
pub(super) fn post_fetch(
    channel: &Arc<Channel>,
    request: &FetchRequest,
    (timeout, has_elsewhere): (Duration, bool),
    charge: Charge,
    (tag, events): (u32, mpsc::UnboundedSender<FetchEvent>),
    begins: Option<oneshot::Sender<Bytes>>,
) {
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = now() + wait + timeout;
    channel.post(Command::Fetch(Box::new(Fetch {
        header: encoded(request),
        deadline,
        has_elsewhere,
        waits: !wait.is_zero(),
        charge,
        tag,
        events,
        begins,
    })));
}

/// A frame of an answer, taken apart.
#[derive(Debug)]
pub(super) struct Opened {
    /// The frame's results, each with the place of what it answers.
    pub(super) parts: Vec<(usize, Part)>,
    /// Credit for what it holds.
    pub(super) charge: Charge,
    /// The pause that it asks for.
    pub(super) throttle_ms: i32,
    pub(super) is_last: bool,
    pub(super) endpoint: Arc<str>,
}

/// Takes apart what came of a request for these places. After a failure nothing more comes.
pub(super) fn open(places: &[usize], event: FetchEvent) -> Result<Opened, Failure> {
    let (frame, charge, is_last, endpoint) = match event {
        FetchEvent::Failed { failure, .. } => return Err(failure),
        FetchEvent::Frame {
            frame,
            charge,
            end,
            endpoint,
            ..
        } => (frame, charge, end, endpoint),
    };
    let (parts, throttle_ms) = parts(frame, places.len()).map_err(|cause| Failure::new(cause, Some(&endpoint)))?;
    let placed = |part: Part| Some((*places.get(part.index)?, part));
    Ok(Opened {
        parts: parts.into_iter().filter_map(placed).collect(),
        charge,
        throttle_ms,
        is_last,
        endpoint,
    })
}
