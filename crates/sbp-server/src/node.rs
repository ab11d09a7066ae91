//! What all connections of a server share.

use std::sync::Arc;
use std::time::Duration;

use sbp_log::Clock;
use sbp_types::ServerId;

use crate::connection::Offer;
use crate::failure::Health;
use crate::placement::PlacementDriver;
use crate::range::RangeServer;
use crate::readers::Readers;
use crate::stats::Counters;

/// Who this server is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) server_id: ServerId,
    /// Where clients are told to dial, `host:port`.
    pub(crate) advertise: String,
}

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

/// The server as its connections see it: both roles, called directly.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) identity: Identity,
    pub(crate) offer: Offer,
    pub(crate) limits: ConnectionLimits,
    pub(crate) placement: PlacementDriver,
    pub(crate) ranges: Arc<RangeServer>,
    pub(crate) readers: Readers,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<Counters>,
}
