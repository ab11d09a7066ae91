//! The id and address of this server, as it tells them to others.

use sbp_messages::RangeServer as RangeServerName;
use sbp_types::ServerId;

/// Whether a range server of this version replicates ranges. It then says so in HEARTBEAT, and gets ranges that are to
/// have several replicas.
pub(crate) const SPEAKS_REPLICATION: bool = true;

/// The id and address of this server.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Its id as a range server; `None` for a process that is only a placement driver.
    pub(crate) server_id: Option<ServerId>,
    /// The address, `host:port`, that clients are told to dial.
    pub(crate) advertise: String,
}

impl Identity {
    /// The range server as messages name it.
    pub(crate) fn range_server(&self) -> Option<RangeServerName> {
        self.server_id.map(|server_id| RangeServerName {
            server_id,
            advertise_addr: self.advertise.clone(),
            ..sbp_messages::RangeServer::default()
        })
    }
}
