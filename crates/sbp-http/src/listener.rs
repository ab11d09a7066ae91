//! The HTTP listener and its thread.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use sbp_server::{Monitor, StartError, check_listen_address};
use sbp_transport::{Descriptors, ListenError, listen};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::routes::{Answers, routes};

/// Connections at once. One more ends the oldest of them.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take, and how long a connection may be idle between two.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection may last, whatever it does; browsers and Prometheus open another.
const LIFETIME: Duration = Duration::from_secs(60);
/// The most bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// The most headers of a request.
const HEADERS: usize = 64;
/// The pause after the system had no resources for a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Descriptors besides those of connections.
const OTHER_DESCRIPTORS: usize = 8;

/// Where a server is looked at.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// `host:port` to listen on; port 0 lets the system choose.
    pub listen: String,
    /// Allows an address that other machines can reach, although nobody is asked who he is.
    pub insecure_listen: bool,
    /// Whether `/metrics` has the figures of each stream.
    pub per_stream: bool,
}

/// A listener that answers HTTP about one server. Dropping it ends it.
#[derive(Debug)]
pub struct HttpServer {
    local: SocketAddr,
    descriptors: Arc<Descriptors>,
    /// The process that started it. A forked one inherits this value and not the thread.
    process: u32,
    running: ManuallyDrop<Running>,
}

#[derive(Debug)]
struct Running {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Begins to answer about what `monitor` sees.
    ///
    /// # Errors
    ///
    /// [`StartError`]: the address is none, is taken, or can be reached by other machines.
    pub fn start(config: &HttpConfig, monitor: Monitor) -> Result<Self, StartError> {
        check_listen_address(&config.listen, config.insecure_listen)?;
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(1)
            .thread_name("sbp-http-answer")
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed("start the HTTP listener's thread"))?;
        let listener = bind(&runtime, &config.listen)?;
        let local = listener.local_addr().map_err(failed("read the address of HTTP"))?;
        let descriptors = Descriptors::new(CONNECTIONS + OTHER_DESCRIPTORS);
        let answers = Answers {
            monitor,
            per_stream: config.per_stream,
            is_loopback: local.ip().is_loopback(),
        };
        let (stop, stopped) = watch::channel(false);
        let acceptor = Acceptor {
            descriptors: Arc::clone(&descriptors),
            router: routes(answers),
            connections: JoinSet::new(),
            oldest: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().name("sbp-http".to_owned()).spawn(move || {
            runtime.block_on(acceptor.run(listener, stopped));
            // An answer under way is waited for: it looks at the server, which must not outlive this.
            drop(runtime);
        });
        let thread = thread.map_err(failed("start the HTTP listener's thread"))?;
        tracing::info!(address = %local, "answering HTTP: a status page, metrics, health");
        Ok(Self {
            local,
            descriptors,
            process: std::process::id(),
            running: ManuallyDrop::new(Running {
                stop,
                thread: Some(thread),
            }),
        })
    }

    /// The address it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The descriptors that it holds now. Takes no lock, so that a child process can call it right after a fork.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.descriptors.snapshot()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        let _ended = self.running.stop.send(true);
        if let Some(thread) = self.running.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of HTTP panicked");
        }
    }
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> StartError {
    let what = what.to_owned();
    move |source| StartError::Io { what, source }
}

fn bind(runtime: &Runtime, address: &str) -> Result<TcpListener, StartError> {
    let _inside = runtime.enter();
    let address = address.to_owned();
    listen(&address).map_err(|error| match error {
        ListenError::PortTaken { source, .. } => StartError::PortTaken { address, source },
        error => {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            StartError::BadAddress { address, reason }
        }
    })
}

struct Acceptor {
    descriptors: Arc<Descriptors>,
    router: Router,
    connections: JoinSet<()>,
    /// The connections, the oldest first, and some that have ended.
    oldest: VecDeque<AbortHandle>,
}

impl Acceptor {
    /// Accepts until told to stop. Connections end with this.
    async fn run(mut self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let registered = self.descriptors.register(listener.as_raw_fd());
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.changed() => break,
                Some(_) = self.connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.serve(stream),
                // The peer has gone, or the system has run out of something: trying again at once would spin.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        drop(registered);
        self.connections.shutdown().await;
    }

    fn serve(&mut self, stream: TcpStream) {
        self.oldest.retain(|connection| !connection.is_finished());
        if self.oldest.len() >= CONNECTIONS
            && let Some(oldest) = self.oldest.pop_front()
        {
            oldest.abort();
        }
        let service = TowerToHyperService::new(self.router.clone());
        let registered = self.descriptors.register(stream.as_raw_fd());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        let serving = self.connections.spawn(async move {
            let mut connection = pin!(connection);
            // Dropped before the connection closes its descriptor.
            let _registered = registered;
            // What a client does wrong, or how slow it is, is its own affair.
            let _ended = timeout(LIFETIME, connection.as_mut()).await;
        });
        self.oldest.push_back(serving);
    }
}
