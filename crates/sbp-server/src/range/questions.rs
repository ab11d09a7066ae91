//! Questions to the placement driver about streams of which no range is here.

use std::sync::Arc;

use sbp_types::StreamId;

use super::notifications::Notifications;
use super::server::RangeServer;
use super::upstream::Upstream;

impl RangeServer {
    /// Sets the connection to the placement driver. Only the first call has an effect.
    pub(crate) fn set_upstream(&self, upstream: Arc<dyn Upstream>) {
        if self.upstream.set(upstream).is_ok() {
            self.hub.ranges.lock().has_upstream = true;
        }
    }

    /// Asks the placement driver about a stream. Call [`Ranges::begin_asking`](super::Ranges::begin_asking) before, and
    /// release its lock.
    pub(crate) fn ask(&self, stream: StreamId) {
        if let Some(upstream) = self.upstream.get() {
            upstream.ask(stream);
        }
    }

    /// The placement driver has answered about the stream, or will not: judges what waited for the answer by what is
    /// known now.
    pub(crate) fn answered(&self, stream: StreamId) {
        let mut notifications = Notifications::default();
        let queued = {
            let mut ranges = self.hub.ranges.lock();
            ranges.asking.remove(&stream);
            ranges.wake(stream, &mut notifications);
            self.judge_parked(&mut ranges, stream, &mut notifications)
        };
        self.post(notifications, queued);
    }
}
