//! Who this server is, as it tells others.

use sbp_messages::RangeServer as RangeServerName;
use sbp_types::ServerId;

/// Who this server is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// As a range server; a placement driver alone has no number.
    pub(crate) server_id: Option<ServerId>,
    /// Where clients are told to dial, `host:port`.
    pub(crate) advertise: String,
}

impl Identity {
    /// The range server as messages name it.
    pub(crate) fn range_server(&self) -> Option<RangeServerName> {
        self.server_id.map(|server_id| RangeServerName {
            server_id,
            advertise_addr: self.advertise.clone(),
        })
    }
}
