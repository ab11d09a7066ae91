//! The HTTP listener and its thread.

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use sbp_server::{ServerConfig, ServerTlsFiles, StartError, TlsFileError, check_listen_address};
use sbp_transport::{Descriptors, Link, ListenError, ServerTls, Socket, accept_options, listen};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::activity::Activity;
use crate::guard::host_name;
use crate::routes::{Answers, Origin, THREADS, routes};

/// Connections at once. For one more, the oldest is ended of those that have not sent a whole request, else of those that
/// were answered, else of those that do not read their answers. While all are being answered, the next one waits.
const CONNECTIONS: usize = 64;
/// How often it is looked whether one of them is not any more.
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// How long the handshake of TLS may take, or the head of a request, and how long a connection may be idle between two.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection may last if nothing else is said.
const LIFETIME: Duration = Duration::from_secs(60);
/// What is spoken inside TLS (RFC 7301).
pub(crate) const PROTOCOL: &[u8] = b"http/1.1";
/// The most bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// The most headers of a request.
const HEADERS: usize = 64;
/// The pause after the system had no resources for a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Descriptors besides those of connections.
const OTHER_DESCRIPTORS: usize = 8;

/// Where a server is looked at. Change what is to differ from [`HttpConfig::default`].
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// `host:port` to listen on; port 0 lets the system choose. With `https://` in front of it TLS is spoken, with the
    /// certificate of the server.
    pub listen: String,
    /// Names that a listener on loopback is asked by, beside `localhost`: those of a proxy in front of it, without a port.
    pub hosts: Vec<String>,
    /// Allows an address that other machines can reach, although nobody is asked who he is, or others can read along.
    pub insecure_listen: bool,
    /// Whether `/metrics` has the figures of each stream.
    pub per_stream: bool,
    /// How long a connection may last, whatever it does; browsers and Prometheus open another.
    pub lifetime: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            hosts: Vec::new(),
            insecure_listen: false,
            per_stream: false,
            lifetime: LIFETIME,
        }
    }
}

/// A listener that answers HTTP about one server. Dropping it ends it.
#[derive(Debug)]
pub struct HttpServer {
    local: SocketAddr,
    tls: Option<Arc<ServerTls>>,
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
    /// Begins to answer about the server that has this configuration, or will have.
    ///
    /// # Errors
    ///
    /// [`StartError`]: the address is none, is taken, or can be reached by other machines; a name is none; or there is no
    /// certificate.
    pub fn start(config: &HttpConfig, server: &ServerConfig) -> Result<Self, StartError> {
        let names = config.hosts.iter().map(|name| {
            host_name(name).map_err(|reason| StartError::HttpHost {
                name: name.clone(),
                reason,
            })
        });
        let names: Arc<[String]> = names.collect::<Result<_, _>>()?;
        let (address, tls) = address(&config.listen, server)?;
        let is_guarded = tls.is_some() && server.access.is_some();
        let allowed = check_listen_address(address, config.insecure_listen || is_guarded);
        allowed.map_err(|error| match error {
            // All is there but for one word.
            StartError::InsecureListen { address, .. } if server.tls.is_some() && server.access.is_some() => {
                let remedy = format!("answer HTTP with the certificate that there is (--http https://{address})");
                StartError::InsecureListen { address, remedy }
            }
            other => other,
        })?;
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(THREADS)
            .thread_name("sbp-http-answer")
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed("start the HTTP listener's thread"))?;
        let listener = bind(&runtime, address)?;
        let local = listener.local_addr().map_err(failed("read the address of HTTP"))?;
        let descriptors = Descriptors::new(CONNECTIONS + OTHER_DESCRIPTORS);
        let hosts = local.ip().is_loopback().then_some(names);
        let answers = Answers::new(server.monitor.clone(), config.per_stream, hosts);
        let (stop, stopped) = watch::channel(false);
        let acceptor = Acceptor {
            descriptors: Arc::clone(&descriptors),
            router: routes(answers),
            tls: tls.clone(),
            lifetime: config.lifetime,
            connections: JoinSet::new(),
            open: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("sbp-http".to_owned()).spawn(move || {
            runtime.block_on(acceptor.run(listener, stopped));
            // An answer under way is waited for: it looks at the server, which must not outlive this.
            drop(runtime);
        });
        let thread = thread.map_err(failed("start the HTTP listener's thread"))?;
        let has_tls = tls.is_some();
        tracing::info!(address = %local, tls = has_tls, "answering HTTP: a status page, metrics, health");
        Ok(Self {
            local,
            tls,
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

    /// Whether it speaks TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads the files of the certificate and its key again where they have changed; connections stay.
    ///
    /// # Errors
    ///
    /// [`TlsFileError`] names the file that cannot be used; the certificate from before stays in use.
    pub fn reload_certificate(&self) -> Result<(), TlsFileError> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.reload())
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

/// `host:port`, and TLS if it is asked for. Clients are not asked for a certificate: browsers have none, and a token says
/// who asks.
fn address<'a>(listen: &'a str, server: &ServerConfig) -> Result<(&'a str, Option<Arc<ServerTls>>), StartError> {
    let bad = |reason: &str| StartError::BadAddress {
        address: listen.to_owned(),
        reason: reason.to_owned(),
    };
    match listen.split_once("://") {
        None => Ok((listen, None)),
        Some(("http", address)) => Ok((address.trim_end_matches('/'), None)),
        Some(("https", address)) => {
            let files = server.tls.clone().ok_or_else(|| {
                bad("https:// is spoken with the certificate of the server (--tls-cert, --tls-key), and it has none")
            })?;
            let files = ServerTlsFiles {
                client_ca: None,
                ..files
            };
            let tls = ServerTls::speaking(PROTOCOL, files)?;
            Ok((address.trim_end_matches('/'), Some(tls)))
        }
        Some(_) => Err(bad("HTTP is answered at host:port or https://host:port")),
    }
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
    tls: Option<Arc<ServerTls>>,
    lifetime: Duration,
    connections: JoinSet<()>,
    /// The connections, and some that have ended.
    open: Vec<(AbortHandle, Activity)>,
}

impl Acceptor {
    /// Accepts until told to stop. Connections end with this.
    async fn run(mut self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let registered = self.descriptors.register(listener.as_raw_fd());
        // One for which there was no room.
        let mut waiting = None;
        loop {
            if waiting.is_some() && self.make_room(Instant::now()) {
                waiting.take().into_iter().for_each(|stream| self.serve(stream));
            }
            let accepted = tokio::select! {
                biased;
                _ = stop.changed() => break,
                Some(_) = self.connections.join_next() => continue,
                () = tokio::time::sleep(LOOK_AGAIN), if waiting.is_some() => continue,
                accepted = listener.accept(), if waiting.is_none() => accepted,
            };
            match accepted {
                Ok((stream, _)) => waiting = Some(stream),
                // The peer has gone, or the system has run out of something: trying again at once would spin.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        drop(registered);
        self.connections.shutdown().await;
    }

    /// Ends a connection if there are as many as there may be; false if none of them may go now.
    fn make_room(&mut self, now: Instant) -> bool {
        self.open.retain(|(connection, _)| !connection.is_finished());
        if self.open.len() < CONNECTIONS {
            return true;
        }
        let activities = self.open.iter().map(|(_, activity)| activity);
        let Some(place) = Activity::first_to_go(activities, now) else {
            return false;
        };
        self.open.swap_remove(place).0.abort();
        true
    }

    fn serve(&mut self, stream: TcpStream) {
        // The peer has gone already.
        let Ok(from) = stream.peer_addr() else { return };
        // Without them a peer that is gone is noticed later.
        let _set = accept_options(&stream);
        let socket = Socket::new(stream, &self.descriptors);
        let router = self.router.clone().layer(Extension(Origin(from)));
        let (tls, lifetime) = (self.tls.clone(), self.lifetime);
        let activity = Activity::new(Instant::now());
        let serving = self.connections.spawn({
            let activity = activity.clone();
            async move {
                // What a client does wrong, or how slow it is, is its own affair.
                let _ended = timeout(lifetime, serve(socket, tls, router, &activity)).await;
            }
        });
        self.open.push((serving, activity));
    }
}

async fn serve(socket: Socket, tls: Option<Arc<ServerTls>>, router: Router, activity: &Activity) {
    let link = match tls {
        None => Link::plain(socket),
        Some(tls) => match Link::accept(socket, &tls, HEAD_TIME).await {
            Ok(mut accepted) => {
                // What is read of a question is bounded below.
                accepted.link.let_in();
                accepted.link
            }
            Err(failure) => {
                tracing::debug!(%failure, "no TLS with a client of HTTP");
                return;
            }
        },
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(activity.around(link)), activity.answering(router));
    let _ended = connection.await;
}
