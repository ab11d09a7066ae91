//! Asking the placement driver about streams that are not here.

use std::sync::Arc;

use sbp_types::StreamId;

use super::notifications::Notifications;
use super::server::RangeServer;
use super::upstream::Upstream;

impl RangeServer {
    /// Whom to ask about streams that are not here. Only once.
    pub(crate) fn set_upstream(&self, upstream: Arc<dyn Upstream>) {
        if self.upstream.set(upstream).is_ok() {
            self.hub.ranges.lock().has_upstream = true;
        }
    }

    /// Asks, after [`Ranges::begin_asking`](super::Ranges::begin_asking) and without its lock.
    pub(crate) fn ask(&self, stream: StreamId) {
        if let Some(upstream) = self.upstream.get() {
            upstream.ask(stream);
        }
    }

    /// A question has had its answer, or will not get one: who waited for it is judged by what is known now.
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
