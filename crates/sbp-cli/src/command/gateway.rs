//! `sbp gateway`, and clients of other protocols beside `sbp serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sbp_gateway::tank::{TankConfig, TankServer};
use sbp_http::ObservedServer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{ClientTls, Connection, Gateway, Role, Serve};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

/// How long a call may take that a client of another protocol waits for.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(gateway: &Gateway, terminal: &mut Terminal) -> Result<(), CliError> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CliError::system("watch signals"))?;
    let config = TankConfig {
        listen: gateway.tank_listen.clone(),
        insecure_listen: gateway.insecure_listen,
        max_connections: gateway.limits.max_connections,
        max_connections_per_address: gateway.limits.max_connections_per_address,
        max_held_bytes: gateway.limits.max_held_bytes,
    };
    let tank = Tank::start(&gateway.connection, &config)?;
    // Whether there is such a service shows now, not when the first client comes.
    tank.session.wait(tank.session.client.connect(None))?;
    terminal.line(format_args!("TANK on {}", tank.address()))?;
    terminal.flush()?;
    let signal = signals.forever().next();
    tracing::info!(signal, "asked to end");
    tank.close();
    Ok(())
}

/// A broker for clients of TANK, and the client of the service that is behind it.
pub(crate) struct Tank {
    server: TankServer,
    session: Session,
}

/// What `sbp serve` was told of clients of TANK.
pub(crate) struct Asked {
    config: TankConfig,
    token_file: Option<PathBuf>,
}

impl Asked {
    /// `None`: they are not served.
    pub(crate) fn of(serve: &Serve) -> Result<Option<Self>, CliError> {
        let Some(listen) = serve.tank.tank_listen.clone() else {
            return Ok(None);
        };
        if serve.role == Role::RangeServer {
            return Err(CliError::Usage(
                "--tank-listen is for servers that are a placement driver: beside a range server alone use `sbp gateway`"
                    .to_owned(),
            ));
        }
        Ok(Some(Self {
            config: TankConfig {
                listen,
                insecure_listen: serve.insecure_listen,
                max_connections: serve.max_connections,
                max_connections_per_address: serve.max_connections_per_address,
                max_held_bytes: serve.max_held_bytes,
            },
            token_file: serve.tank.tank_token_file.clone(),
        }))
    }

    /// Starts it beside a server.
    pub(crate) fn start(self, server: &ObservedServer) -> Result<Tank, CliError> {
        let Some(inside) = server.address_inside() else {
            return Err(CliError::Usage(
                "--tank-listen reaches its server without TLS, inside this machine: give --plain-listen 127.0.0.1:PORT beside \
                 --tls-cert, or use `sbp gateway`"
                    .to_owned(),
            ));
        };
        let connection = Connection {
            servers: inside.to_string(),
            timeout: TIMEOUT,
            tls: ClientTls::default(),
            token_file: self.token_file,
            token_in_clear: false,
        };
        Tank::start(&connection, &self.config)
    }
}

impl Tank {
    fn start(connection: &Connection, config: &TankConfig) -> Result<Self, CliError> {
        let session = Session::new(connection)?;
        let server = TankServer::start(&session.client, config)?;
        Ok(Self { server, session })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Ends all connections.
    pub(crate) fn close(self) {
        self.session.wait(self.server.close());
    }
}
