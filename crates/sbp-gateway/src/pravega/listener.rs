//! Where clients connect.

use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use sbp_client::Client;
use sbp_pravega::{Connection, ServerConfig};
use sbp_transport::{Host, Hosting, Link, Mailbox};
pub use sbp_transport::{HostConfig as PravegaConfig, HostError as PravegaError};

use super::Shared;
use super::command::Command;
use super::connection::PravegaConnection;
use super::controller::Controller;

/// What connections to the controller begin with, which are those of HTTP/2.
const CONTROLLER: &[u8] = b"PRI ";

/// A controller and a segment store for clients of Pravega, at one address.
#[derive(Debug)]
pub struct PravegaServer {
    hosting: Hosting<Store>,
    shared: Arc<Shared>,
}

impl PravegaServer {
    /// Serves clients of Pravega from the streams of the service that `client` is one of. Everything runs in the client's runtime.
    ///
    /// # Errors
    /// [`PravegaError`].
    pub fn start(client: &Client, config: &PravegaConfig) -> Result<Self, PravegaError> {
        Self::start_at(client, config, None)
    }

    /// As [`Self::start`], where the controller sends clients to this host and port, and not to where they have reached it.
    ///
    /// # Errors
    /// [`PravegaError`].
    pub fn start_at(
        client: &Client,
        config: &PravegaConfig,
        advertised: Option<(String, u16)>,
    ) -> Result<Self, PravegaError> {
        Self::start_all(client, config, advertised, ServerConfig::default())
    }

    /// As [`Self::start`], with limits for each connection to the segment store that are not the usual ones.
    ///
    /// # Errors
    /// [`PravegaError`].
    pub fn start_with(client: &Client, config: &PravegaConfig, each: ServerConfig) -> Result<Self, PravegaError> {
        Self::start_all(client, config, None, each)
    }

    fn start_all(
        client: &Client,
        config: &PravegaConfig,
        advertised: Option<(String, u16)>,
        each: ServerConfig,
    ) -> Result<Self, PravegaError> {
        let _inside = client.runtime().enter();
        let shared = Arc::new(Shared::new(client));
        let store = Store {
            controller: Controller::new(Arc::clone(&shared.catalog), Arc::clone(&shared), advertised),
            shared: Arc::clone(&shared),
            each,
        };
        let hosting = Hosting::start(store, config, client.runtime())?;
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
        self.shared.appending.close().await;
        self.shared.watch.close().await;
    }
}

/// What serves each connection.
struct Store {
    shared: Arc<Shared>,
    controller: Arc<Controller<Shared>>,
    each: ServerConfig,
}

impl Host for Store {
    type Application = PravegaConnection;

    const PROTOCOL: &'static str = "Pravega";

    fn last_command() -> Command {
        Command::GiveUp
    }

    fn serve(&self, mailbox: Mailbox<Command>, _: SocketAddr, since: Instant) -> (Connection, PravegaConnection) {
        let connection = Connection::server(self.each, since);
        (connection, PravegaConnection::new(Arc::clone(&self.shared), mailbox))
    }

    fn other_begins_with(&self) -> Option<&'static [u8]> {
        Some(CONTROLLER)
    }

    fn serve_other(&self, link: Link, reached: SocketAddr) -> impl Future<Output = ()> + Send {
        Arc::clone(&self.controller).serve(link, reached)
    }
}
