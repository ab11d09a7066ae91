//! A broker, for blocking code and for asyncio.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_peers::tank::{Broker as PeerBroker, BrokerConfig};

use super::arguments;
use crate::api::pair::blocking_and_asyncio;
use crate::bridge::{Operation, RunningLoop};
use crate::owner::{Owner, block, made_anew};
use crate::process::blocking::block_on;
use crate::process::fork::{self, Holder};
use crate::process::owned::Owned;
use crate::process::runtime;
use crate::read::shared_source::AnySource;
use crate::read::tank::{TankClient, TankSource};
use crate::requests::{Effect, Failure};
use crate::time::seconds;

/// What the Python objects of one broker share. It holds no Python object, so that I/O threads may drop it.
pub(crate) struct BrokerCore {
    client: Owned<TankClient>,
    /// What it was made with, to make another one of: pickles carry this and nothing else.
    address: String,
    timeout: f64,
}

impl BrokerCore {
    /// A broker's client that is not connected yet.
    fn new(py: Python<'_>, address: String, timeout: f64) -> PyResult<Arc<Self>> {
        let limit = seconds(timeout)?;
        let mut config = BrokerConfig::default();
        config.connect_timeout = config.connect_timeout.min(limit);
        let client = TankClient {
            broker: PeerBroker::new(&address, config, runtime::handle(py)?),
            timeout: limit,
            counters: Arc::default(),
        };
        let core = Arc::new(Self {
            client: Owned::new("broker", client),
            address,
            timeout,
        });
        fork::register(py, &core);
        Ok(core)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = &self.client.get(py)?.counters;
        let figures = PyDict::new(py);
        figures.set_item("messages", counters.messages.load(Ordering::Relaxed))?;
        figures.set_item("skipped", counters.skipped.load(Ordering::Relaxed))?;
        figures.set_item("lost", counters.lost.load(Ordering::Relaxed))?;
        Ok(figures)
    }
}

impl Owner for BrokerCore {
    type Client = TankClient;

    fn owned(&self) -> &Owned<TankClient> {
        &self.client
    }
}

impl Holder for BrokerCore {
    fn descriptors(&self) -> Vec<RawFd> {
        let client = self.client.inherited();
        client.map(|client| client.broker.descriptors()).unwrap_or_default()
    }
}

impl Broker {
    pub(super) fn core(&self) -> &Arc<BrokerCore> {
        &self.0
    }
}

/// Has the broker greet, and answer something.
async fn connected(client: TankClient) -> Result<(), Failure> {
    client.within(None, Effect::None, client.broker.connect()).await
}

/// Connects to a broker.
#[pyfunction]
#[pyo3(signature = (address, *, timeout = 30.0))]
pub(crate) fn tank_connect(py: Python<'_>, address: String, timeout: f64) -> PyResult<Broker> {
    let core = BrokerCore::new(py, address, timeout)?;
    block(py, &core, None, |client, _| connected(client))?;
    Ok(Broker(core))
}

/// A client of a broker that connects when it is awaited or entered.
#[pyfunction]
#[pyo3(signature = (address, *, timeout = 30.0))]
pub(crate) fn tank_aio_connect(py: Python<'_>, address: String, timeout: f64) -> PyResult<AsyncBroker> {
    Ok(AsyncBroker(BrokerCore::new(py, address, timeout)?))
}

blocking_and_asyncio! {
    struct Broker and AsyncBroker(Arc<BrokerCore>) of "sbp_native.tank";

    impl Broker and AsyncBroker {
        #[getter]
        fn address(&self) -> &str {
            &self.0.address
        }

        #[pyo3(signature = (topic, partition, records, *, timestamp = None, timeout = None))]
        fn produce<'py>(
            &self,
            py: Python<'py>,
            topic: String,
            partition: u16,
            records: &Bound<'py, PyAny>,
            timestamp: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let bundle = arguments::bundle(records, timestamp)?;
            api::run(py, &self.0, timeout, |client, timeout| async move {
                let call = client.broker.produce(&topic, partition, bundle);
                client.within(timeout, Effect::Perhaps, call).await
            })
        }

        #[pyo3(
            signature = (topic, partitions = None, *, start = None, end = None, timeout = None),
            text_signature = "($self, topic, partitions=None, *, start='earliest', end=None, timeout=None)"
        )]
        fn read(
            &self,
            py: Python<'_>,
            topic: String,
            partitions: Option<&Bound<'_, PyAny>>,
            start: Option<&Bound<'_, PyAny>>,
            end: Option<&Bound<'_, PyAny>>,
            timeout: Option<f64>,
        ) -> PyResult<api::Batches> {
            let wanted = arguments::request(partitions, start, end)?;
            let client = self.0.client.get(py)?.clone();
            let source = AnySource::Tank(TankSource::new(client, topic, wanted));
            api::Batches::of(py, Arc::clone(&self.0) as _, source, timeout, None)
        }

        #[pyo3(signature = (*, timeout = None))]
        fn topics<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                client.within(timeout, Effect::None, client.broker.topics()).await
            })
        }

        #[pyo3(signature = (topic, *, timeout = None))]
        fn partitions<'py>(&self, py: Python<'py>, topic: String, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                let call = client.broker.partitions(&topic);
                let bounds = client.within(timeout, Effect::None, call).await?;
                let served = (0_u16..).zip(bounds).filter_map(|(partition, bounds)| Some((partition, bounds?)));
                Ok(served.collect::<Vec<_>>())
            })
        }

        #[pyo3(signature = (topic, partitions = 1, *, timeout = None))]
        fn create_topic<'py>(
            &self,
            py: Python<'py>,
            topic: String,
            partitions: u16,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                let call = client.broker.create_topic(&topic, partitions);
                client.within(timeout, Effect::Perhaps, call).await
            })
        }

        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.0.stats(py)
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.tank.{} of {}>", Self::NAME, self.0.address)
        }
    }

    impl Broker {
        fn close(&self, py: Python<'_>) -> PyResult<()> {
            match self.0.client.close() {
                Some(client) => block_on(py, async move { client.broker.close().await }),
                None => Ok(()),
            }
        }

        fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
            slf.get().0.client.get(slf.py())?;
            Ok(slf)
        }

        #[pyo3(signature = (*_exception))]
        fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.0, "tank_connect")
        }
    }

    impl AsyncBroker {
        fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let event_loop = RunningLoop::current(py)?;
            match self.0.client.close() {
                Some(client) => event_loop.spawn(
                    async move {
                        client.broker.close().await;
                        Ok(())
                    },
                    |py, ()| Ok(py.None()),
                ),
                None => event_loop.ready(Ok(py.None())),
            }
        }

        fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            Self::__aenter__(slf)
        }

        fn __aenter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            let py = slf.py();
            let core = Arc::clone(&slf.get().0);
            let client = core.client.get(py)?.clone();
            // Another object of the same client: a reference to this one must not travel through the I/O thread.
            RunningLoop::current(py)?.spawn(connected(client), move |py, ()| Ok(Py::new(py, Self(core))?.into_any()))
        }

        #[pyo3(signature = (*_exception))]
        fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Operation>> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.0, "tank_aio_connect")
        }
    }
}

/// A pickle of a broker is what it was made with.
fn reduce<'py>(py: Python<'py>, core: &BrokerCore, maker: &str) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(py);
    keywords.set_item("timeout", core.timeout)?;
    made_anew(maker, Some(&core.address), &keywords)
}
