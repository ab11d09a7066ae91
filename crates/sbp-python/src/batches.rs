//! Batches as they are read, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::batch::Batch;
use crate::blocking::block_on;
use crate::bridge::{Here, Operation};
use crate::core::{Core, duration};
use crate::read::{Source, Wanted};
use crate::record_batches::RecordBatches;
use crate::step::{SharedSource, Taken};
use crate::{arrow, errors, runtime};

type Started<'py> = PyResult<Bound<'py, Operation>>;

fn source(py: Python<'_>, core: &Core, wanted: Wanted) -> PyResult<Source> {
    Ok(Source::new(core.client(py)?.clone(), Arc::clone(&core.copied), wanted))
}

/// Batches as they are read. Closing it, or leaving its ``with`` block, frees what was read ahead.
///
/// It is an Arrow stream as well: ``pyarrow.table(batches)`` or ``polars.DataFrame(batches)`` has all that is left to
/// read, in the columns of :meth:`Batch.to_arrow`, and those columns without rows when there is nothing.
///
/// >>> import pyarrow
/// >>> pyarrow.table(client.create_stream("orders").read()).column_names
/// ['offset', 'timestamp', 'key', 'value', 'headers']
#[pyclass(frozen, module = "sbp_native", name = "Batches")]
pub(crate) struct Batches {
    core: Arc<Core>,
    source: Arc<SharedSource>,
    timeout: Option<f64>,
}

impl Batches {
    /// Begins to read, so that "latest" means now.
    pub(crate) fn new(py: Python<'_>, core: &Arc<Core>, wanted: Wanted, timeout: Option<f64>) -> PyResult<Self> {
        Self::noted(py, core, wanted, timeout, None)
    }

    /// The same, for somebody who is told of each batch that was handed out.
    pub(crate) fn noted(
        py: Python<'_>,
        core: &Arc<Core>,
        wanted: Wanted,
        timeout: Option<f64>,
        taken: Option<Taken>,
    ) -> PyResult<Self> {
        let limit = duration(timeout)?;
        let mut source = source(py, core, wanted)?;
        let opened = block_on(py, async move { source.open(limit).await.map(|()| source) })?;
        let source = opened.map_err(|failure| failure.into_python(py))?;
        Ok(Self {
            core: Arc::clone(core),
            source: SharedSource::new(source, taken),
            timeout,
        })
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.core.client(py)?;
        let timeout = duration(self.timeout)?;
        let source = Arc::clone(&self.source);
        // A step that a signal ends is dropped, which gives back what it took.
        let stepped = block_on(py, async move { source.next(timeout).await })?;
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
        self.core.client(py)?;
        let source = Arc::clone(&self.source);
        let schema = block_on(py, async move { source.columns().await })?;
        let schema = schema.map_err(|what| errors::schema_mismatch(py, &what))?;
        let (handle, timeout) = (runtime::handle(py)?, duration(self.timeout)?);
        let batches = RecordBatches::new(&self.core, handle, Arc::clone(&self.source), timeout, schema);
        arrow::export_stream(py, Box::new(batches))
    }

    /// Stops reading.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.core.client(py).is_err() {
            return Ok(());
        }
        let source = Arc::clone(&self.source);
        block_on(py, async move { source.close().await })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if !self.core.is_of_this_process() {
            std::mem::forget(Arc::clone(&self.source));
        }
    }
}

/// Batches as they are read, for ``async for``.
#[pyclass(frozen, module = "sbp_native", name = "AsyncBatches")]
pub(crate) struct AsyncBatches {
    core: Arc<Core>,
    source: Arc<SharedSource>,
    timeout: Option<f64>,
}

impl AsyncBatches {
    /// Begins to read at once, so that "latest" means now. A failure is told by the first step, which tries again.
    pub(crate) fn new(py: Python<'_>, core: &Arc<Core>, wanted: Wanted, timeout: Option<f64>) -> PyResult<Self> {
        Self::noted(py, core, wanted, timeout, None)
    }

    /// The same, for somebody who is told of each batch that was handed out.
    pub(crate) fn noted(
        py: Python<'_>,
        core: &Arc<Core>,
        wanted: Wanted,
        timeout: Option<f64>,
        taken: Option<Taken>,
    ) -> PyResult<Self> {
        let limit = duration(timeout)?;
        let source = SharedSource::new(source(py, core, wanted)?, taken);
        let opened = Arc::clone(&source);
        runtime::handle(py)?.spawn(async move {
            let _ = opened.open(limit).await;
        });
        Ok(Self {
            core: Arc::clone(core),
            source,
            timeout,
        })
    }
}

#[pymethods]
impl AsyncBatches {
    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> Started<'py> {
        self.core.client(py)?;
        let timeout = duration(self.timeout)?;
        let source = Arc::clone(&self.source);
        Here::now(py)?.spawn_step(async move { source.next(timeout).await })
    }

    /// Stops reading and frees what was read ahead.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.core.client(py).is_ok() {
            let source = Arc::clone(&self.source);
            runtime::handle(py)?.spawn(async move { source.close().await });
        }
        Ok(())
    }

    fn __aenter__<'py>(slf: Bound<'py, Self>) -> Started<'py> {
        let here = Here::now(slf.py())?;
        here.ready(Ok(slf.into_any().unbind()))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> Started<'py> {
        self.close(py)?;
        Here::now(py)?.ready(Ok(py.None()))
    }
}

impl Drop for AsyncBatches {
    fn drop(&mut self) {
        if !self.core.is_of_this_process() {
            std::mem::forget(Arc::clone(&self.source));
        }
    }
}
