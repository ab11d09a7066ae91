//! A server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sbp_seastar::{Connection, ServerConfig};
use sbp_transport::{Descriptors, Host, HostConfig, HostError, Hosting, Mailbox};
use tokio::runtime::Handle;

use super::serving::{Clients, Handler, ServerCommand, ServerConnection};

/// How long connections are waited for when a server closes: as long as last bytes may take, and a little.
const CLOSING: Duration = Duration::from_secs(7);
/// Bits of a connection's id below its number; servers of the field have the number of a processor there.
const ID_SHIFT: u32 = 16;

/// A server for clients of Seastar RPC.
#[derive(Debug)]
pub struct RpcServer(Hosting<Service>);

impl RpcServer {
    /// Serves clients with `handler`. Everything runs in this runtime. What is said of each connection in `each` holds for
    /// all, except for its id.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn start(
        handler: Arc<dyn Handler>,
        config: &HostConfig,
        each: ServerConfig,
        runtime: &Handle,
    ) -> Result<Self, HostError> {
        let service = Service {
            handler,
            clients: Arc::default(),
            each,
            last: AtomicU64::new(0),
        };
        Hosting::start(service, config, runtime).map(Self)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The sockets, for the sake of forked children.
    #[must_use]
    pub fn descriptors(&self) -> &Arc<Descriptors> {
        self.0.descriptors()
    }

    /// Accepts nobody more, and ends all connections. Calls that were not answered have no answer.
    pub async fn close(&self) {
        self.0.close_within(CLOSING).await;
    }
}

struct Service {
    handler: Arc<dyn Handler>,
    clients: Arc<Clients>,
    each: ServerConfig,
    last: AtomicU64,
}

impl Host for Service {
    type Application = ServerConnection;

    const PROTOCOL: &'static str = "Seastar RPC";

    fn last_command() -> ServerCommand {
        ServerCommand::End
    }

    fn serve(
        &self,
        mailbox: Mailbox<ServerCommand>,
        address: SocketAddr,
        since: Instant,
    ) -> (Connection, ServerConnection) {
        let id = (self.last.fetch_add(1, Ordering::Relaxed) + 1) << ID_SHIFT;
        let config = ServerConfig {
            connection_id: Some(id),
            ..self.each.clone()
        };
        let (handler, clients) = (Arc::clone(&self.handler), Arc::clone(&self.clients));
        let application = ServerConnection::new(handler, clients, mailbox, address, id);
        (Connection::server(config, since), application)
    }
}
