//! Batches as they are read, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sbp_python_macros::stub_docs;

use crate::bridge::{Operation, RunningLoop};
use crate::client_core::ClientCore;
use crate::errors;
use crate::memory::arrow;
use crate::owner::Guard;
use crate::process::blocking::block_on;
use crate::process::runtime;
use crate::read::shared_source::{AnySource, BatchListener, SharedSource, Step};
use crate::read::source::{ReadRequest, Source};
use crate::requests::Failure;
use crate::results::batch::Batch;
use crate::time::duration;

type Started<'py> = PyResult<Bound<'py, Operation>>;

fn source(py: Python<'_>, core: &ClientCore, wanted: ReadRequest) -> PyResult<AnySource> {
    let source = Source::new(core.client(py)?.clone(), Arc::clone(&core.copied), wanted);
    Ok(AnySource::Sbp(source))
}

/// A source that is read, and how long a step through it may take: what `Batches` and `AsyncBatches` share.
struct Reading {
    owner: Arc<dyn Guard>,
    source: Arc<SharedSource>,
    timeout: Option<f64>,
}

impl Reading {
    /// The next step, which has not begun.
    fn step(&self, py: Python<'_>) -> PyResult<impl Future<Output = Result<Step, Failure>> + Send + 'static> {
        self.owner.check(py)?;
        let timeout = duration(self.timeout)?;
        Ok(Arc::clone(&self.source).next(timeout))
    }

    /// The end of reading, where the client is there to end it: it frees what was read ahead.
    fn close(&self, py: Python<'_>) -> Option<impl Future<Output = ()> + Send + 'static> {
        self.owner.check(py).ok()?;
        let source = Arc::clone(&self.source);
        Some(async move { source.close().await })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.owner.is_of_this_process() {
            // What was read ahead belongs to threads of the parent.
            std::mem::forget(Arc::clone(&self.source));
        }
    }
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "Batches")]
pub(crate) struct Batches(Reading);

impl Batches {
    /// Begins to read streams; see [`Self::of`].
    pub(crate) fn new(
        py: Python<'_>,
        core: &Arc<ClientCore>,
        wanted: ReadRequest,
        timeout: Option<f64>,
        taken: Option<BatchListener>,
    ) -> PyResult<Self> {
        let source = source(py, core, wanted)?;
        Self::of(py, Arc::clone(core) as _, source, timeout, taken)
    }

    /// Begins to read, so that "latest" means now. `taken` is told of each batch that was
    /// handed out.
    pub(crate) fn of(
        py: Python<'_>,
        owner: Arc<dyn Guard>,
        mut source: AnySource,
        timeout: Option<f64>,
        taken: Option<BatchListener>,
    ) -> PyResult<Self> {
        let limit = duration(timeout)?;
        let opened = block_on(py, async move { source.open(limit).await.map(|()| source) })?;
        let source = opened.map_err(|failure| failure.into_python(py))?;
        Ok(Self(Reading {
            owner,
            source: SharedSource::new(source, taken),
            timeout,
        }))
    }
}

#[stub_docs]
#[pymethods]
impl Batches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        // A step that a signal ends is dropped, which gives back what it took.
        let stepped = block_on(py, self.0.step(py)?)?;
        Ok(stepped.map_err(|failure| failure.into_python(py))?.take())
    }

    /// What is left to read as record batches, in the stream's own columns or ``offset, timestamp, key, value, headers``.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A wish that the protocol allows an exporter not to grant.
        let _ = requested_schema;
        let reading = &self.0;
        reading.owner.check(py)?;
        let source = Arc::clone(&reading.source);
        let schema = block_on(py, async move { source.columns().await })?;
        let schema = schema.map_err(|what| errors::schema_mismatch(py, &what))?;
        let (handle, timeout) = (runtime::handle(py)?, duration(reading.timeout)?);
        let (owner, source) = (Arc::clone(&reading.owner), Arc::clone(&reading.source));
        let forked = "[SBP-9012] these batches were read before a fork, in the parent process; read them anew";
        arrow::export_pulled(py, Arc::clone(&schema), forked, move || {
            // The connection lives as long as it is read from.
            let _ = &owner;
            source
                .pull(&handle, timeout, &schema)
                .map_err(|failure| failure.to_string())
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.0.close(py) {
            Some(closed) => block_on(py, closed),
            None => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "AsyncBatches")]
pub(crate) struct AsyncBatches(Reading);

impl AsyncBatches {
    /// Begins to read streams; see [`Self::of`].
    pub(crate) fn new(
        py: Python<'_>,
        core: &Arc<ClientCore>,
        wanted: ReadRequest,
        timeout: Option<f64>,
        taken: Option<BatchListener>,
    ) -> PyResult<Self> {
        let source = source(py, core, wanted)?;
        Self::of(py, Arc::clone(core) as _, source, timeout, taken)
    }

    /// Begins to read at once, so that "latest" means now. A failure is told by the first step, which tries again. `taken` is told of each batch that was
    /// handed out.
    pub(crate) fn of(
        py: Python<'_>,
        owner: Arc<dyn Guard>,
        source: AnySource,
        timeout: Option<f64>,
        taken: Option<BatchListener>,
    ) -> PyResult<Self> {
        let limit = duration(timeout)?;
        let source = SharedSource::new(source, taken);
        let opened = Arc::clone(&source);
        runtime::handle(py)?.spawn(async move {
            let _ = opened.open(limit).await;
        });
        Ok(Self(Reading { owner, source, timeout }))
    }
}

#[stub_docs]
#[pymethods]
impl AsyncBatches {
    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> Started<'py> {
        let step = self.0.step(py)?;
        RunningLoop::current(py)?.spawn_step(step)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(closed) = self.0.close(py) {
            runtime::handle(py)?.spawn(closed);
        }
        Ok(())
    }

    fn __aenter__<'py>(slf: Bound<'py, Self>) -> Started<'py> {
        let event_loop = RunningLoop::current(slf.py())?;
        event_loop.ready(Ok(slf.into_any().unbind()))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> Started<'py> {
        self.close(py)?;
        RunningLoop::current(py)?.ready(Ok(py.None()))
    }
}
