//! FETCH requests on their way.

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

/// Sends a FETCH whose answers go to a sender under a tag. `begins` gets the header of the first large one before its
/// payload is here.
pub(crate) fn post_fetch(
    channel: &Arc<Channel>,
    request: &FetchRequest,
    timeout: Duration,
    charge: Charge,
    (tag, events): (u32, mpsc::UnboundedSender<FetchEvent>),
    begins: Option<oneshot::Sender<Bytes>>,
) {
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = now() + wait + timeout;
    channel.post(Command::Fetch(Box::new(Fetch {
        header: encoded(request),
        deadline,
        charge,
        tag,
        events,
        begins,
    })));
}
