//! The `sbp` command as a library: one server, streams, appends, fetches and benchmarks from a terminal.
//!
//! [`run`] takes the arguments and returns the exit code, so that the binary and other programs that carry the command
//! (a Python console script) are thin. It sets no global state that outlives the call, except that `serve` watches
//! SIGINT and SIGTERM and passes them on to handlers that were there before.

mod args;
mod bench;
mod command;
mod error;
mod input;
mod json;
mod local_server;
mod logging;
mod output;
mod session;
mod settings;
mod terminal;
mod when;

use std::ffi::OsString;

use crate::args::{Cli, Command};
use crate::error::CliError;
use crate::settings::{Asked, Refused};
use crate::terminal::Terminal;

/// Runs the command with `args`, of which the first is the program's name. Returns the exit code: 0 for success, 1 for
/// a failure, 2 for arguments that make no sense, 3 for a data directory that is damaged.
pub fn run(args: impl IntoIterator<Item = OsString>) -> i32 {
    let mut terminal = Terminal::new();
    let done = match settings::parse(args) {
        Ok(Asked::Run(cli)) => {
            logging::start(&cli);
            dispatch(*cli, &mut terminal)
        }
        Ok(Asked::Print(text)) => terminal.line(text.trim_end()),
        Err(Refused::File(error)) => Err(error),
        Err(Refused::Arguments(refusal)) => {
            // Help and version are "errors" to clap, with an exit code of 0. A closed pipe is nobody's fault.
            let _ = refusal.print();
            return refusal.exit_code();
        }
    };
    match done {
        Ok(()) => 0,
        Err(error) if error.is_closed_pipe() => 0,
        Err(error) => {
            terminal.complain(&error);
            error.exit_code()
        }
    }
}

fn dispatch(cli: Cli, terminal: &mut Terminal) -> Result<(), CliError> {
    match cli.command {
        Command::Serve(serve) => command::serve::run(*serve, terminal),
        Command::Stream(stream) => command::stream::run(stream, terminal),
        Command::Range(range) => command::range::run(range, terminal),
        Command::Cluster(cluster) => command::cluster::run(&cluster, terminal),
        Command::Server(server) => command::server::run(&server, terminal),
        Command::Token(token) => command::token::run(token, terminal),
        Command::Cursor(cursor) => command::cursor::run(cursor, terminal),
        Command::Append(append) => command::append::run(append, terminal),
        Command::Fetch(fetch) => command::fetch::run(&fetch, terminal),
        Command::Import(import) => command::import::run(import, terminal),
        Command::Ping(ping) => command::ping::run(&ping, terminal),
        Command::Bench(bench) => bench::run(bench, terminal),
        Command::Tls(tls) => command::tls::run(tls, terminal),
        Command::Gateway(gateway) => command::gateway::run(&gateway, terminal),
        Command::Proxy(proxy) => command::proxy::run(proxy, terminal),
        Command::Backup(backup) => command::backup::back_up(&backup, terminal),
        Command::Restore(restore) => command::backup::restore(&restore, terminal),
        Command::Verify(verify) => command::verify::run(&verify, terminal),
        Command::Completions(completions) => command::pages::completions(&completions, settings::command(), terminal),
        Command::Man(man) => command::pages::man(&man, settings::command_without_help(), terminal),
    }
}
