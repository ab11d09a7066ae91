//! Why a server did not start or did not end cleanly.

use std::io;
use std::path::PathBuf;

use sbp_transport::TlsFileError;

use crate::access::AccessError;

/// Why [`Server::start`](crate::Server::start) failed. Every message names the thing and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Something else listens on the address.
    #[error("{address} is taken by another process: stop it, or listen on another port (port 0 picks a free one)")]
    PortTaken {
        /// The address asked for.
        address: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason}; give host:port of this machine")]
    BadAddress {
        /// The address asked for.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A name by which HTTP is to be asked is none.
    #[error(
        "{name:?} cannot be a name by which HTTP is asked (--http-host, http_hosts): {reason}; give the name of the host alone, \
         as a browser has it in its address, such as status.example.com"
    )]
    HttpHost {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file of names and grants cannot be used.
    #[error("cannot tell who may do what: {0}")]
    Access(#[from] AccessError),
    /// The audit file cannot be written.
    #[error("cannot keep the audit file: {0}")]
    Audit(#[source] AccessError),
    /// Other machines could reach the address, and `insecure_listen` is not set.
    #[error(
        "{address} can be reached from other machines, and whoever reaches it could do everything, or read along: listen \
         on 127.0.0.1; or {remedy}; or say insecure_listen (--insecure-listen) if the network is trusted"
    )]
    InsecureListen {
        /// The address asked for.
        address: String,
        /// What makes it secure.
        remedy: String,
    },
    /// A certificate or key for TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFileError),
    /// Another server owns the directory.
    #[error("{} is in use by another server: stop that one, or choose another data directory", .path.display())]
    DirectoryLocked {
        /// The data directory.
        path: PathBuf,
    },
    /// The directory was written by a newer version of the software.
    #[error(
        "{} has format {found}, this version reads up to {supported}: start a newer version on it",
        .path.display()
    )]
    NewerFormat {
        /// The data directory, or the file in it.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format that this version can read.
        supported: u32,
    },
    /// The log holds records of a stream or range that the metadata does not know and does not remember as deleted.
    #[error(
        "the metadata in {} is older than the log: the log holds records of stream {stream}, range {range}, which the \
         metadata does not know. Nothing was dropped: put back the metadata file that belongs to this log",
        .path.display()
    )]
    MetadataOlderThanLog {
        /// The data directory.
        path: PathBuf,
        /// The stream.
        stream: i64,
        /// The range within it.
        range: i32,
    },
    /// The metadata remembers a later start of this directory than the log does: the log is an older copy, or was
    /// removed.
    #[error(
        "the log in {} is older than the metadata: it was started {log} times, the metadata remembers {metadata}. Nothing \
         was dropped: put back the log that belongs to this metadata, or choose another data directory",
        .path.display()
    )]
    LogOlderThanMetadata {
        /// The data directory.
        path: PathBuf,
        /// How many starts the log has counted, including this one.
        log: u64,
        /// How many starts the metadata remembers.
        metadata: u64,
    },
    /// The directory belongs to a server in another role.
    #[error("{} belongs to {found}: start it in that role, or choose another data directory", .path.display())]
    OtherRole {
        /// The data directory.
        path: PathBuf,
        /// The role it belongs to.
        found: &'static str,
    },
    /// The directory was made from a backup of a range server that had ranges.
    #[error(
        "{} was restored from a backup of a range server. What was appended to its ranges since then is not in it, and the others of \
         its cluster would count on it for that: start with an empty data directory, which gets its copies from the other servers. \
         Where no other server has these ranges, restore the backup with --keep-number",
        .path.display()
    )]
    RestoredMember {
        /// The data directory.
        path: PathBuf,
    },
    /// The directory belongs to one cluster, and the metadata in the etcd are those of another one.
    #[error(
        "the data directory {} belongs to the cluster {known}, and the metadata in {store} are {found}: give the location of \
         the metadata of that cluster (--metadata), or start with an empty data directory",
        .path.display()
    )]
    OtherCluster {
        /// The data directory.
        path: PathBuf,
        /// The id of the cluster that it belongs to.
        known: String,
        /// Where the metadata are.
        store: String,
        /// Whose they are.
        found: String,
    },
    /// What the etcd has for the id of the cluster cannot be used.
    #[error("the id of the cluster in {store} cannot be read: {what}; put back what was there")]
    StoredClusterId {
        /// Where the metadata are.
        store: String,
        /// The key, and what is wrong with it.
        what: String,
    },
    /// Metadata in an etcd are for servers that are placement drivers.
    #[error(
        "metadata in etcd ({location}) are for placement drivers, and this one is a range server alone: give it both roles, or the addresses of its placement drivers without the etcd"
    )]
    SharedMetadata {
        /// Where the metadata were to be.
        location: String,
    },
    /// A range server without an id could not get one from its placement driver.
    #[error("cannot get an id for this range server: {reason}; start the placement driver, or give its address")]
    PlacementDriver {
        /// What went wrong, with the placement driver's address.
        reason: String,
    },
    /// The log could not be opened.
    #[error("cannot open the log in {}: {reason}", .path.display())]
    Log {
        /// The data directory.
        path: PathBuf,
        /// The log's error as text.
        reason: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The metadata could not be opened or read.
    #[error("cannot open the metadata in {}: {reason}", .path.display())]
    Metadata {
        /// The data directory.
        path: PathBuf,
        /// What is wrong with the metadata.
        reason: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A directory, file or thread that the server needs could not be created.
    #[error("cannot {what}: {source}")]
    Io {
        /// The step that failed, with the name of the file.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl StartError {
    /// Wraps a system error with the step that failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Why [`Server::shutdown`](crate::Server::shutdown) could not end cleanly. What was acknowledged is safe in any case:
/// the next start recovers it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The log could not write its last checkpoint.
    #[error("the log did not close cleanly: {reason}; the next start recovers it")]
    Log {
        /// The log's error as text.
        reason: String,
    },
    /// The temporary directory could not be deleted.
    #[error("cannot delete the temporary directory {}", .path.display())]
    Temporary {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}
