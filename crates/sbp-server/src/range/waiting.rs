//! Who waits for a stream to grow.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_types::StreamId;
use smallvec::SmallVec;

use crate::connection::Port;

/// Connections with fetches that wait, by stream.
///
/// An entry is used once: a connection that is woken and goes on waiting registers again. So a connection is woken once
/// for a synced group, however many of its fetches wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_stream: HashMap<StreamId, SmallVec<[Arc<Port>; 2]>>,
}

impl Waiting {
    /// Wakes this connection when the stream grows. The caller registers once until it is woken.
    pub(crate) fn register(&mut self, stream: StreamId, port: &Arc<Port>) {
        self.by_stream.entry(stream).or_default().push(Arc::clone(port));
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, stream: StreamId, port: &Arc<Port>) {
        if let Some(ports) = self.by_stream.get_mut(&stream) {
            ports.retain(|waiting| !Arc::ptr_eq(waiting, port));
            if ports.is_empty() {
                self.by_stream.remove(&stream);
            }
        }
    }

    /// Everybody who waits for the stream; nobody waits afterwards.
    pub(crate) fn take(&mut self, stream: StreamId) -> SmallVec<[Arc<Port>; 2]> {
        self.by_stream.remove(&stream).unwrap_or_default()
    }
}
