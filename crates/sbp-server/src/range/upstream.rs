//! Whom a range server asks that knows only its own ranges.

use std::fmt::Debug;
use std::sync::Arc;

use sbp_types::StreamId;

use super::letters::Letters;
use super::server::{RangeServer, Ranges};

/// The way to the placement driver.
pub(crate) trait Upstream: Debug + Send + Sync {
    /// Asks which ranges of a stream belong here, and has them [installed](RangeServer::install). Must not block; ends,
    /// whatever comes of it and within bounded time, with [`RangeServer::answered`].
    fn ask(&self, stream: StreamId);
}

impl Ranges {
    /// Whether somebody else may know what this server does not know about a stream.
    pub(crate) fn worth_asking(&self, stream: StreamId) -> bool {
        self.has_upstream && self.table.is_unknown(stream)
    }

    /// Whether the answer to a question about the stream is still to come.
    pub(crate) fn is_asking(&self, stream: StreamId) -> bool {
        self.asking.contains(&stream)
    }

    /// Notes that a stream is asked about. False where that is under way already.
    pub(crate) fn begin_asking(&mut self, stream: StreamId) -> bool {
        self.asking.insert(stream)
    }
}

impl RangeServer {
    /// Whom to ask about streams that are not here. Only once.
    pub(crate) fn set_upstream(&self, upstream: Arc<dyn Upstream>) {
        if self.upstream.set(upstream).is_ok() {
            self.hub.ranges.lock().has_upstream = true;
        }
    }

    /// Asks, after [`Ranges::begin_asking`] and without its lock.
    pub(crate) fn ask(&self, stream: StreamId) {
        if let Some(upstream) = self.upstream.get() {
            upstream.ask(stream);
        }
    }

    /// A question has had its answer, or will not get one: who waited for it is judged by what is known now.
    pub(crate) fn answered(&self, stream: StreamId) {
        let mut letters = Letters::default();
        let queued = {
            let mut ranges = self.hub.ranges.lock();
            ranges.asking.remove(&stream);
            ranges.wake(stream, &mut letters);
            self.judge_parked(&mut ranges, stream, &mut letters)
        };
        self.post(letters, queued);
    }
}
