//! What a server is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

/// What an acknowledgement of an append promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The record was synced to stable storage before it was acknowledged.
    #[default]
    Fsync,
    /// The record was handed to the operating system: it survives the process, not a power loss. For tests, caches and
    /// benchmarks; never implied.
    None,
}

impl Durability {
    /// The word for it on the command line and in the HEARTBEAT feature `durability`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::None => "none",
        }
    }
}

/// How a [`Server`](crate::Server) is set up. Fill in what differs from [`ServerConfig::default`].
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where log and metadata live; created when it does not exist. `None`: a temporary directory, deleted at shutdown.
    pub data_dir: Option<PathBuf>,
    /// `host:port` to listen on. Port 0 lets the system choose one; [`Server::address`](crate::Server::address) tells
    /// which.
    pub listen: String,
    /// `host:port` that clients are told to dial. `None`: the address listened on.
    pub advertise: Option<String>,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// Allows `listen` to name an address other machines can reach, although there is no authentication yet.
    pub insecure_listen: bool,
    /// How long requests without a timeout of their own may take before they are started.
    pub default_timeout: Duration,
    /// How long shutdown waits for calls that were started, before it closes their connections.
    pub shutdown_grace: Duration,
    /// Connections served at once; the next one is closed as soon as it is accepted.
    pub max_connections: usize,
    /// Requests one connection may have in flight; beyond it the server stops reading.
    pub max_calls: u32,
    /// FETCHes one connection may have waiting; one more that cannot be answered at once is refused.
    pub max_waits: u32,
    /// Bytes per log segment. `None`: the log's default, smaller in a temporary directory.
    pub segment_bytes: Option<u64>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            data_dir: None,
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            durability: Durability::Fsync,
            insecure_listen: false,
            default_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(10),
            max_connections: 4_096,
            max_calls: 1_024,
            max_waits: 256,
            segment_bytes: None,
        }
    }
}
