//! A running server, and the TANK broker in front of its streams where one was asked for.

use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use sbp_client::{Client, ClientConfig, TokenSource};
use sbp_gateway::tank::{TankConfig, TankError, TankServer};
use sbp_http::{HttpConfig, ObservedServer};
use sbp_server::{ServerConfig, ShutdownError, StartError};
use tokio::runtime::Handle;

use crate::errors;
use crate::process::fork::Holder;

/// What is to be started.
pub(super) struct Configuration {
    pub(super) server: ServerConfig,
    pub(super) http: Option<HttpConfig>,
    pub(super) tank: Option<TankRequest>,
}

/// How clients of TANK are served.
#[derive(Clone)]
pub(super) struct TankRequest {
    pub(super) config: TankConfig,
    /// The file with the token by which they are known to the server.
    pub(super) token: Option<PathBuf>,
}

/// Why nothing was started.
pub(super) enum StartFailure {
    Server(StartError),
    Tank(TankError),
    /// It has no address without TLS.
    TlsAlone,
}

impl StartFailure {
    pub(super) fn into_python(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Server(error) => errors::from_start(py, &error),
            Self::Tank(error) => errors::from_tank_listener(py, &error),
            Self::TlsAlone => errors::bad_server_config(
                py,
                "tank= reaches its server without TLS, inside this machine: give plain_listen=\"127.0.0.1:0\" beside tls=, or \
                 use `sbp gateway`",
            ),
        }
    }
}

/// A server that runs.
pub(super) struct Embedded {
    server: ObservedServer,
    tank: Option<Tank>,
}

/// A TANK broker, and the client of the server that it answers from.
struct Tank {
    broker: TankServer,
    client: Client,
    runtime: Handle,
    is_closed: AtomicBool,
}

impl Embedded {
    /// Starts everything, or nothing. `runtime` is where the broker runs; waits for the disk.
    pub(super) fn start(wanted: &Configuration, runtime: &Handle) -> Result<Self, StartFailure> {
        let server =
            ObservedServer::start(wanted.server.clone(), wanted.http.as_ref()).map_err(StartFailure::Server)?;
        let tank = wanted.tank.as_ref();
        let tank = tank.map(|tank| Tank::start(&server, tank, runtime)).transpose()?;
        Ok(Self { server, tank })
    }

    /// Where clients of TANK connect.
    pub(super) fn tank_address(&self) -> Option<SocketAddr> {
        self.tank.as_ref().map(|tank| tank.broker.address())
    }

    /// Ends the broker, whose clients are told first, and the server that it needs.
    pub(super) fn shutdown(&self) -> Result<(), ShutdownError> {
        if let Some(tank) = &self.tank {
            tank.close();
        }
        self.server.shutdown()
    }
}

impl Tank {
    fn start(server: &ObservedServer, wanted: &TankRequest, runtime: &Handle) -> Result<Self, StartFailure> {
        let inside = server.address_inside().ok_or(StartFailure::TlsAlone)?;
        // An address of a socket is one that clients can read.
        let mut config = ClientConfig::new(&inside.to_string()).map_err(|_| StartFailure::TlsAlone)?;
        config.token = wanted.token.clone().map(TokenSource::file);
        let client = Client::new(config, runtime.clone());
        let broker = TankServer::start(&client, &wanted.config).map_err(StartFailure::Tank)?;
        Ok(Self {
            broker,
            client,
            runtime: runtime.clone(),
            is_closed: AtomicBool::new(false),
        })
    }

    fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.runtime.block_on(async {
                self.broker.close().await;
                self.client.close().await;
            });
        }
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
        if let Some(tank) = &self.tank {
            tank.close();
        }
    }
}

impl Holder for Embedded {
    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.server.descriptors();
        if let Some(tank) = &self.tank {
            all.extend(tank.broker.descriptors());
            all.extend(tank.client.descriptors());
        }
        all
    }

    fn stop(&self) {
        // Acknowledged records are on disk already; a failure here has nobody left to hear it.
        let _ = self.shutdown();
    }
}
