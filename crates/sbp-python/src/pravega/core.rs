//! What the Python objects of one client of Pravega share.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_peers::pravega::{Pravega as PeerClient, PravegaConfig};

use crate::errors;
use crate::owner::{Owner, made_anew};
use crate::process::fork::{self, Holder};
use crate::process::owned::Owned;
use crate::process::runtime;
use crate::read::pravega::PravegaClient;
use crate::requests::Failure;
use crate::time::seconds;

/// What the Python objects of one client share. It holds no Python object, so that I/O threads may drop it.
pub(crate) struct PravegaCore {
    pub(super) client: Owned<PravegaClient>,
    /// What it was made with, to make another one of: pickles carry this and nothing else.
    made_with: MadeWith,
}

pub(super) struct MadeWith {
    pub(super) controller: Option<String>,
    pub(super) segment_store: Option<String>,
    pub(super) timeout: f64,
    pub(super) token: String,
}

impl PravegaCore {
    /// A client that is not connected yet.
    pub(super) fn new(py: Python<'_>, made_with: MadeWith) -> PyResult<Arc<Self>> {
        let limit = seconds(made_with.timeout)?;
        let mut config = PravegaConfig {
            token: made_with.token.clone(),
            ..PravegaConfig::default()
        };
        config.connect_timeout = config.connect_timeout.min(limit);
        let runtime = runtime::handle(py)?;
        let pravega = match (&made_with.controller, &made_with.segment_store) {
            (Some(controller), None) => {
                let made = PeerClient::new(controller, config, runtime);
                made.map_err(|error| Failure::from(error).into_python(py))?
            }
            (None, Some(store)) => PeerClient::direct(store, config, runtime),
            _ => {
                let what = "give the address of a controller, or segment_store=, and not both";
                return Err(errors::invalid(py, what));
            }
        };
        let client = PravegaClient {
            pravega,
            timeout: limit,
            counters: Arc::default(),
        };
        let core = Arc::new(Self {
            client: Owned::new("Pravega client", client),
            made_with,
        });
        fork::register(py, &core);
        Ok(core)
    }

    pub(super) fn address(&self) -> &str {
        let MadeWith {
            controller,
            segment_store,
            ..
        } = &self.made_with;
        controller.as_deref().or(segment_store.as_deref()).unwrap_or_default()
    }

    pub(super) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = &self.client.get(py)?.counters;
        let figures = PyDict::new(py);
        figures.set_item("events", counters.events.load(Ordering::Relaxed))?;
        figures.set_item("written", counters.written.load(Ordering::Relaxed))?;
        figures.set_item("lost_bytes", counters.lost_bytes.load(Ordering::Relaxed))?;
        Ok(figures)
    }
}

impl Owner for PravegaCore {
    type Client = PravegaClient;

    fn owned(&self) -> &Owned<PravegaClient> {
        &self.client
    }
}

impl Holder for PravegaCore {
    fn descriptors(&self) -> Vec<RawFd> {
        let client = self.client.inherited();
        client.map(|client| client.pravega.descriptors()).unwrap_or_default()
    }
}

/// A pickle of a client is what it was made with.
pub(super) fn reduce<'py>(py: Python<'py>, core: &PravegaCore, maker: &str) -> PyResult<Bound<'py, PyAny>> {
    let made_with = &core.made_with;
    let keywords = PyDict::new(py);
    keywords.set_item("segment_store", &made_with.segment_store)?;
    keywords.set_item("timeout", made_with.timeout)?;
    keywords.set_item("token", &made_with.token)?;
    made_anew(maker, made_with.controller.as_deref(), &keywords)
}
