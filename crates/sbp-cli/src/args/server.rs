//! What is asked of a server over HTTP.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Connection;
use super::tls::ClientTls;
use crate::when::parse_duration;

#[derive(Args, Debug)]
pub(crate) struct Server {
    #[command(subcommand)]
    pub(crate) action: ServerAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerAction {
    /// Show counts, latencies, disk and problems of a server that was started with --http.
    Stats(Watched),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterAction {
    /// Show who leads, how range servers are, which ranges they hold, and what is being copied.
    Status {
        #[command(flatten)]
        connection: Connection,
        /// One JSON object instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Move everything away from a range server, so that it can be removed.
    Drain(Drain),
    /// Have open ranges go on on servers that have fewer.
    Balance(Balance),
    /// End a range whose servers are lost for ever, so that its stream goes on without what only they had.
    ForceSeal(ForceSeal),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Its open ranges are sealed and go on on other servers, and its sealed ranges are copied to others. No new range is placed on it. The
mark is kept until it is taken back, so the command may be stopped and given again; it ends when the server may be removed.

Examples:
  sbp cluster drain 3
  sbp cluster drain 3 --undo      use it again")]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The range server's number: `sbp cluster status` lists them.
    #[arg(value_name = "SERVER", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) server: i32,
    /// Use the server again. What was moved stays where it is.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Mark it, and do not wait until it is empty.
    #[arg(long, conflicts_with = "undo")]
    pub(crate) no_wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Ranges are sealed, nothing is copied: the next range of each of their streams begins on other servers. Run it again until nothing is
left to do.")]
pub(crate) struct Balance {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How many ranges are sealed at most.
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u16).range(1..=100), value_name = "NUMBER")]
    pub(crate) most: u16,
}

#[derive(Args, Debug)]
#[command(after_help = "\
For a range of which so many servers have lost their disks that the others cannot say where it ends, or whose servers have all lost the
same records. It ends where the best copy ends that is left; what was acknowledged behind that is lost, and the offsets before it that
nobody can read are named. Refused where enough servers are there and have all of it. Start servers for those that are lost first: the
stream goes on only on as many as have to acknowledge.

Examples:
  sbp cluster force-seal 7/2
  sbp cluster force-seal orders/2 --yes")]
pub(crate) struct ForceSeal {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The range: the stream's number or name, a slash, and the range's index.
    #[arg(value_name = "STREAM/INDEX")]
    pub(crate) range: String,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// A server that answers HTTP.
#[derive(Args, Debug)]
pub(crate) struct Watched {
    /// Where the server answers HTTP: host:port of its --http, with https:// in front of it if that has.
    #[arg(env = "SBP_HTTP", default_value = "127.0.0.1:12380", value_name = "HOST:PORT")]
    pub(crate) address: String,
    /// A file with the token that says who you are, for servers that ask; without it, the token in $SBP_TOKEN is used.
    #[arg(long, env = "SBP_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long the answer may take: 5s, 500ms.
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// Everything the server tells, as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tls: ClientTls,
}
