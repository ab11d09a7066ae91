//! The embeddable server: placement driver and range server in one process and on one port.
//!
//! Start with [`Server::start`] and a [`ServerConfig`]; the server owns its threads and needs no runtime of the
//! caller's. [`Server::address`] is what a client connects to, [`Server::error`] tells whether the log has failed, and
//! [`Server::shutdown`] ends it cleanly (dropping it does the same).
//!
//! Inside, the two roles are pure state machines with everything that blocks around them: the placement driver decides
//! over streams, names and ranges, the range server over offsets and waiting fetches.

pub mod access;
mod background;
mod backup;
mod cluster_id;
mod config;
mod connection;
mod connections;
mod cursors;
mod data_dir;
mod disk_space;
mod disk_watch;
mod error;
mod etcd;
mod failure;
mod followers;
mod http_get;
mod identity;
mod listener;
mod meta;
mod metrics;
mod monitor;
mod node;
mod observed;
mod offer;
mod origin;
mod peer;
mod placement;
mod range;
mod refusal;
mod refusals;
mod regular;
mod reject;
mod roles;
mod running_time;
mod runtime;
mod scrape;
mod server;
mod start;
mod stats;
mod status;
mod storage;
mod sync_watch;
mod verify;

pub use backup::{
    BackupError, BackupManifest, ManifestFile, ManifestStream, RestoreOptions, Restored, back_up, restore,
};
pub use config::{AccessConfig, ClusterTimes, JwtConfig, KeySource, MetadataConfig, Roles, ServerConfig};
pub use error::{ShutdownError, StartError};
pub use failure::ServerFailure;
pub use http_get::{HttpAnswer, HttpAsker, HttpUrl};
pub use monitor::Monitor;
pub use runtime::check_listen_address;
pub use sbp_etcd::{Location as MetadataLocation, LocationError as MetadataLocationError};
pub use sbp_log::Durability;
#[cfg(feature = "testing")]
pub use sbp_log::ForgetWriters;
pub use sbp_transport::{ClientTlsFiles, ServerTlsFiles, TlsFileError};
pub use sbp_types::Durations;
pub use scrape::Scrape;
pub use server::Server;
pub use stats::ServerStats;
pub use status::{
    Cluster, Counts, CursorRow, DamagedRecords, Gauges, Latencies, Member, Permission, Phase, Problem, Query, RangeRow,
    Readiness, Refused, Replica, Snapshot, Sort, Status, StreamDetail, StreamRow, Streams,
};
pub use verify::{DirectoryFault, DirectoryReport, LostRecords, verify};
