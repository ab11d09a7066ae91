//! The handle on a running server.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::{ServerConfig, ServerFailure, ServerStats, ShutdownError, StartError};

/// A running server. Dropping it shuts it down.
#[derive(Debug)]
pub struct Server {
    address: String,
    local: SocketAddr,
}

impl Server {
    /// Opens the data directory, recovers what is in it, and listens.
    ///
    /// Blocks until the server is ready to serve; the work happens on threads of its own.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what is in the way and what to do about it. Nothing is left running.
    pub fn start(config: ServerConfig) -> Result<Self, StartError> {
        Err(StartError::BadAddress {
            address: config.listen,
            reason: "not served yet".to_owned(),
        })
    }

    /// `host:port` for clients: the advertised address, or the one listened on.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The socket address listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Why the server refuses appends, once the log or the metadata store has failed.
    #[must_use]
    pub fn error(&self) -> Option<Arc<ServerFailure>> {
        None
    }

    /// Blocks until the server has failed (then why) or was shut down by another thread (then `None`).
    #[must_use]
    pub fn wait_for_failure(&self) -> Option<Arc<ServerFailure>> {
        None
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        ServerStats::default()
    }

    /// The descriptors that the server holds now: listener, connections, lock file. Takes no lock, so that a child
    /// process can call it right after a fork, to close what it inherited.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// Ends the server: tells the peers, answers what was started, syncs, writes a checkpoint and the clean mark, and
    /// deletes a temporary directory. Blocks until all of it is done; doing it again does nothing.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] when the log could not be closed cleanly; nothing acknowledged is lost by that.
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        Ok(())
    }
}
