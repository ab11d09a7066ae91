//! The log of the command: lines on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command, LogFormat};

/// What a server logs when nothing else is asked for: its life, damage, a full disk, what it refuses.
const OF_A_SERVER: &str = "info";

/// Starts the log that was asked for. A server has one unless told otherwise, other commands have none. A subscriber
/// that is there already stays.
pub(crate) fn start(cli: &Cli) {
    let by_default = matches!(cli.command, Command::Serve(_)).then_some(OF_A_SERVER);
    let Some(filter) = cli.log.as_deref().or(by_default) else {
        return;
    };
    // `parse_filter` has read it before, so nothing is lost here.
    let filter = EnvFilter::builder().parse_lossy(filter);
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colours);
    let _there_already = match cli.log_format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_ansi(false).try_init(),
    };
}
