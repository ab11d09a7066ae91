//! `sbp gateway` on the command line, and what `sbp serve` says of other protocols.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::Connection;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("protocols").required(true).multiple(true).args(["tank_listen", "seastar_listen"]))]
#[command(after_help = "\
Examples:
  sbp gateway --servers 10.0.0.1:12378,10.0.0.2:12378 --tank-listen 127.0.0.1:11011
  sbp gateway --servers 10.0.0.1:12378,10.0.0.2:12378 --seastar-listen 127.0.0.1:10000

A topic T is the streams T/0, T/1 ... of a service; what clients of TANK produce is acknowledged when the service has stored it.
Several gateways may stand in front of one service. `sbp serve --tank-listen` has one in the server's process.

Clients of Seastar RPC append and read with verbs 1001 to 1007: see docs/seastar/server.md.

Prints `TANK on HOST:PORT` and `Seastar RPC on HOST:PORT` when it is ready. SIGINT or SIGTERM ends it.")]
pub(crate) struct Gateway {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Serve clients of TANK brokers at this address; port 0 takes any free one, which is printed.
    #[arg(long, env = "SBP_TANK_LISTEN", value_name = "HOST:PORT")]
    pub(crate) tank_listen: Option<String>,
    /// Serve clients of Seastar RPC at this address, which append to streams and read them; port 0 takes any free one, which is
    /// printed.
    #[arg(long, env = "SBP_SEASTAR_LISTEN", value_name = "HOST:PORT")]
    pub(crate) seastar_listen: Option<String>,
    /// Listen where other machines can connect, although they could do everything: these protocols have no passwords and no TLS.
    #[arg(long)]
    pub(crate) insecure_listen: bool,
    #[command(flatten)]
    pub(crate) limits: GatewayLimits,
}

/// What connections of a gateway may take.
#[derive(Args, Debug)]
pub(crate) struct GatewayLimits {
    /// Connections served at once; more are closed as they come.
    #[arg(long, default_value_t = 4_096, value_name = "COUNT")]
    pub(crate) max_connections: usize,
    /// How many of them one address may have.
    #[arg(long, default_value_t = 4_096, value_name = "COUNT")]
    pub(crate) max_connections_per_address: usize,
    /// Bytes that all connections together may hold: requests in progress, answers that nobody took yet.
    #[arg(long, default_value_t = 1 << 30, value_name = "BYTES")]
    pub(crate) max_held_bytes: u64,
}

/// What `sbp serve` says of other protocols.
#[derive(Args, Debug)]
pub(crate) struct ServeOthers {
    /// Serve clients of TANK brokers at this address too: topic T is the streams T/0, T/1 ... of this server. The bounds on
    /// connections hold for it as well, each for itself. Port 0 takes any free one; it is printed.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) tank_listen: Option<String>,
    /// A file with the token by which these clients are known to this server, all of them the same, where it has --auth.
    #[arg(long, value_name = "FILE", requires = "tank_listen")]
    pub(crate) tank_token_file: Option<PathBuf>,
    /// Serve clients of Seastar RPC at this address too, which append to the streams of this server and read them, with verbs
    /// 1001 to 1007. The bounds on connections hold for it as well, for itself. Port 0 takes any free one; it is printed.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) seastar_listen: Option<String>,
    /// A file with the token by which these clients are known to this server, all of them the same, where it has --auth.
    #[arg(long, value_name = "FILE", requires = "seastar_listen")]
    pub(crate) seastar_token_file: Option<PathBuf>,
}
