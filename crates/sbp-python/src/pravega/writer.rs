//! Writers of events, for blocking code and for asyncio.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pyo3::PyClass;
use pyo3::prelude::*;
use sbp_peers::pravega::{NewEvent, PravegaError, StreamName, Writer};
use tokio::sync::OnceCell;

use super::arguments;
use super::core::PravegaCore;
use crate::api::pair::blocking_and_asyncio;
use crate::bridge::{Operation, RunningLoop};
use crate::owner::Owner;
use crate::process::blocking::block_on;
use crate::process::owned::Owned;
use crate::read::pravega::PravegaClient;
use crate::requests::{Effect, Failure};

/// What the Python objects of one writer share.
pub(crate) struct WriterCore {
    /// Its client, which stays open as long as it.
    core: Arc<PravegaCore>,
    stream: StreamName,
    /// Made with the first call.
    writer: Owned<Arc<OnceCell<Writer>>>,
}

impl WriterCore {
    pub(super) fn new(core: Arc<PravegaCore>, stream: StreamName) -> Arc<Self> {
        Arc::new(Self {
            core,
            stream,
            writer: Owned::new("writer", Arc::default()),
        })
    }

    /// What a call needs, which then runs on the I/O thread.
    fn prepared(&self, py: Python<'_>) -> PyResult<Prepared> {
        Ok(Prepared {
            client: self.core.owned().get(py)?.clone(),
            stream: self.stream.clone(),
            writer: Arc::clone(self.writer.get(py)?),
        })
    }
}

impl Owner for WriterCore {
    type Client = PravegaClient;

    fn owned(&self) -> &Owned<PravegaClient> {
        self.core.owned()
    }
}

struct Prepared {
    client: PravegaClient,
    stream: StreamName,
    writer: Arc<OnceCell<Writer>>,
}

impl Prepared {
    async fn writer(&self) -> Result<&Writer, PravegaError> {
        let open = || self.client.pravega.writer(&self.stream);
        self.writer.get_or_try_init(open).await
    }

    async fn open(self, timeout: Option<Duration>) -> Result<(), Failure> {
        let open = async { self.writer().await.map(|_| ()) };
        self.client.within(timeout, Effect::None, open).await
    }

    async fn append(self, events: Vec<NewEvent>, timeout: Option<Duration>) -> Result<(), Failure> {
        let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
        let append = async { self.writer().await?.append(events).await };
        self.client.within(timeout, Effect::Perhaps, append).await?;
        self.client.counters.written.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }
}

/// Waits until everything is stored, or is known not to be.
async fn close(writer: Arc<OnceCell<Writer>>) {
    if let Some(writer) = writer.get() {
        writer.close().await;
    }
}

blocking_and_asyncio! {
    struct PravegaWriter and AsyncPravegaWriter(Arc<WriterCore>) of "sbp_native.pravega";

    impl PravegaWriter and AsyncPravegaWriter {
        #[getter]
        fn stream(&self) -> String {
            self.0.stream.to_string()
        }

        #[pyo3(signature = (event, key = None, *, timeout = None))]
        fn append<'py>(
            &self,
            py: Python<'py>,
            event: &Bound<'py, PyAny>,
            key: Option<String>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let event = arguments::event(event, key)?;
            let prepared = self.0.prepared(py)?;
            api::run(py, &self.0, timeout, |_, timeout| prepared.append(vec![event], timeout))
        }

        #[pyo3(signature = (events, *, timeout = None))]
        fn append_many<'py>(
            &self,
            py: Python<'py>,
            events: &Bound<'py, PyAny>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let events = arguments::events(events)?;
            let prepared = self.0.prepared(py)?;
            api::run(py, &self.0, timeout, |_, timeout| prepared.append(events, timeout))
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.pravega.{} of {}>", Self::NAME, self.0.stream)
        }
    }

    impl PravegaWriter {
        fn close(&self, py: Python<'_>) -> PyResult<()> {
            match self.0.writer.close() {
                Some(writer) => block_on(py, close(writer)),
                None => Ok(()),
            }
        }

        fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
            let py = slf.py();
            let opening = slf.get().0.prepared(py)?.open(None);
            block_on(py, opening)?.map_err(|failure| failure.into_python(py))?;
            Ok(slf)
        }

        #[pyo3(signature = (*_exception))]
        fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
            self.close(py)
        }
    }

    impl AsyncPravegaWriter {
        fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let event_loop = RunningLoop::current(py)?;
            match self.0.writer.close() {
                Some(writer) => event_loop.spawn(
                    async move {
                        close(writer).await;
                        Ok(())
                    },
                    |py, ()| Ok(py.None()),
                ),
                None => event_loop.ready(Ok(py.None())),
            }
        }

        fn __aenter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            let py = slf.py();
            let core = Arc::clone(&slf.get().0);
            let opening = core.prepared(py)?.open(None);
            // Another object of the same writer: a reference to this one must not travel through the I/O thread.
            RunningLoop::current(py)?.spawn(opening, move |py, ()| Ok(Py::new(py, Self(core))?.into_any()))
        }

        #[pyo3(signature = (*_exception))]
        fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Operation>> {
            self.close(py)
        }
    }
}

impl PravegaWriter {
    pub(super) fn of(core: Arc<WriterCore>) -> Self {
        Self(core)
    }
}

impl AsyncPravegaWriter {
    pub(super) fn of(core: Arc<WriterCore>) -> Self {
        Self(core)
    }
}
