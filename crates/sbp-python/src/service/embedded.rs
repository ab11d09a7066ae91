//! A running server, and what is in front of its streams for clients of other protocols, where that was asked for.

use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use sbp_client::{Client, ClientConfig, TokenSource};
use sbp_gateway::pravega::PravegaServer;
use sbp_gateway::seastar::SeastarServer;
use sbp_gateway::tank::TankServer;
use sbp_http::{HttpConfig, ObservedServer};
use sbp_peers::seastar::{HostConfig, HostError};
use sbp_server::{ServerConfig, ShutdownError, StartError};
use tokio::runtime::Handle;

use crate::errors;
use crate::process::fork::Holder;

/// What is to be started.
pub(super) struct Configuration {
    pub(super) server: ServerConfig,
    pub(super) http: Option<HttpConfig>,
    pub(super) tank: Option<GatewayRequest>,
    pub(super) pravega: Option<GatewayRequest>,
    pub(super) seastar: Option<GatewayRequest>,
}

/// How clients of another protocol are served.
#[derive(Clone)]
pub(super) struct GatewayRequest {
    pub(super) config: HostConfig,
    /// The file with the token by which they are known to the server.
    pub(super) token: Option<PathBuf>,
}

/// Why nothing was started.
pub(super) enum StartFailure {
    Server(StartError),
    Gateway(HostError),
    /// It has no address without TLS, which this argument needs.
    TlsAlone(&'static str),
}

impl StartFailure {
    pub(super) fn into_python(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Server(error) => errors::from_start(py, &error),
            Self::Gateway(error) => errors::from_host(py, &error),
            Self::TlsAlone(argument) => {
                let message = format!(
                    "{argument} reaches its server without TLS, inside this machine: give plain_listen=\"127.0.0.1:0\" beside \
                     tls=, or use `sbp gateway`"
                );
                errors::bad_server_config(py, &message)
            }
        }
    }
}

/// A server that runs.
pub(super) struct Embedded {
    server: ObservedServer,
    tank: Option<Gateway<TankServer>>,
    pravega: Option<Gateway<PravegaServer>>,
    seastar: Option<Gateway<SeastarServer>>,
}

/// A server for clients of another protocol, and the client of the server of streams that it answers from.
struct Gateway<S> {
    front: S,
    client: Client,
    runtime: Handle,
    is_closed: AtomicBool,
}

/// What clients of another protocol connect to.
trait Front: Sized {
    /// The argument of Python that asks for it.
    const ARGUMENT: &'static str;

    fn start(client: &Client, config: &HostConfig) -> Result<Self, HostError>;
    fn descriptors(&self) -> Vec<RawFd>;
    async fn close(&self);
}

/// The servers have the same methods, and no trait of their own crate.
macro_rules! fronts {
    ($($server:ty: $argument:literal;)+) => {$(
        impl Front for $server {
            const ARGUMENT: &'static str = $argument;

            fn start(client: &Client, config: &HostConfig) -> Result<Self, HostError> {
                Self::start(client, config)
            }

            fn descriptors(&self) -> Vec<RawFd> {
                self.descriptors()
            }

            async fn close(&self) {
                self.close().await;
            }
        }
    )+};
}

fronts! {
    TankServer: "tank=";
    PravegaServer: "pravega=";
    SeastarServer: "seastar=";
}

/// A gateway, whatever it speaks.
trait Running {
    fn close(&self);
    fn descriptors(&self) -> Vec<RawFd>;
}

impl Embedded {
    /// Starts everything, or nothing. `runtime` is where gateways run; waits for the disk.
    pub(super) fn start(wanted: &Configuration, runtime: &Handle) -> Result<Self, StartFailure> {
        let server =
            ObservedServer::start(wanted.server.clone(), wanted.http.as_ref()).map_err(StartFailure::Server)?;
        // Whoever was started is dropped, and so ended, when another one is not.
        let mut started = Self {
            server,
            tank: None,
            pravega: None,
            seastar: None,
        };
        started.tank = Gateway::wanted(&started.server, wanted.tank.as_ref(), runtime)?;
        started.pravega = Gateway::wanted(&started.server, wanted.pravega.as_ref(), runtime)?;
        started.seastar = Gateway::wanted(&started.server, wanted.seastar.as_ref(), runtime)?;
        Ok(started)
    }

    /// Where clients of TANK connect.
    pub(super) fn tank_address(&self) -> Option<SocketAddr> {
        self.tank.as_ref().map(|tank| tank.front.address())
    }

    /// Where clients of Pravega connect.
    pub(super) fn pravega_address(&self) -> Option<SocketAddr> {
        self.pravega.as_ref().map(|pravega| pravega.front.address())
    }

    /// Where clients of Seastar RPC connect.
    pub(super) fn seastar_address(&self) -> Option<SocketAddr> {
        self.seastar.as_ref().map(|seastar| seastar.front.address())
    }

    /// Ends the gateways, whose clients are told first, and the server that they need.
    pub(super) fn shutdown(&self) -> Result<(), ShutdownError> {
        self.close_gateways();
        self.server.shutdown()
    }

    fn gateways(&self) -> impl Iterator<Item = &dyn Running> {
        let tank = self.tank.as_ref().map(|tank| tank as &dyn Running);
        let pravega = self.pravega.as_ref().map(|pravega| pravega as _);
        let seastar = self.seastar.as_ref().map(|seastar| seastar as _);
        [tank, pravega, seastar].into_iter().flatten()
    }

    fn close_gateways(&self) {
        self.gateways().for_each(Running::close);
    }
}

impl<S: Front> Gateway<S> {
    /// The one that is wanted, if one is.
    fn wanted(
        server: &ObservedServer,
        wanted: Option<&GatewayRequest>,
        runtime: &Handle,
    ) -> Result<Option<Self>, StartFailure> {
        wanted.map(|wanted| Self::start(server, wanted, runtime)).transpose()
    }

    fn start(server: &ObservedServer, wanted: &GatewayRequest, runtime: &Handle) -> Result<Self, StartFailure> {
        let alone = StartFailure::TlsAlone(S::ARGUMENT);
        let Some(inside) = server.address_inside() else {
            return Err(alone);
        };
        // An address of a socket is one that clients can read.
        let Ok(mut config) = ClientConfig::new(&inside.to_string()) else {
            return Err(alone);
        };
        config.token = wanted.token.clone().map(TokenSource::file);
        let client = Client::new(config, runtime.clone());
        let front = S::start(&client, &wanted.config).map_err(StartFailure::Gateway)?;
        Ok(Self {
            front,
            client,
            runtime: runtime.clone(),
            is_closed: AtomicBool::new(false),
        })
    }
}

impl<S: Front> Running for Gateway<S> {
    fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.runtime.block_on(async {
                self.front.close().await;
                self.client.close().await;
            });
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.front.descriptors();
        all.extend(self.client.descriptors());
        all
    }
}

impl Deref for Embedded {
    type Target = ObservedServer;

    fn deref(&self) -> &ObservedServer {
        &self.server
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close_gateways();
    }
}

impl Holder for Embedded {
    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.server.descriptors();
        all.extend(self.gateways().flat_map(Running::descriptors));
        all
    }

    fn stop(&self) {
        // Acknowledged records are on disk already; a failure here has nobody left to hear it.
        let _ = self.shutdown();
    }
}
