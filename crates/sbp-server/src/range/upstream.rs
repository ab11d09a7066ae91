//! What a range server has done for it in its role: its placement driver is asked, and what it has found out is made durable.

use std::fmt::Debug;

use sbp_types::{Position, RangeKey, StreamId};

/// The role of a range server in a process of its own.
pub(crate) trait Upstream: Debug + Send + Sync {
    /// Asks which ranges of a stream belong on this server, and has them [installed](super::RangeServer::install). Must
    /// not block. Calls [`RangeServer::answered`](super::RangeServer::answered) within bounded time, also if the
    /// question fails.
    fn ask(&self, stream: StreamId);

    /// Makes durable that another server has something else of a range from this place on than this one. Blocks until that is so, or
    /// cannot be.
    fn keep_dispute(&self, key: RangeKey, at: Position);
}
