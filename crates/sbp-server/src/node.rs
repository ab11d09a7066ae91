//! What all connections of a server share.

use std::sync::Arc;
use std::time::Duration;

use sbp_log::Clock;
use sbp_messages::ErrorCode;

use crate::failure::Health;
use crate::identity::Identity;
use crate::log_rate_limiter::LogRateLimiter;
use crate::offer::Offer;
use crate::placement::PlacementDriver;
use crate::range::{RangeServer, Readers};
use crate::refusal::Refusal;
use crate::roles::RangeRole;
use crate::stats::Counters;

/// What a connection may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Bytes of answers that lie here until the peer takes them.
    pub(crate) answer_bytes: usize,
    /// FETCHes that wait.
    pub(crate) waits: usize,
    /// For requests that name no timeout.
    pub(crate) default_timeout: Duration,
    /// What a peer is told when the server goes down.
    pub(crate) shutdown_grace: Duration,
}

/// The server as its connections see it: the roles it has, called directly.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) identity: Identity,
    pub(crate) offer: Offer,
    pub(crate) limits: ConnectionLimits,
    /// Absent where only ranges are served.
    pub(crate) placement: Option<PlacementDriver>,
    /// Absent where only placement is decided.
    pub(crate) ranges: Option<Arc<RangeServer>>,
    /// What a range server without a placement driver in the same process has instead of one.
    pub(crate) range_role: Option<Arc<RangeRole>>,
    /// The threads that read for [`Node::ranges`].
    pub(crate) readers: Option<Readers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<Counters>,
    /// Warnings about peers that break the protocol.
    pub(crate) faults: LogRateLimiter,
}

impl Node {
    /// The placement driver in this process.
    ///
    /// # Errors
    ///
    /// The operation is not served here: this is a range server alone.
    pub(crate) fn placement(&self) -> Result<&PlacementDriver, Refusal> {
        self.placement.as_ref().ok_or_else(|| {
            let message = "this is a range server; ask its placement driver";
            Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message)
        })
    }

    /// The range server in this process.
    ///
    /// # Errors
    ///
    /// The operation is not served here: this is a placement driver alone.
    pub(crate) fn ranges(&self) -> Result<&Arc<RangeServer>, Refusal> {
        self.ranges.as_ref().ok_or_else(|| {
            let message = "this is a placement driver; ask the range server that holds the range";
            Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message)
        })
    }
}
