//! How a range server in a process of its own asks its placement driver about streams that it does not know.

use std::fmt::Debug;

use sbp_types::StreamId;

/// The connection of a range server to its placement driver.
pub(crate) trait Upstream: Debug + Send + Sync {
    /// Asks which ranges of a stream belong on this server, and has them [installed](super::RangeServer::install). Must
    /// not block. Calls [`RangeServer::answered`](super::RangeServer::answered) within bounded time, also if the
    /// question fails.
    fn ask(&self, stream: StreamId);
}
