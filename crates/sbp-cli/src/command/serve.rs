//! `sbp serve`

use std::sync::Arc;
use std::thread;

use sbp_server::{Roles, Server, ServerConfig};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Durability, Role, Serve};
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(serve: Serve, terminal: &mut Terminal) -> Result<(), CliError> {
    // Before the server starts: a signal that arrives while it recovers ends it as soon as it is up.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CliError::system("watch signals"))?;
    let server = Arc::new(Server::start(ServerConfig {
        roles: roles(serve.role, serve.placement_driver)?,
        data_dir: Some(serve.data_dir),
        listen: serve.listen,
        advertise: serve.advertise,
        durability: durability(serve.durability),
        insecure_listen: serve.insecure_listen,
        retention_interval: serve.retention_interval,
        max_connections: serve.max_connections,
        max_connections_per_address: serve.max_connections_per_address,
        max_held_bytes: serve.max_held_bytes,
        ..ServerConfig::default()
    })?);
    terminal.line(format_args!("listening on {}", server.address()))?;
    terminal.flush()?;

    let handle = signals.handle();
    let watcher = thread::Builder::new().name("sbp-signals".to_owned()).spawn({
        let server = Arc::clone(&server);
        move || {
            // Ends without a signal when the handle is closed below.
            match signals.forever().next() {
                Some(signal) => {
                    let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                    tracing::info!(signal = name, "asked to end");
                    server.shutdown()
                }
                None => Ok(()),
            }
        }
    });
    let watcher = watcher.map_err(CliError::system("start a thread"))?;

    let failure = server.wait_for_failure();
    handle.close();
    let ended = watcher.join().unwrap_or(Ok(()));
    // After a failure nobody has ended it yet; after a signal this does nothing.
    let ended = ended.and_then(|()| server.shutdown());
    match failure {
        Some(failure) => Err(CliError::Failed(failure)),
        None => Ok(ended?),
    }
}

/// The roles that were asked for.
fn roles(role: Role, placement_driver: Vec<String>) -> Result<Roles, CliError> {
    match role {
        Role::RangeServer => Ok(Roles::RangeServer { placement_driver }),
        _ if !placement_driver.is_empty() => Err(CliError::Usage(
            "--placement-driver is for --role range-server".to_owned(),
        )),
        Role::Both => Ok(Roles::Both),
        Role::PlacementDriver => Ok(Roles::PlacementDriver),
    }
}

/// The server's word for what was asked for.
pub(crate) fn durability(asked: Durability) -> sbp_server::Durability {
    match asked {
        Durability::Fsync => sbp_server::Durability::Fsync,
        Durability::None => sbp_server::Durability::None,
    }
}
