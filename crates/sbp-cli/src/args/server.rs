//! What is asked of a server over HTTP.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

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
    /// Show the range servers that a placement driver knows, and what is wrong. It has to be started with --http.
    Status(Watched),
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
