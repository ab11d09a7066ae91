//! Where clients connect.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use sbp_client::Client;
use sbp_tank::{Connection, ServerConfig};
use sbp_transport::{Host, Hosting, Mailbox};
pub use sbp_transport::{HostConfig as TankConfig, HostError as TankError};

use super::Shared;
use super::command::Command;
use super::connection::TankConnection;

/// A broker for clients of TANK.
#[derive(Debug)]
pub struct TankServer {
    hosting: Hosting<Broker>,
    shared: Arc<Shared>,
}

impl TankServer {
    /// Serves clients of TANK from the streams of the service that `client` is one of. Everything runs in the client's runtime.
    ///
    /// # Errors
    /// [`TankError`].
    pub fn start(client: &Client, config: &TankConfig) -> Result<Self, TankError> {
        Self::start_with(client, config, ServerConfig::default())
    }

    /// As [`Self::start`], with limits for each connection that are not the usual ones.
    ///
    /// # Errors
    /// [`TankError`].
    pub fn start_with(client: &Client, config: &TankConfig, each: ServerConfig) -> Result<Self, TankError> {
        let _inside = client.runtime().enter();
        let shared = Arc::new(Shared::new(client));
        let broker = Broker {
            shared: Arc::clone(&shared),
            each,
        };
        let hosting = Hosting::start(broker, config, client.runtime())?;
        Ok(Self { hosting, shared })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.hosting.address()
    }

    /// The descriptors of its sockets. Takes no lock: a forked child closes them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.hosting.descriptors().snapshot()
    }

    /// Accepts nobody more, and ends all connections. What was handed over to the service is stored or not, as it would be
    /// were a connection lost. Whoever calls it first waits until that is done.
    pub async fn close(&self) {
        self.hosting.close().await;
        self.shared.watch.close().await;
    }
}

/// What serves each connection.
struct Broker {
    shared: Arc<Shared>,
    each: ServerConfig,
}

impl Host for Broker {
    type Application = TankConnection;

    const PROTOCOL: &'static str = "TANK";

    fn last_command() -> Command {
        Command::GiveUp
    }

    fn serve(&self, mailbox: Mailbox<Command>, _: SocketAddr, since: Instant) -> (Connection, TankConnection) {
        let connection = Connection::server(self.each, since);
        (connection, TankConnection::new(Arc::clone(&self.shared), mailbox))
    }
}
