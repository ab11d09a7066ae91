//! The configuration of a server.

use std::path::PathBuf;
use std::time::Duration;

use sbp_etcd::Location as MetadataLocation;
use sbp_log::Durability;
use sbp_transport::{ClientTlsFiles, ServerTlsFiles};

use crate::monitor::Monitor;

/// Which of the two roles a server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roles {
    /// Both roles, in one process and on one port.
    #[default]
    Both,
    /// The placement driver: decides which streams and ranges exist and on which range servers; range servers register
    /// with it.
    PlacementDriver,
    /// A range server: holds the ranges that its placement driver places on it.
    RangeServer {
        /// `host:port` of the placement driver; several addresses are tried in turn.
        placement_driver: Vec<String>,
    },
}

/// Where placement drivers that share their metadata have them.
#[derive(Clone, Debug)]
pub struct MetadataConfig {
    /// The members of the etcd, and the name of the cluster in it.
    pub location: MetadataLocation,
    /// TLS towards etcd. `None`: it is plain.
    pub tls: Option<ClientTlsFiles>,
}

impl Roles {
    /// The word for it, as the command line has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::PlacementDriver => "placement-driver",
            Self::RangeServer { .. } => "range-server",
        }
    }
}

/// Who may do what on a server.
#[derive(Clone, Debug)]
pub struct AccessConfig {
    /// The file of names, grants and what is kept of tokens; see [`AuthFile`](crate::access::AuthFile). It is read again
    /// within a second of each change, while the server runs.
    pub file: PathBuf,
    /// OAuth tokens that are believed. `None`: none are.
    pub jwt: Option<JwtConfig>,
}

/// Which OAuth tokens (JSON Web Tokens) a server believes. What their subject may do, the file of names says.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// Where the issuer's public keys are, as a JSON Web Key Set.
    pub keys: KeySource,
    /// Who issues the tokens: their `iss`.
    pub issuer: String,
    /// For whom the tokens have to be: one of their `aud`.
    pub audience: String,
}

/// Where the public keys are that OAuth tokens are signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file. It is read again within a second of each change.
    File(PathBuf),
    /// An address, `https://…`; `http://` on loopback alone.
    Url {
        /// The address.
        url: String,
        /// The authorities that may have issued its certificate. `None`: those that the machine trusts.
        ca: Option<PathBuf>,
        /// After which time the keys are fetched again; they are sooner where a token names a key that is not there, but not
        /// before a tenth of this.
        refresh: Duration,
    },
}

impl KeySource {
    /// How long keys from an address are used before they are fetched again.
    pub const REFRESH: Duration = Duration::from_secs(300);

    /// What a user has named: an address where it begins as one, else a file. `ca` is for an address.
    #[must_use]
    pub fn named(named: PathBuf, ca: Option<PathBuf>) -> Self {
        match named.to_str() {
            Some(url) if url.starts_with("https://") || url.starts_with("http://") => Self::Url {
                url: url.to_owned(),
                ca,
                refresh: Self::REFRESH,
            },
            _ => Self::File(named),
        }
    }
}

/// How placement driver and range servers keep an eye on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTimes {
    /// How often a range server says to its placement driver that it is there.
    pub heartbeat_interval: Duration,
    /// A range server of which a placement driver hears nothing for so long counts as dead: the ranges that it shares with
    /// others are sealed, and go on without it.
    pub silence: Duration,
    /// A range on fewer servers than its stream is to have replicas goes on on more of them when those have been there for so
    /// long.
    pub renew_after: Duration,
    /// The copies of sealed ranges that a range server has are made elsewhere when nothing was heard of it for so long.
    pub replace_after: Duration,
}

impl Default for ClusterTimes {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(1),
            silence: Duration::from_secs(3),
            renew_after: Duration::from_secs(30),
            replace_after: Duration::from_secs(60),
        }
    }
}

/// The configuration of a [`Server`](crate::Server). Change what is to differ from [`ServerConfig::default`].
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The role or roles of the server.
    pub roles: Roles,
    /// Where the metadata of a placement driver are that shares them with others, one of which leads. `None`: in its
    /// directory, and there is no other. Not for [`Roles::RangeServer`]. A server with [both roles](Roles::Both) and such
    /// metadata has range server and placement driver as apart as if each had a process of its own.
    pub metadata: Option<MetadataConfig>,
    /// Where log and metadata live; created when it does not exist. `None`: a temporary directory, deleted at shutdown.
    pub data_dir: Option<PathBuf>,
    /// `host:port` to listen on. Port 0 lets the system choose one; [`Server::address`](crate::Server::address) tells
    /// which.
    pub listen: String,
    /// TLS on the address listened on. `None`: it is plain.
    pub tls: Option<ServerTlsFiles>,
    /// A second `host:port` to listen on without TLS, on loopback: for programs on the same machine. Only with `tls`.
    pub plain_listen: Option<String>,
    /// TLS towards the other servers of a cluster. `None`: plain.
    pub peer_tls: Option<ClientTlsFiles>,
    /// A file with the token that says to other servers of the cluster who this one is. It is read for each connection to
    /// one of them, and when it asks for another because the token is about to expire.
    pub peer_token: Option<PathBuf>,
    /// Whether that token may be sent without TLS to servers on other machines, where others on the network can read it.
    pub peer_token_in_clear: bool,
    /// How long a client may take for the handshake of TLS before its connection is closed.
    pub handshake_timeout: Duration,
    /// `host:port` that clients are told to dial. `None`: the address listened on.
    pub advertise: Option<String>,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// Who may do what. `None`: everybody who can connect may do everything.
    pub access: Option<AccessConfig>,
    /// A file to which each change of streams and ranges and each refusal by access is appended, one JSON object on a line:
    /// when, who, from where, what, and with which outcome. `None`: nothing is written.
    pub audit: Option<PathBuf>,
    /// Allows `listen` to name an address other machines can reach, although whoever can connect may do everything, or
    /// can read along.
    pub insecure_listen: bool,
    /// How long requests without a timeout of their own may take before they are started.
    pub default_timeout: Duration,
    /// How long shutdown waits for calls that were started, before it closes their connections.
    pub shutdown_grace: Duration,
    /// Connections served at once; the next one is closed as soon as it is accepted, or told so in the answer to its
    /// HEARTBEAT where the server asks who it is.
    pub max_connections: usize,
    /// Connections that may be open at once from one IP address.
    pub max_connections_per_address: usize,
    /// Connections whose peers have yet to say who they are: amid the handshake of TLS, or, with `access`, before a HEARTBEAT
    /// that was believed. They do not count among `max_connections`. When there are so many, the next one is accepted and
    /// the oldest of them is closed: who means it is known within a round trip or two.
    pub max_unauthenticated_connections: usize,
    /// Requests one connection may have in flight; at this number the server stops reading from it.
    pub max_calls: u32,
    /// FETCHes of one connection that may wait for data; a further one that cannot be answered at once is refused.
    pub max_waits: u32,
    /// Bytes of appends that may wait for the disk, over all connections. From a quarter of it on clients are asked to wait
    /// before their next append; beyond it appends are refused, to be sent again later.
    pub max_pending_bytes: u64,
    /// Bytes that all connections together may hold: requests in progress, and answers that their peers have not taken
    /// yet. Above it, connections with more than their share wait, and are closed if that does not help.
    pub max_held_bytes: u64,
    /// How often retention is applied. Records may be kept this much longer than their stream's settings ask for.
    pub retention_interval: Duration,
    /// How long the server waits between two checks of sealed files of its log for damage.
    pub scrub_interval: Duration,
    /// How long one operation of the disk may take before it counts as hung, which is logged and shown as a problem while
    /// it lasts.
    pub disk_patience: Duration,
    /// How often the disk is asked how much room it has. What shows it shows the last answer.
    pub disk_space_interval: Duration,
    /// How often a range server reports its load to its placement driver.
    pub report_interval: Duration,
    /// How long nothing may be heard of a server that holds ranges with this one before it is missed: the ranges that this one
    /// leads are sealed without it, and where too few are heard, clients are sent elsewhere.
    pub replica_silence: Duration,
    /// Where a range server stands: what is lost together has one name, such as a rack or a room. Placement drivers put the copies of
    /// a range into different zones, as far as there are such. At most 255 bytes; empty: it does not say.
    pub zone: String,
    /// The most bytes of sealed ranges that a range server sends to others each second, so that copies leave room for appends; 0:
    /// no bound.
    pub copy_bytes_per_second: u64,
    /// How placement driver and range servers keep an eye on each other.
    pub cluster: ClusterTimes,
    /// How long the start of a range server in a process of its own waits until its placement driver knows of it, so that
    /// streams can be made on it at once. Where that takes longer it starts all the same, and registers when it can.
    pub registration_timeout: Duration,
    /// Where the server can be looked at, from its start on.
    pub monitor: Monitor,
    /// Bytes per log segment. `None`: the log's default, smaller in a temporary directory.
    pub segment_bytes: Option<u64>,
    /// The file system to use instead of the machine's: one that a test can slow down, fill or break.
    #[cfg(feature = "testing")]
    pub files: Option<std::sync::Arc<dyn sbp_log::FileSystem>>,
    /// Makes the log forget writers, so that a test can show that it would notice.
    #[cfg(feature = "testing")]
    pub forget_writers: sbp_log::ForgetWriters,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            roles: Roles::Both,
            metadata: None,
            data_dir: None,
            listen: "127.0.0.1:0".to_owned(),
            tls: None,
            plain_listen: None,
            peer_tls: None,
            peer_token: None,
            peer_token_in_clear: false,
            handshake_timeout: Duration::from_secs(10),
            advertise: None,
            durability: Durability::Fsync,
            access: None,
            audit: None,
            insecure_listen: false,
            default_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(10),
            max_connections: 4_096,
            max_connections_per_address: 4_096,
            max_unauthenticated_connections: 1_024,
            max_calls: 1_024,
            max_waits: 256,
            max_pending_bytes: 512 << 20,
            max_held_bytes: 1 << 30,
            retention_interval: Duration::from_secs(30),
            scrub_interval: Duration::from_secs(60),
            disk_patience: Duration::from_secs(5),
            disk_space_interval: Duration::from_secs(5),
            report_interval: Duration::from_secs(3),
            replica_silence: sbp_replication::PATIENCE,
            zone: String::new(),
            copy_bytes_per_second: 64 << 20,
            cluster: ClusterTimes::default(),
            registration_timeout: Duration::from_secs(5),
            monitor: Monitor::default(),
            segment_bytes: None,
            #[cfg(feature = "testing")]
            files: None,
            #[cfg(feature = "testing")]
            forget_writers: sbp_log::ForgetWriters::Never,
        }
    }
}
