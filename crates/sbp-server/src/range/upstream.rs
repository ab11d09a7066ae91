//! How a range server in a process of its own asks its placement driver about streams that it does not know.

use std::fmt::Debug;

use sbp_types::StreamId;

/// The way to the placement driver.
pub(crate) trait Upstream: Debug + Send + Sync {
    /// Asks which ranges of a stream belong here, and has them [installed](super::RangeServer::install). Must not block;
    /// ends, whatever comes of it and within bounded time, with [`RangeServer::answered`](super::RangeServer::answered).
    fn ask(&self, stream: StreamId);
}
