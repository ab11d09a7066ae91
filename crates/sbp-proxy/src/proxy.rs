//! The handle on a running proxy.

use std::fmt;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_transport::{Descriptors, ListenError, accept_options, listen};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::link::Cutting;
use crate::rulebook::RuleBook;
use crate::shared::Shared;
use crate::{ProxyConfig, ProxyCounts, ProxyError, Rule, RuleCount, RuleId, link};

/// How long the shutdown waits for connections to end.
const CLOSING_TIME: Duration = Duration::from_secs(2);
/// The pause after a failure to accept a connection, which mostly means that no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How many descriptors are listed for forked children; two for each connection.
const DESCRIPTORS: usize = 4_096;

/// A running proxy. Dropping it ends it and all its connections.
///
/// It has its own thread and needs no runtime of the caller. Rules can be added and removed while it runs; they apply
/// to frames whose first bytes are received after that.
pub struct Proxy {
    local: SocketAddr,
    shared: Arc<Shared>,
    cut: watch::Sender<Cutting>,
    /// The process that started the proxy. A forked process inherits this value but not the proxy's thread.
    process: u32,
    /// Taken out by `shutdown`, and never dropped in place: a forked child must not run its destructor.
    runtime: ManuallyDrop<Mutex<Option<Runtime>>>,
}

impl Proxy {
    /// Listens, and connects every client to the target.
    ///
    /// # Errors
    ///
    /// [`ProxyError`] says what failed. Nothing is left running.
    pub fn start(config: ProxyConfig) -> Result<Self, ProxyError> {
        if !config.insecure_listen {
            check_listen_address(&config.listen)?;
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sbp-proxy-io")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|source| ProxyError::System {
                what: "start the proxy's thread",
                source,
            })?;
        let bound = {
            let _inside = runtime.enter();
            bind(&config.listen)
        };
        let (listener, local) = match bound {
            Ok(bound) => bound,
            Err(error) => {
                // Not dropped in place, because the caller may be inside another runtime.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let shared = Arc::new(Shared {
            target: Mutex::new(config.target),
            book: Mutex::new(RuleBook::new(config.rules, config.seed)),
            observer: config.observer,
            counts: Mutex::default(),
            descriptors: Descriptors::new(DESCRIPTORS),
            dial_timeout: config.dial_timeout,
        });
        let (cut, _) = watch::channel(Cutting::Close);
        runtime.spawn(accept(listener, Arc::clone(&shared), cut.clone()));
        Ok(Self {
            local,
            shared,
            cut,
            process: std::process::id(),
            runtime: ManuallyDrop::new(Mutex::new(Some(runtime))),
        })
    }

    /// `host:port` to connect to.
    #[must_use]
    pub fn address(&self) -> String {
        self.local.to_string()
    }

    /// The socket address listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Adds a rule after the existing ones.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.shared.book.lock().add(rule)
    }

    /// Removes a rule and returns what it has done; `None` if there is no such rule.
    pub fn remove(&self, id: RuleId) -> Option<RuleCount> {
        self.shared.book.lock().remove(id)
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.shared.book.lock().clear();
    }

    /// The rules in force, in their order, with what each has done.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleCount> {
        self.shared.book.lock().counts()
    }

    /// Connects new clients to another target, or with `None` closes their connections at once. Existing connections
    /// stay.
    pub fn set_target(&self, target: Option<String>) {
        *self.shared.target.lock() = target;
    }

    /// Cuts every connection that is open now.
    pub fn cut_all(&self) {
        self.cut.send_replace(Cutting::Close);
    }

    /// Resets every connection that is open now: what was sent and not yet read is lost, and both sides are told that there
    /// is no such connection.
    pub fn reset_all(&self) {
        self.cut.send_replace(Cutting::Reset);
    }

    /// The counters since the start.
    #[must_use]
    pub fn counts(&self) -> ProxyCounts {
        *self.shared.counts.lock()
    }

    /// The descriptors that the proxy holds now. Takes no lock, so that a child process can call it right after a fork,
    /// to close what it inherited.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.shared.descriptors.snapshot()
    }

    /// Closes listener and connections, and waits until the port is free. Further calls do nothing, nor do calls in a
    /// process that was forked from the proxy's.
    pub fn shutdown(&self) {
        if std::process::id() != self.process {
            return;
        }
        let Some(runtime) = self.runtime.lock().take() else {
            return;
        };
        // On a thread of its own: a runtime must not be dropped inside another one, where the caller may be.
        let ending = std::thread::Builder::new()
            .name("sbp-proxy-end".to_owned())
            .spawn(move || runtime.shutdown_timeout(CLOSING_TIME));
        if let Ok(ending) = ending {
            // The thread only shuts the runtime down; a panic in it has been reported already.
            let _ = ending.join();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &self.local)
            .field("target", &self.shared.target())
            .finish_non_exhaustive()
    }
}

fn bind(address: &str) -> Result<(TcpListener, SocketAddr), ProxyError> {
    let listener = listen(address)?;
    let local = listener.local_addr().map_err(|source| ProxyError::System {
        what: "read the address listened on",
        source,
    })?;
    Ok((listener, local))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, cut: watch::Sender<Cutting>) {
    let _registered = shared.descriptors.register(listener.as_raw_fd());
    let mut number = 0;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _peer)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = accept_options(&stream) {
            tracing::debug!(%error, "cannot set a connection's options");
        }
        number += 1;
        {
            let mut counts = shared.counts.lock();
            counts.connections += 1;
            counts.open += 1;
        }
        let (shared, cut) = (Arc::clone(&shared), cut.subscribe());
        tokio::spawn(async move {
            link::run(stream, number, Arc::clone(&shared), cut).await;
            shared.counts.lock().open -= 1;
        });
    }
}

/// Refuses addresses that other machines can reach, unless the user allows them: a proxy has no authentication.
fn check_listen_address(address: &str) -> Result<(), ProxyError> {
    let invalid = |source| ListenError::InvalidAddress {
        address: address.to_owned(),
        source,
    };
    let mut resolved = address.to_socket_addrs().map_err(invalid)?;
    if resolved.all(|candidate| candidate.ip().is_loopback()) {
        Ok(())
    } else {
        Err(ProxyError::InsecureListen {
            address: address.to_owned(),
        })
    }
}
