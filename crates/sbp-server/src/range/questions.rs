//! Questions to the placement driver about streams of which no range is here.

use std::sync::Arc;
use std::time::Instant;

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

    /// Whether the name of a stream has to be asked for, because no range of it is here. Then the placement driver is being
    /// asked.
    pub(crate) fn ask_for_name(&self, stream: StreamId) -> bool {
        let begins = {
            let mut ranges = self.hub.ranges.lock();
            if !ranges.worth_asking(stream) || ranges.elsewhere.name(stream, Instant::now()).is_some() {
                return false;
            }
            ranges.begin_asking(stream)
        };
        if begins {
            self.ask(stream);
        }
        true
    }

    /// The placement driver has said what a stream is called; `None`: nothing, or there is no such stream.
    pub(crate) fn note_name(&self, stream: StreamId, name: Option<Arc<str>>) {
        self.hub.ranges.lock().elsewhere.note(stream, name, Instant::now());
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
