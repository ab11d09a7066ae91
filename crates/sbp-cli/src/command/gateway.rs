//! `sbp gateway`, and clients of other protocols beside `sbp serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sbp_gateway::pravega::PravegaServer;
use sbp_gateway::seastar::SeastarServer;
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
    let mut all = Vec::new();
    for (protocol, listen) in [
        (Protocol::Tank, &gateway.tank_listen),
        (Protocol::Seastar, &gateway.seastar_listen),
        (Protocol::Pravega, &gateway.pravega_listen),
    ] {
        let Some(listen) = listen else { continue };
        let config = TankConfig {
            listen: listen.clone(),
            insecure_listen: gateway.insecure_listen,
            max_connections: gateway.limits.max_connections,
            max_connections_per_address: gateway.limits.max_connections_per_address,
            max_held_bytes: gateway.limits.max_held_bytes,
        };
        let one = One::start(
            protocol,
            &gateway.connection,
            &config,
            gateway.pravega_advertise.as_ref(),
        )?;
        // Whether there is such a service shows now, not when the first client comes.
        one.session.wait(one.session.client.connect(None))?;
        all.push(one);
    }
    let others = Others(all);
    others.tell(terminal)?;
    terminal.flush()?;
    let signal = signals.forever().next();
    tracing::info!(signal, "asked to end");
    others.close();
    Ok(())
}

/// What clients speak.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    Tank,
    Seastar,
    Pravega,
}

impl Protocol {
    /// Its name in what is printed.
    fn name(self) -> &'static str {
        match self {
            Self::Tank => "TANK",
            Self::Seastar => "Seastar RPC",
            Self::Pravega => "Pravega",
        }
    }

    /// Where it is asked for.
    fn argument(self) -> &'static str {
        match self {
            Self::Tank => "--tank-listen",
            Self::Seastar => "--seastar-listen",
            Self::Pravega => "--pravega-listen",
        }
    }
}

/// Servers for clients of other protocols.
pub(crate) struct Others(Vec<One>);

/// A server for clients of another protocol, and the client of the service that is behind it.
struct One {
    protocol: Protocol,
    server: Server,
    session: Session,
}

enum Server {
    Tank(TankServer),
    Seastar(SeastarServer),
    Pravega(PravegaServer),
}

/// What `sbp serve` was told of clients of other protocols.
pub(crate) struct Asked(Vec<AskedOne>);

struct AskedOne {
    protocol: Protocol,
    config: TankConfig,
    token_file: Option<PathBuf>,
    /// Where clients of Pravega are sent.
    advertise: Option<(String, u16)>,
}

impl Asked {
    pub(crate) fn of(serve: &Serve) -> Result<Self, CliError> {
        let mut all = Vec::new();
        let told = &serve.others;
        for (protocol, listen, token_file) in [
            (Protocol::Tank, &told.tank_listen, &told.tank_token_file),
            (Protocol::Seastar, &told.seastar_listen, &told.seastar_token_file),
            (Protocol::Pravega, &told.pravega_listen, &told.pravega_token_file),
        ] {
            let Some(listen) = listen.clone() else { continue };
            if serve.role == Role::RangeServer {
                let argument = protocol.argument();
                return Err(CliError::Usage(format!(
                    "{argument} is for servers that are a placement driver: beside a range server alone use `sbp gateway`"
                )));
            }
            let config = TankConfig {
                listen,
                insecure_listen: serve.insecure_listen,
                max_connections: serve.max_connections,
                max_connections_per_address: serve.max_connections_per_address,
                max_held_bytes: serve.max_held_bytes,
            };
            let token_file = token_file.clone();
            all.push(AskedOne {
                protocol,
                config,
                token_file,
                advertise: told.pravega_advertise.clone(),
            });
        }
        Ok(Self(all))
    }

    /// Starts them beside a server.
    pub(crate) fn start(self, server: &ObservedServer) -> Result<Others, CliError> {
        let each = self.0.into_iter().map(|asked| asked.start(server));
        Ok(Others(each.collect::<Result<_, _>>()?))
    }
}

impl AskedOne {
    fn start(self, server: &ObservedServer) -> Result<One, CliError> {
        let Some(inside) = server.address_inside() else {
            return Err(CliError::Usage(format!(
                "{} reaches its server without TLS, inside this machine: give --plain-listen 127.0.0.1:PORT beside --tls-cert, \
                 or use `sbp gateway`",
                self.protocol.argument()
            )));
        };
        let connection = Connection {
            servers: inside.to_string(),
            timeout: TIMEOUT,
            tls: ClientTls::default(),
            token_file: self.token_file,
            token_in_clear: false,
        };
        One::start(self.protocol, &connection, &self.config, self.advertise.as_ref())
    }
}

impl One {
    /// `advertise` is where clients of Pravega are sent, if it is said.
    fn start(
        protocol: Protocol,
        connection: &Connection,
        config: &TankConfig,
        advertise: Option<&(String, u16)>,
    ) -> Result<Self, CliError> {
        let session = Session::new(connection)?;
        let server = match protocol {
            Protocol::Tank => Server::Tank(TankServer::start(&session.client, config)?),
            Protocol::Seastar => Server::Seastar(SeastarServer::start(&session.client, config)?),
            Protocol::Pravega => Server::Pravega(PravegaServer::start_at(&session.client, config, advertise.cloned())?),
        };
        Ok(Self {
            protocol,
            server,
            session,
        })
    }

    fn address(&self) -> SocketAddr {
        match &self.server {
            Server::Tank(server) => server.address(),
            Server::Seastar(server) => server.address(),
            Server::Pravega(server) => server.address(),
        }
    }

    fn close(self) {
        match self.server {
            Server::Tank(server) => self.session.wait(server.close()),
            Server::Seastar(server) => self.session.wait(server.close()),
            Server::Pravega(server) => self.session.wait(server.close()),
        }
    }
}

impl Others {
    /// Prints where clients connect.
    pub(crate) fn tell(&self, terminal: &mut Terminal) -> Result<(), CliError> {
        for one in &self.0 {
            terminal.line(format_args!("{} on {}", one.protocol.name(), one.address()))?;
        }
        Ok(())
    }

    /// Ends all connections.
    pub(crate) fn close(self) {
        for one in self.0 {
            one.close();
        }
    }
}
