//! `sbp serve`

use std::sync::Arc;
use std::thread;

use sbp_client::{ConfigError, Scheme, ServerAddress};
use sbp_http::{HttpConfig, ObservedServer};
use sbp_server::{
    AccessConfig, ClientTlsFiles, ClusterTimes, JwtConfig, KeySource, MetadataConfig, Roles, ServerConfig,
};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Durability, Role, Serve};
use crate::command::gateway::{Asked, Others};
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(serve: Serve, terminal: &mut Terminal) -> Result<(), CliError> {
    // Before the server starts: a signal that arrives while it recovers ends it as soon as it is up.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(CliError::system("watch signals"))?;
    let others = Asked::of(&serve)?;
    let (config, http) = configs(serve)?;
    let server = Arc::new(ObservedServer::start(config, http.as_ref())?);
    let others = others.start(&server)?;
    tell_addresses(&server, &others, terminal)?;
    tell_systemd(&[
        NotifyState::Ready,
        NotifyState::Status(&format!("serving at {}", server.address())),
    ]);

    let handle = signals.handle();
    let watcher = thread::Builder::new().name("sbp-signals".to_owned()).spawn({
        let server = Arc::clone(&server);
        move || {
            // Ends without a signal when the handle is closed below.
            for signal in signals.forever() {
                if signal == SIGHUP {
                    reload(&server);
                    continue;
                }
                let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                tracing::info!(signal = name, "asked to end");
                tell_systemd(&[NotifyState::Stopping]);
                // Their clients are told first: they need the server.
                others.close();
                return server.shutdown();
            }
            Ok(())
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

/// Answers SIGHUP: what is wrong with a file is logged where it is read.
fn reload(server: &ObservedServer) {
    let read = server.reload();
    if read.is_empty() {
        tracing::info!("SIGHUP: there is nothing to read again; settings are read when the server starts");
    } else {
        let read = read.join(", ");
        tracing::info!(
            read,
            "SIGHUP: looked at the files again; settings are read when the server starts"
        );
    }
}

/// What is asked for, as the server's own settings and those of its HTTP.
fn configs(serve: Serve) -> Result<(ServerConfig, Option<HttpConfig>), CliError> {
    // One with both roles and its own metadata mostly has no other servers to talk to: without an authority for them none is
    // looked for.
    let is_alone = serve.role == Role::Both && serve.metadata.is_none();
    let names_authority = |files: &ClientTlsFiles| !is_alone || files.ca.is_some();
    let peer_tls = serve.tls.peer_files().filter(names_authority);
    let insecure_listen = serve.insecure_listen;
    let http = serve.http.map(|listen| HttpConfig {
        listen,
        hosts: serve.http_host,
        insecure_listen,
        per_stream: serve.metrics_per_stream,
        ..HttpConfig::default()
    });
    let jwks_ca = serve.jwks_ca;
    let jwt = serve.jwks.map(|keys| JwtConfig {
        keys: KeySource::named(keys, jwks_ca),
        // Both come with the keys.
        issuer: serve.jwt_issuer.unwrap_or_default(),
        audience: serve.jwt_audience.unwrap_or_default(),
    });
    if serve.metadata.is_some() && serve.role == Role::RangeServer {
        return Err(CliError::Usage(
            "--metadata is for placement drivers: a range server alone is given their addresses (--placement-driver)"
                .to_owned(),
        ));
    }
    let metadata_tls = serve.metadata_tls.files();
    let config = ServerConfig {
        metadata: serve.metadata.map(|location| MetadataConfig {
            location,
            tls: metadata_tls,
        }),
        roles: roles(serve.role, &serve.placement_driver, peer_tls.is_some())?,
        tls: serve.tls.files(),
        plain_listen: serve.tls.plain_listen,
        peer_tls,
        data_dir: Some(serve.data_dir),
        listen: serve.listen,
        advertise: serve.advertise,
        durability: durability(serve.durability),
        access: serve.auth.map(|file| AccessConfig { file, jwt }),
        peer_token: serve.peer_token_file,
        peer_token_in_clear: serve.peer_token_in_clear,
        audit: serve.audit,
        insecure_listen,
        retention_interval: serve.retention_interval,
        zone: serve.zone,
        copy_bytes_per_second: serve.copy_bytes_per_second,
        cluster: ClusterTimes {
            renew_after: serve.renew_after,
            replace_after: serve.replace_after,
            ..ClusterTimes::default()
        },
        max_connections: serve.max_connections,
        max_connections_per_address: serve.max_connections_per_address,
        max_unauthenticated_connections: serve.max_unauthenticated_connections,
        max_held_bytes: serve.max_held_bytes,
        ..ServerConfig::default()
    };
    Ok((config, http))
}

/// Prints where the server can be reached.
fn tell_addresses(server: &ObservedServer, others: &Others, terminal: &mut Terminal) -> Result<(), CliError> {
    let scheme = if server.has_tls() { "sbps://" } else { "" };
    terminal.line(format_args!("listening on {scheme}{}", server.address()))?;
    if let Some(plain) = server.plain_addr() {
        terminal.line(format_args!("listening on {plain} without TLS"))?;
    }
    others.tell(terminal)?;
    if let Some(url) = server.http_url() {
        terminal.line(format_args!("status page on {url}/"))?;
    }
    terminal.flush()
}

/// Tells systemd how the server is, where that has started it (`Type=notify`); nobody otherwise.
fn tell_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot tell systemd how the server is");
    }
}

/// The roles that were asked for. `tls`: other servers are talked to over TLS.
fn roles(role: Role, placement_driver: &[String], tls: bool) -> Result<Roles, CliError> {
    match role {
        Role::RangeServer => {
            let (addresses, scheme) =
                ServerAddress::parse_list(&placement_driver.join(",")).map_err(ConfigError::from)?;
            match scheme {
                Some(Scheme::Tls) if !tls => Err(CliError::Usage(
                    "--placement-driver says sbps://, and this server has no --tls-cert and --tls-key".to_owned(),
                )),
                Some(Scheme::Plain) if tls => Err(CliError::Usage(
                    "--placement-driver says sbp://, which is without TLS, and this server has --tls-cert: servers of a \
                     cluster use TLS with all others or with none"
                        .to_owned(),
                )),
                _ => Ok(Roles::RangeServer {
                    placement_driver: addresses.iter().map(ToString::to_string).collect(),
                }),
            }
        }
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
