//! Requesters whose fetches wait for a stream to grow.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_types::StreamId;
use smallvec::SmallVec;

use super::requester::Requester;

/// Requesters with fetches that wait, by stream.
///
/// A registration is used once: a requester that is woken and goes on waiting registers again. So it is woken once for
/// a synced group, however many of its fetches wait.
#[derive(Debug, Default)]
pub(crate) struct WaitingFetches {
    by_stream: HashMap<StreamId, SmallVec<[Arc<dyn Requester>; 2]>>,
}

impl WaitingFetches {
    /// Wakes this requester when the stream grows. It must not register a stream again before it is woken.
    pub(crate) fn register(&mut self, stream: StreamId, requester: &Arc<dyn Requester>) {
        self.by_stream.entry(stream).or_default().push(Arc::clone(requester));
    }

    /// Removes a registration of a requester that is gone.
    pub(crate) fn forget(&mut self, stream: StreamId, requester: &Arc<dyn Requester>) {
        if let Some(requesters) = self.by_stream.get_mut(&stream) {
            requesters.retain(|waiting| !Arc::ptr_eq(waiting, requester));
            if requesters.is_empty() {
                self.by_stream.remove(&stream);
            }
        }
    }

    /// Takes out all requesters that wait for the stream.
    pub(crate) fn take(&mut self, stream: StreamId) -> SmallVec<[Arc<dyn Requester>; 2]> {
        self.by_stream.remove(&stream).unwrap_or_default()
    }
}
