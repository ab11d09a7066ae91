//! Starts the parts of a server and shuts them down.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sbp_log::{Durability, FileSystem, LogConfig, RealFileSystem, SystemClock};
use sbp_messages::{Encoder, ErrorCode, GoAway, Message, Status, check_address};
use sbp_session::{Authentication, SessionConfig};
use sbp_transport::{
    Acceptor, AcceptorSettings, ClientTls, Descriptors, Entrance, ListenError, LogRateLimiter, Memory, PlaceLimits,
    Places, Registered, ServerTls, listen,
};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use crate::access::{Access, Audit};
use crate::background::{measure_lag, scrub_what_is_sealed, trim_what_is_due, watch_itself};
use crate::config::{Roles, ServerConfig};
use crate::connection::goodbye;
use crate::connections::{Connections, Rights, fetch_keys, watch_access};
use crate::data_dir::{DataDir, fit_to_disk};
use crate::disk_space::DiskSpace;
use crate::disk_watch::DiskWatch;
use crate::error::{ShutdownError, StartError};
use crate::identity::Identity;
use crate::listener::Doorkeeper;
use crate::monitor::Monitor;
use crate::node::{ConnectionLimits, Node};
use crate::observed::Observed;
use crate::offer::Offer;
use crate::range::{RangeServer, Readers};
use crate::refusals::Refusals;
use crate::regular::Regular;
use crate::roles::{RangeRole, keep_in_touch, until_registered};
use crate::start::{OpenedRoles, StartContext};
use crate::stats::{Counters, ServerStats, seconds_since};
use crate::status::Phase;
use crate::storage::StorageParts;

/// How much longer than the grace connections may take to write their last bytes.
const CLOSING_TIME: Duration = Duration::from_secs(2);
/// How long others may take at most to take over from a server that stops.
const HAND_OVER_TIME: Duration = Duration::from_secs(3);
/// How long the start waits for the keys of OAuth tokens that are fetched.
const FIRST_KEYS_TIME: Duration = Duration::from_secs(5);
/// How much longer threads may take that were suspended or wait for the disk.
const LAST_USERS_TIME: Duration = Duration::from_secs(30);
/// How often it is checked whether those threads have ended; nothing signals it.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Descriptors besides those of connections.
const OTHER_DESCRIPTORS: usize = 16;

/// A running server's parts.
#[derive(Debug)]
pub(crate) struct ServerRuntime {
    runtime: Runtime,
    /// The runtime of the acceptor and of connections that have not made a request yet.
    reception: Runtime,
    stop: watch::Sender<bool>,
    pub(crate) local: SocketAddr,
    pub(crate) plain: Option<SocketAddr>,
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) node: Arc<Node>,
    /// The range server with the log, which owns the directory.
    owner: Arc<RangeServer>,
    connections: Arc<Connections>,
    pub(crate) descriptors: Arc<Descriptors>,
    /// Entries for the descriptors that keep the directory locked; dropped before these are closed.
    locks: Vec<Registered>,
    data_dir: DataDir,
    grace: Duration,
    durability: Durability,
    monitor: Monitor,
    observed: Arc<Observed>,
    /// Ends the watch over the disk when all else has ended.
    _watching: Regular,
}

impl ServerRuntime {
    /// Starts all parts.
    pub(crate) fn start(config: &ServerConfig) -> Result<Self, StartError> {
        let began = Instant::now();
        check_listen_address(&config.listen, config.insecure_listen || is_guarded(config))?;
        let tls = config.tls.clone().map(ServerTls::new).transpose()?;
        let peer_tls = config.peer_tls.clone().map(ClientTls::new).transpose()?;
        let runtime = start_runtime("sbp-server-io")?;
        let reception = start_runtime("sbp-reception")?;
        // Before the directory is opened, so that a port in use is reported at once and nothing is changed.
        let (listener, local) = bind(&reception, &config.listen)?;
        check_advertised(config, local)?;
        let plain = bind_plain(&reception, config)?;
        let data_dir =
            DataDir::new(config.data_dir.as_deref()).map_err(StartError::io("make a temporary directory"))?;
        let advertise = config.advertise.clone().unwrap_or_else(|| local.to_string());
        tell_start(config, local, &advertise, &data_dir);
        tell_tls(tls.as_deref(), plain.as_ref().map(|(address, _)| *address));
        let descriptors = Descriptors::new(descriptors_at_once(config));
        let context = StartContext {
            config,
            runtime: &runtime,
            descriptors: &descriptors,
            advertise: &advertise,
            peer_tls: &peer_tls,
        };
        let session = session_config(config);
        let (disk, watching) = watch_disk(config)?;
        let files = disk.around(file_system(config));
        config.monitor.enter(Phase::Recovering);
        let log = log_config(config, &data_dir, &disk);
        let (node, owner) = open_node(&context, &session, log, &files, &disk)?;
        let space = look_at_space(config, files, data_dir.path())?;
        let locks = register_locks(&descriptors, data_dir.path());
        let connections = Arc::new(Connections::default());
        let (stop, stopped) = watch::channel(false);
        let doorkeeper = doorkeeper(config, &node, &connections, session);
        let settings = AcceptorSettings {
            home: runtime.handle().clone(),
            descriptors: Arc::clone(&descriptors),
            memory: Memory::new(config.max_held_bytes),
            tls: tls.clone(),
            handshake_timeout: config.handshake_timeout,
        };
        let acceptor = Acceptor::new(doorkeeper, settings);
        start_fetching_keys(&reception, &node, &connections);
        let (plain, beside) = plain.unzip();
        let is_plain = tls.is_none();
        open_doors(&reception, &acceptor, Entrance { listener, is_plain }, beside, &stopped);
        drop(acceptor);
        let registered = start_background_tasks(&runtime, &node, &connections, config, &space);
        let observed = observe(config, &node, &owner, &connections, data_dir.path(), (disk, space));
        if let (Some(role), Some(registered)) = (&node.range_role, registered) {
            runtime.block_on(until_registered(role, registered, config.registration_timeout));
        }
        tracing::info!(address = advertise, seconds = seconds_since(began), "ready");
        Ok(Self {
            monitor: config.monitor.clone(),
            observed,
            _watching: watching,
            runtime,
            reception,
            stop,
            local,
            plain,
            tls,
            node,
            owner,
            connections,
            descriptors,
            locks,
            data_dir,
            grace: config.shutdown_grace,
            durability: config.durability,
        })
    }

    /// Who is known, where anybody is asked who he is.
    pub(crate) fn rights(&self) -> Option<Rights> {
        let access = Arc::clone(self.node.access.as_ref()?);
        let connections = Arc::clone(&self.connections);
        Some(Rights { access, connections })
    }

    pub(crate) fn stats(&self) -> ServerStats {
        let counters: &Counters = &self.node.counters;
        let log = self.owner.log.stats();
        let streams = match self.node.metadata() {
            Some(driver) => u64::try_from(driver.read(|state| state.stream_count())).unwrap_or(u64::MAX),
            None => self.owner.activity().streams,
        };
        let accepted = counters.connections_accepted.value();
        let looks = self.node.access.as_ref().map(|access| access.looks());
        let (names_looked_at, keys_looked_at) = looks.unwrap_or_default();
        ServerStats {
            names_looked_at,
            keys_looked_at,
            connections_accepted: accepted,
            connections_open: accepted.saturating_sub(counters.connections_closed.value()),
            streams,
            appends: counters.appends.value(),
            records_appended: counters.records_appended.value(),
            appends_refused: counters.appends_refused.value(),
            fetches: counters.fetches.value(),
            bytes_fetched: counters.bytes_fetched.value(),
            groups: log.groups,
            syncs: log.syncs,
            sync_times: counters.sync_seconds.snapshot(),
            refusals: self.node.refusals.counts().iter().map(|(_, count)| count).sum(),
            damaged_ranges: self.owner.activity().damaged_ranges,
            durability: self.durability.name(),
        }
    }

    /// Shuts all parts down in an order in which nothing is lost: first others take over what this server leads, then there are no
    /// new connections and requests, then come the answers to what was started, then the metadata, then the log.
    pub(crate) fn shutdown(self) -> Result<(), ShutdownError> {
        let Self {
            runtime,
            reception,
            stop,
            node,
            owner,
            connections,
            mut data_dir,
            grace,
            locks,
            monitor,
            observed,
            ..
        } = self;
        monitor.enter(Phase::Draining);
        let began = Instant::now();
        let (open, seconds) = (connections.count(), grace.as_secs_f64());
        tracing::info!(
            connections = open,
            seconds,
            "draining: calls under way may end, no others begin"
        );
        if let Some(role) = &node.range_role {
            hand_over(&runtime, role, grace.min(HAND_OVER_TIME));
        }
        let _ended = stop.send(true);
        connections.go_away();
        if !connections.wait_until_closed(grace + CLOSING_TIME) {
            tracing::warn!(open = connections.count(), "connections did not end in time");
        }
        if let Some(role) = &node.range_role {
            role.drivers.close();
        }
        reception.shutdown_timeout(CLOSING_TIME);
        runtime.shutdown_timeout(CLOSING_TIME);
        // Before the placement driver, which it has rest in its own way.
        if let Some(campaign) = &node.campaign {
            campaign.stop();
        }
        if let Some(placement) = &node.placement {
            placement.stop();
        }
        if let Some(role) = &node.range_role {
            role.range_store.stop();
        }
        if let Some(readers) = &node.readers {
            readers.stop();
        }
        // Nobody is left who changes or asks for anything.
        if let Some(audit) = &node.audit {
            audit.stop();
        }
        drop(observed);
        // Before the log closes the descriptors: their numbers can be those of other files right after that, which a child
        // forked at that moment must not close. A child that has copies of the locks does not hold them any longer than
        // this process, which unlocks them.
        drop(locks);
        let closed = close_log(node, owner);
        let path = data_dir.path().to_owned();
        monitor.enter(Phase::Ended);
        data_dir
            .clean_up()
            .map_err(|source| ShutdownError::Temporary { path, source })?;
        if closed.is_ok() {
            tracing::info!(seconds = seconds_since(began), "ended");
        }
        closed
    }
}

/// Has the ranges go on elsewhere whose appends this server takes. Does not wait for it longer than this: who is not asked in time is
/// missed by the others afterwards.
fn hand_over(runtime: &Runtime, role: &Arc<RangeRole>, at_most: Duration) {
    let (over, waiting) = mpsc::channel();
    let role = Arc::clone(role);
    runtime.spawn(async move {
        role.hand_over().await;
        // An error when nobody waits any more.
        let _ended = over.send(());
    });
    if waiting.recv_timeout(at_most).is_err() {
        tracing::warn!("ranges whose appends this server takes did not go on elsewhere in time");
    }
}

/// Has it seen, from now on, when the disk does not answer.
fn watch_disk(config: &ServerConfig) -> Result<(Arc<DiskWatch>, Regular), StartError> {
    let disk = DiskWatch::new(config.disk_patience);
    let watching = disk
        .keep()
        .map_err(StartError::io("start a thread that watches the disk"))?;
    config.monitor.watch(Arc::clone(&disk));
    Ok((disk, watching))
}

/// Has the disk asked for its room, from now on.
fn look_at_space(
    config: &ServerConfig,
    files: Arc<dyn FileSystem>,
    directory: &Path,
) -> Result<Arc<DiskSpace>, StartError> {
    let looking = DiskSpace::start(files, directory, config.disk_space_interval);
    looking.map_err(StartError::io("start a thread that looks at the disk"))
}

/// Lets the monitor of the configuration look at the server, which serves now.
fn observe(
    config: &ServerConfig,
    node: &Arc<Node>,
    owner: &Arc<RangeServer>,
    connections: &Arc<Connections>,
    directory: &Path,
    (disk, space): (Arc<DiskWatch>, Arc<DiskSpace>),
) -> Arc<Observed> {
    let observed = Arc::new(Observed {
        node: Arc::clone(node),
        owner: Arc::clone(owner),
        connections: Arc::clone(connections),
        role: config.roles.name(),
        durability: config.durability.name(),
        data_dir: directory.to_owned(),
        disk,
        space,
    });
    let weak: Weak<Observed> = Arc::downgrade(&observed);
    config.monitor.show(weak);
    config.monitor.enter(Phase::Serving);
    observed
}

/// Accepts at each entrance until the server is told to stop.
fn open_doors(
    reception: &Runtime,
    acceptor: &Arc<Acceptor<Doorkeeper>>,
    main: Entrance,
    beside: Option<Entrance>,
    stopped: &watch::Receiver<bool>,
) {
    for entrance in std::iter::once(main).chain(beside) {
        reception.spawn(Arc::clone(acceptor).run(entrance, stopped.clone()));
    }
}

/// Who lets connections in.
fn doorkeeper(
    config: &ServerConfig,
    node: &Arc<Node>,
    connections: &Arc<Connections>,
    session: SessionConfig,
) -> Doorkeeper {
    Doorkeeper {
        node: Arc::clone(node),
        connections: Arc::clone(connections),
        session,
        places: places(config),
        too_many: LogRateLimiter::default(),
        too_many_strangers: LogRateLimiter::default(),
    }
}

/// The places that connections have.
fn places(config: &ServerConfig) -> Arc<Places> {
    Places::new(PlaceLimits {
        known: config.max_connections,
        known_from_one: config.max_connections_per_address,
        strangers: config.max_unauthenticated_connections.max(1),
    })
}

/// Sockets and other files that are open at once, at most.
fn descriptors_at_once(config: &ServerConfig) -> usize {
    let connections = config
        .max_connections
        .saturating_add(config.max_unauthenticated_connections);
    connections.saturating_add(OTHER_DESCRIPTORS)
}

/// Logs how clients are talked to.
fn tell_tls(tls: Option<&ServerTls>, plain: Option<SocketAddr>) {
    let Some(tls) = tls else { return };
    let clients = tls.files().client_ca.as_ref().map(|path| path.display().to_string());
    let plain = plain.map(|address| address.to_string());
    tracing::info!(
        certificate = tls.certificate(),
        clients_of = clients,
        plain_listen = plain,
        "TLS is spoken"
    );
}

/// Logs what is about to be started.
fn tell_start(config: &ServerConfig, local: SocketAddr, advertise: &str, data_dir: &DataDir) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        role = config.roles.name(),
        listen = %local,
        advertise,
        data_dir = %data_dir.path().display(),
        temporary = data_dir.is_temporary(),
        durability = config.durability.name(),
        "starting"
    );
    if config.durability == Durability::None {
        tracing::info!("durability is none: what is acknowledged can be lost with the machine's power");
    }
    if !local.ip().is_loopback() && config.access.is_none() {
        tracing::warn!(listen = %local, "other machines can connect, and nobody is asked who he is");
    }
}

/// Whether who asks is known and nobody reads along, so that other machines may connect.
fn is_guarded(config: &ServerConfig) -> bool {
    config.access.is_some() && config.tls.is_some()
}

/// Opens the file that says who may do what.
fn open_access(config: &ServerConfig, audit: Option<&Arc<Audit>>) -> Result<Option<Arc<Access>>, StartError> {
    let open = |names| Access::open(names, audit.cloned());
    let access = config.access.as_ref().map(open);
    Ok(access.transpose()?.map(Arc::new))
}

/// Opens the configured roles, and builds what connections need.
fn open_node(
    context: &StartContext<'_>,
    session: &SessionConfig,
    log: LogConfig,
    files: &Arc<dyn FileSystem>,
    disk: &Arc<DiskWatch>,
) -> Result<(Arc<Node>, Arc<RangeServer>), StartError> {
    let config = context.config;
    let audit = config.audit.as_deref().map(Audit::open).transpose();
    let audit = audit.map_err(StartError::Audit)?.map(Arc::new);
    let access = open_access(config, audit.as_ref())?;
    let parts = StorageParts {
        files: Arc::clone(files),
        clock: Arc::new(SystemClock::new()),
        health: Arc::default(),
        counters: Arc::default(),
        disk: Arc::clone(disk),
        times: config.cluster,
        cluster: Arc::default(),
    };
    let OpenedRoles {
        server_id,
        placement,
        campaign,
        ranges,
        range_role,
        owner,
    } = OpenedRoles::open(context, &parts, log)?;
    let StorageParts {
        clock,
        health,
        counters,
        cluster,
        ..
    } = parts;
    let advertise = context.advertise.to_owned();
    let identity = Identity { server_id, advertise };
    let offer = Offer::new(config.durability.name(), &identity, &session.limits);
    let limits = ConnectionLimits {
        answer_bytes: session.limits.answer_bytes,
        waits: session.limits.waits,
        default_timeout: config.default_timeout,
        shutdown_grace: config.shutdown_grace,
    };
    let readers = ranges.as_ref().map(Readers::start).transpose();
    let readers = readers.map_err(StartError::io("start a reader thread"))?;
    let node = Arc::new(Node {
        identity,
        access,
        audit,
        offer,
        cluster,
        limits,
        placement,
        campaign,
        ranges,
        range_role,
        readers,
        clock,
        health,
        counters,
        faults: LogRateLimiter::default(),
        refusals: Refusals::default(),
    });
    Ok((node, owner))
}

/// Starts the regular tasks of the server. That of a range server alone tells when its placement driver knows of it.
fn start_background_tasks(
    runtime: &Runtime,
    node: &Arc<Node>,
    connections: &Arc<Connections>,
    config: &ServerConfig,
    space: &Arc<DiskSpace>,
) -> Option<oneshot::Receiver<()>> {
    if let Some(access) = &node.access {
        for reload in [Access::reload, Access::reload_keys] {
            runtime.spawn(watch_access(
                Arc::downgrade(access),
                Arc::downgrade(connections),
                reload,
            ));
        }
    }
    runtime.spawn(measure_lag(Arc::downgrade(node)));
    if node.ranges.is_some() {
        runtime.spawn(trim_what_is_due(Arc::downgrade(node), config.retention_interval));
        runtime.spawn(scrub_what_is_sealed(Arc::downgrade(node), config.scrub_interval));
    }
    let space = Arc::clone(space);
    if let (Some(role), Some(me)) = (&node.range_role, node.identity.range_server()) {
        let (registered, when) = oneshot::channel();
        let every = config.report_interval;
        runtime.spawn(keep_in_touch(Arc::downgrade(role), me, space, every, registered));
        return Some(when);
    }
    if node.ranges.is_some() && node.placement.is_some() {
        runtime.spawn(watch_itself(Arc::downgrade(node), space, config.report_interval));
    }
    None
}

/// Fetches the keys of OAuth tokens before anybody is asked who he is, and again and again from then on, on threads that
/// serve nobody. Where none come the server starts all the same, for those who are known without.
fn start_fetching_keys(reception: &Runtime, node: &Node, connections: &Arc<Connections>) {
    let Some(access) = &node.access else { return };
    let Some(url) = access.key_url() else { return };
    let (came, first) = mpsc::channel();
    reception.spawn({
        let (access, url) = (Arc::clone(access), Arc::clone(&url));
        async move {
            // Whoever starts the server may not wait any more.
            let _ = came.send(access.fetch_keys(&url).await);
        }
    });
    match first.recv_timeout(FIRST_KEYS_TIME) {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::error!(%error, "no OAuth token is believed until keys come"),
        Err(_) => tracing::error!("no OAuth token is believed until keys come; the server starts without"),
    }
    reception.spawn(fetch_keys(Arc::downgrade(access), Arc::downgrade(connections), url));
}

/// Closes the log once nothing else uses it. Threads that are suspended or wait for the disk are waited for. One that
/// does not end in time cannot append any more; it only keeps the directory locked.
fn close_log(node: Arc<Node>, owner: Arc<RangeServer>) -> Result<(), ShutdownError> {
    let until = Instant::now() + LAST_USERS_TIME;
    let alone = wait_until_alone(&node, until);
    drop(node);
    if !(alone && wait_until_alone(&owner, until)) {
        tracing::warn!(
            "a thread of the server does not end; the directory stays locked for as long as this process runs"
        );
    }
    owner.log.close().map_err(|error| ShutdownError::Log {
        reason: error.to_string(),
    })
}

/// Waits until `shared` has no other owner; false if that takes until `until`.
fn wait_until_alone<T>(shared: &Arc<T>, until: Instant) -> bool {
    while Arc::strong_count(shared) > 1 {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    true
}

fn start_runtime(thread: &str) -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(4)
        .thread_name(thread)
        .enable_io()
        .enable_time()
        .build()
        .map_err(StartError::io("start the server's threads"))
}

/// Listens, and tells at which address.
fn bind(runtime: &Runtime, address: &str) -> Result<(TcpListener, SocketAddr), StartError> {
    let _inside = runtime.enter();
    let given = address.to_owned();
    let listener = listen(address).map_err(|error| match error {
        ListenError::PortTaken { source, .. } => StartError::PortTaken { address: given, source },
        error => {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            StartError::BadAddress { address: given, reason }
        }
    })?;
    let local = listener
        .local_addr()
        .map_err(StartError::io("read the address listened on"))?;
    Ok((listener, local))
}

/// Listens without TLS beside the address that has it: on loopback, where nobody listens in.
fn bind_plain(runtime: &Runtime, config: &ServerConfig) -> Result<Option<(SocketAddr, Entrance)>, StartError> {
    let Some(address) = &config.plain_listen else {
        return Ok(None);
    };
    let bad = |reason: &str| StartError::BadAddress {
        address: address.clone(),
        reason: reason.to_owned(),
    };
    if config.tls.is_none() {
        return Err(bad(
            "a second address without TLS goes with TLS on the first one, and there is none",
        ));
    }
    let mut resolved = address.to_socket_addrs().map_err(|error| bad(&error.to_string()))?;
    if !resolved.all(|candidate| candidate.ip().is_loopback()) {
        return Err(bad(
            "without TLS the second address has to be on loopback, as 127.0.0.1 is",
        ));
    }
    let (listener, local) = bind(runtime, address)?;
    Ok(Some((
        local,
        Entrance {
            listener,
            is_plain: true,
        },
    )))
}

/// Refuses addresses that other machines can reach, unless the user allows them.
///
/// # Errors
///
/// [`StartError::InsecureListen`], or that it is no address.
pub fn check_listen_address(address: &str, insecure_listen: bool) -> Result<(), StartError> {
    if insecure_listen {
        return Ok(());
    }
    let bad = |error: std::io::Error| StartError::BadAddress {
        address: address.to_owned(),
        reason: error.to_string(),
    };
    let mut resolved = address.to_socket_addrs().map_err(bad)?;
    if resolved.all(|candidate| candidate.ip().is_loopback()) {
        Ok(())
    } else {
        Err(StartError::InsecureListen {
            address: address.to_owned(),
            remedy: "say who may do what and encrypt, with a file of tokens (--auth) and a certificate (--tls-cert, \
                     --tls-key)"
                .to_owned(),
        })
    }
}

/// Checks the address to advertise. A range server registers its address with the placement driver, so there must be
/// one that others can dial.
fn check_advertised(config: &ServerConfig, local: SocketAddr) -> Result<(), StartError> {
    if let Some(address) = &config.advertise
        && let Err(fault) = check_address(address)
    {
        return Err(StartError::BadAddress {
            address: address.clone(),
            reason: format!("it cannot be advertised: {fault}"),
        });
    }
    let is_dialled_by_others = match config.roles {
        Roles::RangeServer { .. } => Some("a range server"),
        Roles::PlacementDriver if config.metadata.is_some() => Some("one of several placement drivers"),
        _ => None,
    };
    if let Some(who) = is_dialled_by_others
        && config.advertise.is_none()
        && local.ip().is_unspecified()
    {
        return Err(StartError::BadAddress {
            address: local.to_string(),
            reason: format!("{who} that listens on every address has to advertise one"),
        });
    }
    Ok(())
}

fn file_system(config: &ServerConfig) -> Arc<dyn FileSystem> {
    #[cfg(feature = "testing")]
    if let Some(files) = &config.files {
        return Arc::clone(files);
    }
    let _machine = config;
    Arc::new(RealFileSystem)
}

fn log_config(config: &ServerConfig, data_dir: &DataDir, disk: &DiskWatch) -> LogConfig {
    let mut log = if data_dir.is_temporary() {
        LogConfig::temporary(data_dir.path())
    } else {
        LogConfig::new(data_dir.path())
    };
    disk.while_asking_for_room(data_dir.path(), || fit_to_disk(&mut log));
    log.durability = config.durability;
    if let Some(bytes) = config.segment_bytes {
        log.segment_bytes = bytes;
    }
    #[cfg(feature = "testing")]
    {
        log.forget_writers = config.forget_writers;
    }
    log
}

fn session_config(config: &ServerConfig) -> SessionConfig {
    let mut session = SessionConfig::server();
    session.limits.calls = usize::try_from(config.max_calls).unwrap_or(usize::MAX);
    session.limits.waits = usize::try_from(config.max_waits).unwrap_or(usize::MAX);
    session.grace = config.shutdown_grace;
    let mut header = BytesMut::new();
    let status = Status::error(ErrorCode::INVALID_REQUEST, "the connection broke the protocol");
    GoAway { status, grace_ms: 0 }.encode(&mut Encoder::new(), &mut header);
    session.violation_header = header.freeze();
    if config.access.is_some() {
        let mut header = BytesMut::new();
        let goodbye = GoAway {
            status: goodbye(),
            grace_ms: 0,
        };
        goodbye.encode(&mut Encoder::new(), &mut header);
        session.authentication = Some(Authentication {
            goodbye: header.freeze(),
            ..Authentication::default()
        });
    }
    session
}

/// Remembers the descriptors that keep the directory locked.
fn register_locks(descriptors: &Arc<Descriptors>, directory: &Path) -> Vec<Registered> {
    let locks = lock_descriptors(directory).into_iter();
    locks.map(|fd| descriptors.register(fd)).collect()
}

/// The descriptors that keep the directory locked. The log owns the files and does not expose their descriptors, so
/// they are looked up in `/proc`.
fn lock_descriptors(directory: &Path) -> Vec<RawFd> {
    let Ok(directory) = directory.canonicalize() else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let ours = entries.flatten().filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| {
            let name = target
                .file_name()
                .map(|name| name.to_string_lossy().to_ascii_lowercase());
            target.starts_with(&directory) && name.is_some_and(|name| name.contains("lock"))
        })
    });
    ours.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
