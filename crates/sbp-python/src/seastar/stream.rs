//! A stream, for blocking code and for asyncio.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{IntoPyObjectExt, PyClass};
use sbp_client::{ClientError, PeerOutcome, codes};
use sbp_peers::seastar::{SeastarError, Stream};

use crate::api::pair::blocking_and_asyncio;
use crate::bridge::{Operation, RunningLoop};
use crate::memory::buffer::owned_bytes;
use crate::owner::{Owner, block};
use crate::process::owned::Owned;
use crate::requests::Failure;

/// What the Python objects of one stream share.
pub(crate) struct StreamCore {
    stream: Owned<Stream>,
    id: u64,
}

impl StreamCore {
    pub(super) fn new(stream: Stream) -> Arc<Self> {
        let id = stream.id();
        Arc::new(Self {
            stream: Owned::new("stream", stream),
            id,
        })
    }

    /// Cuts the stream, unless both sides have ended it.
    fn abort(&self) {
        if let Some(stream) = self.stream.close() {
            stream.abort();
        }
    }
}

impl Owner for StreamCore {
    type Client = Stream;

    fn owned(&self) -> &Owned<Stream> {
        &self.stream
    }
}

/// Bounds what may wait for the peer.
async fn within<T>(
    timeout: Option<Duration>,
    waiting: impl Future<Output = Result<T, SeastarError>>,
) -> Result<T, Failure> {
    let Some(limit) = timeout else {
        return Ok(waiting.await?);
    };
    match tokio::time::timeout(limit, waiting).await {
        Ok(ended) => Ok(ended?),
        Err(_) => {
            let what = format!("the stream's peer did nothing for {limit:?}");
            let (code, outcome) = (codes::DEADLINE_BEFORE_SEND, PeerOutcome::RefusedForNow);
            Err(Failure::Client(ClientError::of_peer(code, what, outcome, None)))
        }
    }
}

fn message(py: Python<'_>, message: Option<Bytes>) -> PyResult<Py<PyAny>> {
    match message {
        Some(message) => PyBytes::new(py, &message).into_py_any(py),
        None => Ok(py.None()),
    }
}

blocking_and_asyncio! {
    struct RpcStream and AsyncRpcStream(Arc<StreamCore>) of "sbp_native.seastar";

    impl RpcStream and AsyncRpcStream {
        #[getter]
        fn id(&self) -> u64 {
            self.0.id
        }

        #[pyo3(signature = (data, *, timeout = None))]
        fn send<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>, timeout: Option<f64>) -> api::Returned<'py> {
            let data = owned_bytes(data)?;
            api::run(py, &self.0, timeout, |stream, timeout| async move {
                within(timeout, stream.send(data)).await
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn end<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |stream, timeout| async move {
                within(timeout, stream.end()).await
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn receive<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run_into(
                py,
                &self.0,
                timeout,
                |stream, timeout| async move { within(timeout, stream.next()).await },
                message,
            )
        }

        fn abort(&self) {
            self.0.abort();
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.seastar.{} {:#x}>", Self::NAME, self.0.id)
        }
    }

    impl RpcStream {
        fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
            slf
        }

        fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
            let message = block(py, &self.0, None, |stream: Stream, _| async move { stream.next().await })?;
            Ok(message.map(|message| PyBytes::new(py, &message)))
        }

        fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
            slf.get().0.stream.get(slf.py())?;
            Ok(slf)
        }

        #[pyo3(signature = (*_exception))]
        fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
            self.0.abort();
        }
    }

    impl AsyncRpcStream {
        fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
            slf
        }

        fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let stream = self.0.stream.get(py)?.clone();
            let next = async move { stream.next().await.map_err(Failure::from) };
            RunningLoop::current(py)?.spawn(next, |py, next: Option<Bytes>| match next {
                Some(_) => message(py, next),
                None => Err(PyStopAsyncIteration::new_err(())),
            })
        }

        fn __aenter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            let py = slf.py();
            let core = Arc::clone(&slf.get().0);
            core.stream.get(py)?;
            RunningLoop::current(py)?.ready(Self(core).into_py_any(py))
        }

        #[pyo3(signature = (*_exception))]
        fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Operation>> {
            self.0.abort();
            RunningLoop::current(py)?.ready(Ok(py.None()))
        }
    }
}
