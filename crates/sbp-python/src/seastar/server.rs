//! A server whose handlers are Python's.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use sbp_locks::Mutex;
use sbp_peers::seastar::{Exception, Handler, HostConfig, Incoming, RpcServer as PeerServer, ServerConfig, reply_all};
use sbp_python_macros::stub_docs;
use tokio::sync::Notify;

use super::rpc::codecs;
use super::stream::{AsyncRpcStream, StreamCore};
use super::values;
use crate::bridge::{Operation, RunningLoop};
use crate::errors;
use crate::process::fork::{self, Holder};
use crate::process::owned::Owned;
use crate::process::runtime;
use crate::requests::Failure;

/// Calls that are handed out at once.
const AT_ONCE: usize = 256;

/// Calls that no handler has begun with.
#[derive(Default)]
struct Waiting {
    state: Mutex<Calls>,
    changed: Notify,
}

#[derive(Default)]
struct Calls {
    calls: VecDeque<Incoming>,
    is_closed: bool,
}

impl Handler for Waiting {
    fn call(&self, incoming: Incoming) {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            // Dropped without an answer: its connection ends.
            return drop(incoming);
        }
        state.calls.push_back(incoming);
        drop(state);
        self.changed.notify_one();
    }
}

impl Waiting {
    /// The next calls that are not late; none when the server was closed.
    async fn next(&self) -> Vec<Incoming> {
        loop {
            let changed = pin!(self.changed.notified());
            {
                let mut state = self.state.lock();
                let count = state.calls.len().min(AT_ONCE);
                let mut next: Vec<_> = state.calls.drain(..count).collect();
                let is_closed = state.is_closed;
                drop(state);
                // Nobody waits for those.
                next.retain(|incoming| !incoming.is_late());
                if !next.is_empty() || is_closed {
                    return next;
                }
                if count > 0 {
                    continue;
                }
            }
            changed.await;
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.calls);
        drop(state);
        drop(left);
        self.changed.notify_one();
    }
}

/// A server that runs.
pub(crate) struct Serving {
    server: Mutex<Option<PeerServer>>,
    waiting: Arc<Waiting>,
    descriptors: Arc<dyn Fn() -> Vec<RawFd> + Send + Sync>,
}

/// What the Python object has, also when the server is closed.
pub(crate) struct ServerCore {
    serving: Owned<Arc<Serving>>,
    address: String,
}

impl Holder for ServerCore {
    fn descriptors(&self) -> Vec<RawFd> {
        let serving = self.serving.inherited();
        serving.map(|serving| (serving.descriptors)()).unwrap_or_default()
    }
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native.seastar", name = "RpcServer")]
pub(crate) struct RpcServer(Arc<ServerCore>);

#[stub_docs]
#[pymethods]
impl RpcServer {
    #[new]
    #[pyo3(signature = (listen, *, compression, insecure_listen = false))]
    fn new(py: Python<'_>, listen: &str, compression: Vec<String>, insecure_listen: bool) -> PyResult<Self> {
        let waiting = Arc::new(Waiting::default());
        let config = HostConfig {
            insecure_listen,
            ..HostConfig::new(listen)
        };
        let each = ServerConfig {
            codecs: codecs(py, &compression)?,
            ..ServerConfig::default()
        };
        let handler = Arc::clone(&waiting) as Arc<dyn Handler>;
        let started = PeerServer::start(handler, &config, each, &runtime::handle(py)?);
        let server = started.map_err(|error| errors::from_host(py, &error))?;
        let address = server.address().to_string();
        let sockets = Arc::clone(server.descriptors());
        let serving = Arc::new(Serving {
            server: Mutex::new(Some(server)),
            waiting,
            descriptors: Arc::new(move || sockets.snapshot()),
        });
        let core = Arc::new(ServerCore {
            serving: Owned::new("server", serving),
            address,
        });
        fork::register(py, &core);
        Ok(Self(core))
    }

    #[getter]
    fn address(&self) -> &str {
        &self.0.address
    }

    fn next_calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
        let waiting = Arc::clone(&self.0.serving.get(py)?.waiting);
        let next = async move { Ok::<_, Failure>(waiting.next().await) };
        RunningLoop::current(py)?.spawn(next, |py, calls| {
            let list = PyList::empty(py);
            for incoming in calls {
                list.append(RpcCall::new(incoming))?;
            }
            list.into_py_any(py)
        })
    }

    /// Each a call, and what it returned as bytes, or why it failed as a text.
    fn reply_all(&self, py: Python<'_>, replies: Vec<(Py<RpcCall>, Bound<'_, PyAny>)>) -> PyResult<()> {
        let mut all = Vec::with_capacity(replies.len());
        for (call, reply) in replies {
            let Some(incoming) = call.get().incoming.lock().take() else {
                continue;
            };
            let reply = match reply.cast::<PyBytes>() {
                Ok(bytes) => Ok(bytes::Bytes::copy_from_slice(bytes.as_bytes())),
                Err(_) if reply.is_none() => Err(Exception::UnknownVerb(incoming.verb)),
                Err(_) => Err(Exception::user(reply.extract::<String>()?)),
            };
            all.push((incoming, reply));
        }
        py.detach(|| reply_all(all));
        Ok(())
    }

    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
        let event_loop = RunningLoop::current(py)?;
        let Some(serving) = self.0.serving.close() else {
            return event_loop.ready(Ok(py.None()));
        };
        serving.waiting.close();
        let server = serving.server.lock().take();
        event_loop.spawn(
            async move {
                if let Some(server) = server {
                    server.close().await;
                }
                Ok(())
            },
            |py, ()| Ok(py.None()),
        )
    }
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native.seastar", name = "RpcCall")]
pub(crate) struct RpcCall {
    /// `None`: it was answered.
    incoming: Mutex<Option<Incoming>>,
    made_by: fork::Generation,
    verb: u64,
    address: String,
    isolation: Option<bytes::Bytes>,
    due: Option<Instant>,
}

impl RpcCall {
    fn new(incoming: Incoming) -> Self {
        let client = Arc::clone(incoming.client());
        Self {
            verb: incoming.verb,
            due: incoming.due,
            address: client.address.to_string(),
            isolation: client.isolation.clone(),
            made_by: fork::current(),
            incoming: Mutex::new(Some(incoming)),
        }
    }
}

impl Drop for RpcCall {
    fn drop(&mut self) {
        if !self.made_by.is_current() {
            // The threads of its connection live in the parent.
            std::mem::forget(self.incoming.lock().take());
        }
    }
}

#[stub_docs]
#[pymethods]
impl RpcCall {
    #[getter]
    fn verb(&self) -> u64 {
        self.verb
    }

    #[getter]
    fn client(&self) -> &str {
        &self.address
    }

    #[getter]
    fn isolation<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.isolation.as_ref().map(|cookie| PyBytes::new(py, cookie))
    }

    #[getter]
    fn time_left(&self) -> Option<f64> {
        let due = self.due?;
        Some(due.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    fn arguments<'py>(&self, py: Python<'py>, takes: &str) -> PyResult<Bound<'py, PyTuple>> {
        let signature = values::signature(py, takes)?;
        let answered = || PyValueError::new_err("the call was answered already");
        let payload = self.incoming.lock().as_ref().map(|incoming| incoming.payload.clone());
        let payload = payload.ok_or_else(answered)?;
        let decoded = signature.decode(&payload);
        let decoded =
            decoded.map_err(|fault| PyValueError::new_err(format!("the arguments cannot be read: {fault}")))?;
        let stream = |py: Python<'_>, id: u64| {
            let stream = self.incoming.lock().as_ref().and_then(|incoming| incoming.stream(id));
            let stream = stream.ok_or_else(|| PyValueError::new_err(format!("there is no stream {id:#x}")))?;
            AsyncRpcStream(StreamCore::new(stream)).into_py_any(py)
        };
        values::objects(py, decoded, &stream, signature.types())
    }
}

/// What a handler has returned, as bytes.
#[pyfunction]
pub(crate) fn seastar_result<'py>(value: &Bound<'py, PyAny>, returns: &str) -> PyResult<Bound<'py, PyBytes>> {
    let signature = values::signature(value.py(), returns)?;
    Ok(PyBytes::new(value.py(), &values::result(&signature, value)?))
}
