//! A service, for blocking code and for asyncio.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{IntoPyObjectExt, PyClass};
use sbp_locks::Mutex;
use sbp_peers::seastar::{Codec, Rpc as PeerRpc, RpcConfig, SeastarError, Signature, SinkReply, Submission};

use super::stream::{AsyncRpcStream, RpcStream, StreamCore};
use super::values;
use crate::api::pair::blocking_and_asyncio;
use crate::bridge::{CallVerbs, HandOver, Operation, RunningLoop};
use crate::errors;
use crate::memory::buffer::owned_bytes;
use crate::owner::{Owner, block, made_anew};
use crate::process::blocking::block_on;
use crate::process::fork::{self, Holder};
use crate::process::owned::Owned;
use crate::process::runtime;
use crate::requests::Failure;
use crate::results::ack::OfReply;
use crate::time::seconds;

/// Calls that are worth a hand-over of their own: the service and this side then work at the same time.
const ENOUGH: usize = 64;

/// A service, and how long its calls may take.
#[derive(Clone)]
pub(crate) struct RpcClient {
    rpc: PeerRpc,
    /// For calls that are given no time of their own.
    timeout: Duration,
}

impl RpcClient {
    fn deadline(&self, timeout: Option<Duration>) -> Instant {
        let now = tokio::time::Instant::now().into_std();
        let limit = timeout.unwrap_or(self.timeout);
        // A time that cannot be said is as good as never; the protocol says a day at most.
        now.checked_add(limit).unwrap_or(now + Duration::from_secs(1 << 32))
    }

    async fn send(&self, verb: u64, payload: Bytes, timeout: Option<Duration>) -> Result<(), Failure> {
        Ok(self.rpc.send(verb, payload, self.deadline(timeout)).await?)
    }
}

/// What the Python objects of one service share. It holds no Python object, so that I/O threads may drop it.
pub(crate) struct RpcCore {
    client: Owned<RpcClient>,
    /// Calls of this tick that were not yet handed over.
    waiting: Owned<Mutex<Vec<Submission>>>,
    /// What it was made with, to make another one of: pickles carry this and nothing else.
    address: String,
    compression: Vec<&'static str>,
    isolation: Option<Bytes>,
    timeout: f64,
}

impl RpcCore {
    /// A service's client that is not connected yet.
    fn new(
        py: Python<'_>,
        address: String,
        compression: &[String],
        isolation: Option<&Bound<'_, PyAny>>,
        timeout: f64,
    ) -> PyResult<Arc<Self>> {
        let limit = seconds(timeout)?;
        let codecs = codecs(py, compression)?;
        let isolation = isolation.map(owned_bytes).transpose()?;
        let mut config = RpcConfig {
            codecs: codecs.clone(),
            isolation: isolation.clone(),
            ..RpcConfig::default()
        };
        config.connect_timeout = config.connect_timeout.min(limit);
        config.negotiation_timeout = config.negotiation_timeout.min(limit);
        let client = RpcClient {
            rpc: PeerRpc::new(&address, config, runtime::handle(py)?),
            timeout: limit,
        };
        let core = Arc::new(Self {
            client: Owned::new("client of a service", client),
            waiting: Owned::new("client of a service", Mutex::default()),
            address,
            compression: codecs.into_iter().map(Codec::name).collect(),
            isolation,
            timeout,
        });
        fork::register(py, &core);
        Ok(core)
    }
}

/// Ways to compress, by their names.
pub(super) fn codecs(py: Python<'_>, names: &[String]) -> PyResult<Vec<Codec>> {
    let named = |name: &String| {
        let unknown = || format!("there is no compression {name:?}: give \"LZ4\", \"LZ4_FRAGMENTED\", or both");
        Codec::named(name).ok_or_else(|| errors::invalid(py, &unknown()))
    };
    names.iter().map(named).collect()
}

impl Owner for RpcCore {
    type Client = RpcClient;

    fn owned(&self) -> &Owned<RpcClient> {
        &self.client
    }
}

impl HandOver for RpcCore {
    /// A client that was closed answers the calls itself.
    fn hand_over(&self) {
        if let (Some(client), Some(waiting)) = (self.client.unchecked(), self.waiting.unchecked()) {
            let mut calls = std::mem::take(&mut *waiting.lock());
            client.rpc.submit(&mut calls);
        }
    }
}

impl CallVerbs for RpcCore {
    async fn call(client: RpcClient, verb: u64, payload: Bytes, timeout: Option<Duration>) -> Result<Bytes, Failure> {
        Ok(client.rpc.call(verb, payload, client.deadline(timeout)).await?)
    }

    fn join(&self, client: &RpcClient, verb: u64, payload: Bytes, timeout: Option<Duration>, reply: SinkReply) {
        let Some(waiting) = self.waiting.unchecked() else {
            return;
        };
        let is_enough = {
            let mut waiting = waiting.lock();
            waiting.push(Submission {
                verb,
                payload,
                deadline: client.deadline(timeout),
                reply,
            });
            waiting.len() >= ENOUGH
        };
        if is_enough {
            self.hand_over();
        }
    }
}

impl Holder for RpcCore {
    fn descriptors(&self) -> Vec<RawFd> {
        let client = self.client.inherited();
        client.map(|client| client.rpc.descriptors()).unwrap_or_default()
    }
}

async fn connected(client: RpcClient) -> Result<(), Failure> {
    Ok(client.rpc.connect().await?)
}

async fn open_stream(client: RpcClient) -> Result<Arc<StreamCore>, SeastarError> {
    client.rpc.stream().await.map(StreamCore::new)
}

/// Connects to a service.
#[pyfunction]
#[pyo3(
    signature = (address, *, compression = Vec::new(), isolation = None, timeout = 30.0),
    text_signature = "(address, *, compression=(), isolation=None, timeout=30.0)"
)]
pub(crate) fn seastar_connect(
    py: Python<'_>,
    address: String,
    compression: Vec<String>,
    isolation: Option<&Bound<'_, PyAny>>,
    timeout: f64,
) -> PyResult<Rpc> {
    let core = RpcCore::new(py, address, &compression, isolation, timeout)?;
    block(py, &core, None, |client, _| connected(client))?;
    Ok(Rpc(core))
}

/// A client of a service that connects when it is awaited or entered.
#[pyfunction]
#[pyo3(
    signature = (address, *, compression = Vec::new(), isolation = None, timeout = 30.0),
    text_signature = "(address, *, compression=(), isolation=None, timeout=30.0)"
)]
pub(crate) fn seastar_aio_connect(
    py: Python<'_>,
    address: String,
    compression: Vec<String>,
    isolation: Option<&Bound<'_, PyAny>>,
    timeout: f64,
) -> PyResult<AsyncRpc> {
    Ok(AsyncRpc(RpcCore::new(py, address, &compression, isolation, timeout)?))
}

/// A verb as its callers know it.
pub(crate) struct VerbCore {
    rpc: Arc<RpcCore>,
    number: u64,
    takes: Signature,
    /// `None`: it has no reply.
    returns: Option<Signature>,
}

impl VerbCore {
    fn new(py: Python<'_>, rpc: &Arc<RpcCore>, number: u64, takes: &str, returns: Option<&str>) -> PyResult<Arc<Self>> {
        Ok(Arc::new(Self {
            rpc: Arc::clone(rpc),
            number,
            takes: values::signature(py, takes)?,
            returns: returns.map(|text| values::signature(py, text)).transpose()?,
        }))
    }
}

impl OfReply for VerbCore {
    fn object(&self, py: Python<'_>, reply: &Bytes) -> PyResult<Py<PyAny>> {
        match &self.returns {
            Some(returns) => values::returned(py, self.number, returns, reply),
            None => Ok(py.None()),
        }
    }
}

blocking_and_asyncio! {
    struct Verb and AsyncVerb(Arc<VerbCore>) of "sbp_native.seastar";

    impl Verb and AsyncVerb {
        #[getter]
        fn number(&self) -> u64 {
            self.0.number
        }

        #[pyo3(signature = (*values, timeout = None))]
        fn __call__<'py>(&self, py: Python<'py>, values: &Bound<'py, PyTuple>, timeout: Option<f64>) -> api::Returned<'py> {
            let payload = values::arguments(&self.0.takes, values)?;
            let (core, number, rpc) = (Arc::clone(&self.0), self.0.number, &self.0.rpc);
            if core.returns.is_none() {
                return api::run(py, rpc, timeout, |client, timeout| async move {
                    client.send(number, payload, timeout).await
                });
            }
            api::call_verb(py, rpc, timeout, (number, payload), Some(core as _))
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.seastar.{} {} of {}>", Self::NAME, self.0.number, self.0.rpc.address)
        }
    }
}

blocking_and_asyncio! {
    struct Rpc and AsyncRpc(Arc<RpcCore>) of "sbp_native.seastar";

    impl Rpc and AsyncRpc {
        #[getter]
        fn address(&self) -> &str {
            &self.0.address
        }

        #[pyo3(signature = (verb, data = None, *, timeout = None))]
        fn call<'py>(
            &self,
            py: Python<'py>,
            verb: u64,
            data: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let payload = data.map(owned_bytes).transpose()?.unwrap_or_default();
            api::call_verb(py, &self.0, timeout, (verb, payload), None)
        }

        #[pyo3(signature = (verb, data = None, *, timeout = None))]
        fn send<'py>(
            &self,
            py: Python<'py>,
            verb: u64,
            data: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let payload = data.map(owned_bytes).transpose()?.unwrap_or_default();
            api::run(py, &self.0, timeout, |client, timeout| async move {
                client.send(verb, payload, timeout).await
            })
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.seastar.{} of {}>", Self::NAME, self.0.address)
        }
    }

    impl Rpc {
        #[pyo3(
            signature = (number, takes = "", returns = Some("")),
            text_signature = "($self, number, takes='', returns='')"
        )]
        fn verb(&self, py: Python<'_>, number: u64, takes: &str, returns: Option<&str>) -> PyResult<Verb> {
            Ok(Verb(VerbCore::new(py, &self.0, number, takes, returns)?))
        }

        fn stream(&self, py: Python<'_>) -> PyResult<RpcStream> {
            Ok(RpcStream(block(py, &self.0, None, |client, _| open_stream(client))?))
        }

        fn close(&self, py: Python<'_>) -> PyResult<()> {
            match self.0.client.close() {
                Some(client) => block_on(py, async move { client.rpc.close().await }),
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
            reduce(py, &self.0, "seastar_connect")
        }
    }

    impl AsyncRpc {
        #[pyo3(
            signature = (number, takes = "", returns = Some("")),
            text_signature = "($self, number, takes='', returns='')"
        )]
        fn verb(&self, py: Python<'_>, number: u64, takes: &str, returns: Option<&str>) -> PyResult<AsyncVerb> {
            Ok(AsyncVerb(VerbCore::new(py, &self.0, number, takes, returns)?))
        }

        fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let client = self.0.client.get(py)?.clone();
            let opening = async move { open_stream(client).await.map_err(Failure::from) };
            RunningLoop::current(py)?.spawn(opening, |py, core| AsyncRpcStream(core).into_py_any(py))
        }

        fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let event_loop = RunningLoop::current(py)?;
            match self.0.client.close() {
                Some(client) => event_loop.spawn(
                    async move {
                        client.rpc.close().await;
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
            reduce(py, &self.0, "seastar_aio_connect")
        }
    }
}

/// A pickle of a service's client is what it was made with.
fn reduce<'py>(py: Python<'py>, core: &RpcCore, maker: &str) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(py);
    keywords.set_item("compression", &core.compression)?;
    keywords.set_item(
        "isolation",
        core.isolation.as_ref().map(|cookie| PyBytes::new(py, cookie)),
    )?;
    keywords.set_item("timeout", core.timeout)?;
    made_anew(maker, Some(&core.address), &keywords)
}
