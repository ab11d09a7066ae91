//! Requesters whose fetches wait for a stream to grow.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_types::StreamId;
use smallvec::SmallVec;

use super::requester::Requester;

/// Connections with fetches that wait, by stream.
///
/// An entry is used once: a connection that is woken and goes on waiting registers again. So a connection is woken once
/// for a synced group, however many of its fetches wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_stream: HashMap<StreamId, SmallVec<[Arc<dyn Requester>; 2]>>,
}

impl Waiting {
    /// Wakes this connection when the stream grows. The caller registers once until it is woken.
    pub(crate) fn register(&mut self, stream: StreamId, requester: &Arc<dyn Requester>) {
        self.by_stream.entry(stream).or_default().push(Arc::clone(requester));
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, stream: StreamId, requester: &Arc<dyn Requester>) {
        if let Some(requesters) = self.by_stream.get_mut(&stream) {
            requesters.retain(|waiting| !Arc::ptr_eq(waiting, requester));
            if requesters.is_empty() {
                self.by_stream.remove(&stream);
            }
        }
    }

    /// All requesters that wait for the stream; none is registered afterwards.
    pub(crate) fn take(&mut self, stream: StreamId) -> SmallVec<[Arc<dyn Requester>; 2]> {
        self.by_stream.remove(&stream).unwrap_or_default()
    }
}
