//! The handle on a running server.

use std::fmt;
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use sbp_locks::Mutex;

use crate::config::ServerConfig;
use crate::error::{ShutdownError, StartError};
use crate::failure::{Health, ServerFailure};
use crate::runtime::ServerRuntime;
use crate::stats::ServerStats;
use sbp_transport::{Descriptors, ServerTls, TlsFileError};

/// A running server. Dropping it shuts it down.
pub struct Server {
    address: String,
    local: SocketAddr,
    plain: Option<SocketAddr>,
    tls: Option<Arc<ServerTls>>,
    health: Arc<Health>,
    descriptors: Arc<Descriptors>,
    /// The process that started the server. A forked process inherits this value but not the server's threads.
    process: u32,
    /// Taken out by `shutdown`, and never dropped in place: a forked child must not run its destructor.
    runtime: ManuallyDrop<Mutex<Option<ServerRuntime>>>,
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
        // On a thread of its own: a failed start drops a runtime, which is not allowed inside the caller's runtime.
        let starting = std::thread::Builder::new()
            .name("sbp-start".to_owned())
            .spawn(move || ServerRuntime::start(&config));
        let starting = starting.map_err(StartError::io("start a thread"))?;
        let runtime = starting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Self {
            address: runtime.node.identity.advertise.clone(),
            local: runtime.local,
            plain: runtime.plain,
            tls: runtime.tls.clone(),
            health: Arc::clone(&runtime.node.health),
            descriptors: Arc::clone(&runtime.descriptors),
            process: std::process::id(),
            runtime: ManuallyDrop::new(Mutex::new(Some(runtime))),
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

    /// The second socket address listened on, which is without TLS, where one was asked for.
    #[must_use]
    pub fn plain_addr(&self) -> Option<SocketAddr> {
        self.plain
    }

    /// Where a process of this machine reaches it without TLS; `None` where it speaks nothing else.
    #[must_use]
    pub fn address_inside(&self) -> Option<SocketAddr> {
        let mut address = match self.has_tls() {
            true => self.plain?,
            false => self.local,
        };
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Some(address)
    }

    /// Whether [`Server::address`] speaks TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The server's certificate in words: whom it names, who issued it, and from when to when it counts. `None` without
    /// TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<String> {
        self.tls.as_ref().map(|tls| tls.certificate())
    }

    /// Reads the files of certificates and keys again where they have changed; connections stay. The server looks at them by
    /// itself whenever somebody connects, at most once a second.
    ///
    /// # Errors
    ///
    /// [`TlsFileError`] names the file that cannot be used; the certificates from before stay in use.
    pub fn reload_certificates(&self) -> Result<(), TlsFileError> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.reload())
    }

    /// Reads again what the server was given in files and looks at while it runs: certificates, who is known, keys of OAuth
    /// tokens. It does so by itself too, within a second or two of each change. Returns what there was to read; what is wrong
    /// with a file is logged, and what was read before counts on.
    #[must_use]
    pub fn reload(&self) -> Vec<&'static str> {
        let mut read = Vec::new();
        if self.tls.is_some() {
            read.push("certificates");
            // Logged where they are read.
            let _ = self.reload_certificates();
        }
        let rights = self.runtime.lock().as_ref().and_then(ServerRuntime::rights);
        if let Some(rights) = rights {
            read.extend(rights.reload());
        }
        read
    }

    /// Why the server refuses appends, once the log or the metadata store has failed.
    #[must_use]
    pub fn error(&self) -> Option<Arc<ServerFailure>> {
        self.health.failure()
    }

    /// Blocks until the server has failed, and returns why, or until another thread has shut it down: `None`.
    #[must_use]
    pub fn wait_for_failure(&self) -> Option<Arc<ServerFailure>> {
        self.health.wait()
    }

    /// Counters; all zero after a shutdown.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.runtime
            .lock()
            .as_ref()
            .map(ServerRuntime::stats)
            .unwrap_or_default()
    }

    /// The descriptors that the server holds now: listener, connections, lock file. Takes no lock, so that a child
    /// process can call it right after a fork, to close what it inherited.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.descriptors.snapshot()
    }

    /// Ends the server: tells the peers, answers what was started, syncs, writes a checkpoint and the clean mark, and
    /// deletes a temporary directory. Blocks until all of it is done. Further calls do nothing, nor do calls in a
    /// process that was forked from the server's.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] when the log could not be closed cleanly; nothing acknowledged is lost by that.
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        if std::process::id() != self.process {
            return Ok(());
        }
        let Some(runtime) = self.runtime.lock().take() else {
            return Ok(());
        };
        // On a thread of its own: a runtime must not be dropped inside another one, where the caller may be.
        let ended = std::thread::Builder::new()
            .name("sbp-shutdown".to_owned())
            .spawn(move || runtime.shutdown());
        let result = match ended.map(std::thread::JoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(_panic)) => Err(ShutdownError::Log {
                reason: "a thread panicked".to_owned(),
            }),
            Err(error) => Err(ShutdownError::Log {
                reason: error.to_string(),
            }),
        };
        self.health.stop();
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.shutdown() {
            tracing::error!(%error, "the server did not end cleanly");
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
