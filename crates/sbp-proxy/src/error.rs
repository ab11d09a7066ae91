//! Why a proxy does not start.

use std::io;

use sbp_transport::ListenError;

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// Nothing can be accepted at the address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Other machines could connect, and nobody said that they may.
    #[error(
        "refusing to listen on {address}: other machines could connect, and there is no authentication; listen on \
         127.0.0.1, or allow it with insecure_listen"
    )]
    InsecureListen {
        /// The address asked for.
        address: String,
    },
    /// The system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}
