//! The parts of a server that all connections share.

use std::sync::Arc;
use std::time::Duration;

use sbp_log::Clock;
use sbp_messages::{ClientRole, ErrorCode};
use sbp_transport::LogRateLimiter;
use sbp_types::StreamId;

use crate::access::{Access, Audit, Moment};
use crate::cluster_id::Learned;
use crate::etcd::Campaign;
use crate::failure::Health;
use crate::identity::Identity;
use crate::offer::Offer;
use crate::placement::PlacementDriver;
use crate::range::{RangeServer, Readers};
use crate::refusal::Refusal;
use crate::refusals::Refusals;
use crate::roles::RangeRole;
use crate::stats::Counters;

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Bytes of answers that may wait for the peer to take them.
    pub(crate) answer_bytes: usize,
    /// FETCHes that may wait for data.
    pub(crate) waits: usize,
    /// The timeout of requests that name none.
    pub(crate) default_timeout: Duration,
    /// The grace that a GOAWAY announces when the server shuts down.
    pub(crate) shutdown_grace: Duration,
}

/// The roles of the server and what its connections need to call them.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) identity: Identity,
    /// Who may do what; `None`: everybody everything.
    pub(crate) access: Option<Arc<Access>>,
    /// The file that tells who changed what; `None`: nobody keeps one.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) offer: Offer,
    /// The cluster's id, once it is known.
    pub(crate) cluster: Learned,
    pub(crate) limits: ConnectionLimits,
    /// `None` in a process that is only a range server.
    pub(crate) placement: Option<Arc<PlacementDriver>>,
    /// What has that lead, or not, where there are several placement drivers.
    pub(crate) campaign: Option<Campaign>,
    /// `None` in a process that is only a placement driver.
    pub(crate) ranges: Option<Arc<RangeServer>>,
    /// The link to the placement drivers, where the range server is apart from them, or speaks with the one in this process as
    /// if it were.
    pub(crate) range_role: Option<Arc<RangeRole>>,
    /// The threads that read from the disk for [`Node::ranges`].
    pub(crate) readers: Option<Readers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<Counters>,
    /// Warnings about peers that break the protocol.
    pub(crate) faults: LogRateLimiter,
    pub(crate) refusals: Refusals,
}

impl Node {
    /// The name of a stream, if this process knows the stream and it has one.
    pub(crate) fn name_of(&self, stream: StreamId) -> Option<Arc<str>> {
        self.with_name(stream, |name| name.map(Arc::from))
    }

    /// What `take` makes of the name that [`Node::name_of`] copies. It is called under a lock.
    pub(crate) fn with_name<T>(&self, stream: StreamId, take: impl FnOnce(Option<&str>) -> T) -> T {
        match (self.metadata(), &self.ranges) {
            (Some(placement), _) => placement.read(|state| take(state.name_of(stream))),
            (None, Some(ranges)) => {
                let ranges = ranges.hub.ranges.lock();
                take(ranges.name_of(stream))
            }
            (None, None) => take(None),
        }
    }

    /// The placement driver in this process, where it knows the streams and ranges of the cluster; else this process knows those
    /// that are on it, if it is a range server.
    pub(crate) fn metadata(&self) -> Option<&Arc<PlacementDriver>> {
        let knows = |driver: &&Arc<PlacementDriver>| self.range_role.is_none() || driver.check_leads().is_ok();
        self.placement.as_ref().filter(knows)
    }

    /// What serves a request to the range server that a placement driver could be asked too. Where both roles are in this
    /// process, the range server does what placement drivers ask, and the placement driver what all others do.
    pub(crate) fn range_role_for(&self, asker: ClientRole) -> Option<&Arc<RangeRole>> {
        let role = self.range_role.as_ref();
        role.filter(|_| self.placement.is_none() || asker == ClientRole::PLACEMENT_DRIVER)
    }

    /// The time now, as the file of names tells it.
    pub(crate) fn moment(&self) -> Moment {
        Moment::from_millis(self.clock.now().0)
    }

    /// The placement driver in this process, which may answer about streams and ranges.
    ///
    /// # Errors
    ///
    /// This process is only a range server and does not serve the operation; or another placement driver leads.
    pub(crate) fn placement(&self) -> Result<&PlacementDriver, Refusal> {
        let placement = self.any_placement()?;
        placement.check_leads()?;
        Ok(placement)
    }

    /// The placement driver in this process, whether it leads or not.
    ///
    /// # Errors
    ///
    /// This process is only a range server and does not serve the operation.
    pub(crate) fn any_placement(&self) -> Result<&PlacementDriver, Refusal> {
        self.placement.as_deref().ok_or_else(|| {
            let message = "this is a range server; ask its placement driver";
            Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message)
        })
    }

    /// The range server in this process.
    ///
    /// # Errors
    ///
    /// This process is only a placement driver and does not serve the operation.
    pub(crate) fn ranges(&self) -> Result<&Arc<RangeServer>, Refusal> {
        self.ranges.as_ref().ok_or_else(|| {
            let message = "this is a placement driver; ask the range server that holds the range";
            Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message)
        })
    }
}
