//! `sbp gateway` on the command line, and what `sbp serve` says of other protocols.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::Connection;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("protocols").required(true).multiple(true).args(["tank_listen", "seastar_listen", "pravega_listen"]))]
#[command(after_help = "\
Examples:
  sbp gateway --servers 10.0.0.1:12378,10.0.0.2:12378 --tank-listen 127.0.0.1:11011
  sbp gateway --servers 10.0.0.1:12378,10.0.0.2:12378 --seastar-listen 127.0.0.1:10000
  sbp gateway --servers 10.0.0.1:12378,10.0.0.2:12378 --pravega-listen 127.0.0.1:9090

A topic T is the streams T/0, T/1 ... of a service; what clients of TANK produce is acknowledged when the service has stored it.
Several gateways may stand in front of one service. `sbp serve --tank-listen` has one in the server's process.

Clients of Seastar RPC append and read with verbs 1001 to 1007: see docs/seastar/server.md.

A Pravega segment scope/stream/I.#epoch.0 is the stream scope/stream/I of the service: see docs/pravega/server.md.

Prints `TANK on HOST:PORT`, `Seastar RPC on HOST:PORT` and `Pravega on HOST:PORT` when it is ready. SIGINT or SIGTERM ends it.")]
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
    /// Serve clients of Pravega at this address, which write events to streams and read them; port 0 takes any free one, which is
    /// printed.
    #[arg(long, env = "SBP_PRAVEGA_LISTEN", value_name = "HOST:PORT")]
    pub(crate) pravega_listen: Option<String>,
    /// Send clients of Pravega to this host and port for segments, where they do not reach this one at the address at which they have
    /// reached its controller.
    #[arg(long, value_name = "HOST:PORT", requires = "pravega_listen", value_parser = host_and_port)]
    pub(crate) pravega_advertise: Option<(String, u16)>,
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
    /// Serve clients of Pravega at this address too, which write events to the streams of this server and read them. The bounds on
    /// connections hold for it as well, for itself. Port 0 takes any free one; it is printed.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) pravega_listen: Option<String>,
    /// Send clients of Pravega to this host and port for segments, where they do not reach this one at the address at which they have
    /// reached its controller.
    #[arg(long, value_name = "HOST:PORT", requires = "pravega_listen", value_parser = host_and_port)]
    pub(crate) pravega_advertise: Option<(String, u16)>,
    /// A file with the token by which these clients are known to this server, all of them the same, where it has --auth.
    #[arg(long, value_name = "FILE", requires = "pravega_listen")]
    pub(crate) pravega_token_file: Option<PathBuf>,
}

/// A host and a port as they are written, `HOST:PORT`, which need not be an address of this machine.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let port = |port: &str| port.parse().ok().filter(|port| *port != 0);
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let parts = parts.and_then(|(host, digits)| Some((host.to_owned(), port(digits)?)));
    parts.ok_or_else(|| String::from("it is written HOST:PORT, with a port from 1 to 65535"))
}
