//! Why a proxy could not be started.

use std::io;

use sbp_transport::ListenError;

/// Why a proxy could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Other machines could connect, and `insecure_listen` is not set.
    #[error(
        "refusing to listen on {address}: other machines could connect, and there is no authentication; listen on \
         127.0.0.1, or allow it with insecure_listen"
    )]
    InsecureListen {
        /// The address asked for.
        address: String,
    },
    /// The operating system returned an error.
    #[error("cannot {what}: {source}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}
