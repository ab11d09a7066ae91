//! Where a connection comes from.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who is at the other end of a connection, as far as its socket tells.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Where the peer's socket is.
    pub(crate) address: SocketAddr,
    /// Who the peer is by its certificate, which an authority that this server trusts has issued: the first alternative name
    /// that is a DNS name, else a URI, else an e-mail address. `None` without TLS, or where no certificate was asked for.
    pub(crate) peer_name: Option<Arc<str>>,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer_name {
            Some(name) => write!(formatter, "{name:?} at {}", self.address),
            None => write!(formatter, "{}", self.address),
        }
    }
}
