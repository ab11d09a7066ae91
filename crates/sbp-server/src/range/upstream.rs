//! Whom a range server asks that knows only its own ranges.

use std::fmt::Debug;
use std::sync::Arc;

use sbp_types::StreamId;

use super::letters::Letters;
use super::server::RangeServer;

/// The way to the placement driver.
pub(crate) trait Upstream: Debug + Send + Sync {
    /// Asks which ranges of a stream belong here, and has them [installed](RangeServer::install). Must not block; ends,
    /// whatever comes of it and within bounded time, with [`RangeServer::answered`].
    fn ask(&self, stream: StreamId);
}

impl RangeServer {
    /// Whom to ask about streams that are not here. Only once.
    pub(crate) fn set_upstream(&self, upstream: Arc<dyn Upstream>) {
        let _first_counts = self.upstream.set(upstream);
    }

    /// A question has had its answer, or will not get one: who waited for it is judged by what is known now.
    pub(crate) fn answered(&self, stream: StreamId) {
        let mut letters = Letters::default();
        {
            let mut ranges = self.hub.ranges.lock();
            ranges.asking.remove(&stream);
            ranges.wake(stream, &mut letters);
            self.judge_parked(&mut ranges, stream, &mut letters);
        }
        letters.post();
    }
}
