//! One stream and its batches, for blocking code.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use sbp_client::Position;
use sbp_record::StreamSchema;

use crate::ack::AckShape;
use crate::append::{Appending, How, Prepared};
use crate::batch::Batch;
use crate::blocking::block_on;
use crate::calls::{self, Failure, Key, position};
use crate::client::keys_argument;
use crate::core::{Core, duration};
use crate::describe::{Described, Positions, StreamInfo};
use crate::read::{SharedSource, Source, Wanted};
use crate::{arrow, encode, errors};

/// One stream, for blocking code.
#[pyclass(frozen, module = "sbp_native", name = "Stream")]
pub(crate) struct Stream {
    core: Arc<Core>,
    described: Arc<Described>,
}

impl Stream {
    pub(crate) fn new(core: Arc<Core>, described: Arc<Described>) -> Self {
        Self { core, described }
    }
}

#[pymethods]
impl Stream {
    #[getter]
    fn id(&self) -> i64 {
        self.described.stream.stream_id.0
    }

    #[getter]
    fn name(&self) -> &str {
        &self.described.name
    }

    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.described.pyarrow_schema(py)
    }

    #[getter]
    fn info(&self) -> StreamInfo {
        StreamInfo(Arc::clone(&self.described))
    }

    #[pyo3(signature = (data, *, timestamp = None, timeout = None))]
    fn append(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timestamp: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let client = self.core.client(py)?;
        let timestamp = timestamp.map(encode::timestamp).transpose()?;
        let deadline = self.core.deadline(client, timeout)?;
        let name = Some(&*self.described.name);
        let appending = Appending {
            data,
            key: None,
            headers: None,
            how: How {
                timestamp,
                ..How::default()
            },
        };
        let outcome = Prepared::one(&self.described, &appending, deadline)?.block(py, client, name)?;
        AckShape::One(Arc::clone(&self.described.name)).build(py, outcome)
    }

    #[pyo3(
        signature = (start = None, end = None, *, timeout = None),
        text_signature = "($self, start='earliest', end='latest', *, timeout=None)"
    )]
    fn read(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Batches> {
        let client = self.core.client(py)?.clone();
        let source = Source::new(
            client,
            Arc::clone(&self.core.copied),
            span_argument(&self.described, start, end)?,
        );
        Batches::new(py, Arc::clone(&self.core), source, timeout)
    }

    #[pyo3(
        signature = (start = None, *, timeout = None),
        text_signature = "($self, start='latest', *, timeout=None)"
    )]
    fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<Batches> {
        let client = self.core.client(py)?.clone();
        let source = Source::new(client, Arc::clone(&self.core.copied), own_tail(&self.described, start)?);
        Batches::new(py, Arc::clone(&self.core), source, timeout)
    }

    #[pyo3(signature = (*, timeout = None))]
    fn positions(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Positions> {
        let client = self.core.client(py)?.clone();
        let keys = vec![Key::Id(self.described.stream.stream_id)];
        let timeout = duration(timeout)?;
        let found = block_on(py, async move { calls::positions(&client, Some(keys), timeout).await })?;
        only_positions(found).map_err(|failure| failure.into_python(py))
    }

    fn __repr__(&self) -> String {
        format!(
            "<sbp_native.Stream {:?} (id {})>",
            self.described.name, self.described.stream.stream_id
        )
    }
}

/// Batches as they are read, for `for`.
#[pyclass(frozen, module = "sbp_native", name = "Batches")]
pub(crate) struct Batches {
    core: Arc<Core>,
    source: Arc<SharedSource>,
    timeout: Option<f64>,
}

impl Batches {
    /// Begins to read, so that "latest" means now.
    pub(crate) fn new(py: Python<'_>, core: Arc<Core>, mut source: Source, timeout: Option<f64>) -> PyResult<Self> {
        let limit = duration(timeout)?;
        let opened = block_on(py, async move { source.open(limit).await.map(|()| source) })?;
        let source = opened.map_err(|failure| failure.into_python(py))?;
        Ok(Self {
            core,
            source: SharedSource::new(source),
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
        // A step that a signal ends is dropped, which gives the source back.
        let stepped = block_on(py, async move { source.next(timeout).await })?;
        stepped.map_err(|failure| failure.into_python(py))
    }

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

/// A schema argument, checked against what streams carry.
pub(crate) fn schema_argument(schema: &Bound<'_, PyAny>) -> PyResult<StreamSchema> {
    let columns = arrow::import_schema(schema)?;
    StreamSchema::from_arrow(&columns).map_err(|error| errors::schema_mismatch(schema.py(), &error.to_string()))
}

/// What `read` reads.
pub(crate) fn span_argument(
    stream: &Arc<Described>,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<Wanted> {
    Ok(Wanted::Span {
        stream: Arc::clone(stream),
        start: start.map_or(Ok(Position::Earliest), position)?,
        end: end.map_or(Ok(Position::Latest), position)?,
    })
}

/// What a stream's own `tail` reads.
pub(crate) fn own_tail(stream: &Arc<Described>, start: Option<&Bound<'_, PyAny>>) -> PyResult<Wanted> {
    let start = start.map_or(Ok(Position::Latest), position)?;
    Ok(Wanted::Tail {
        streams: vec![(Key::Id(stream.stream.stream_id), start)],
    })
}

/// What a client's `tail` reads: every stream from one place, or each from its own.
pub(crate) fn tail_argument(streams: &Bound<'_, PyAny>, start: Option<&Bound<'_, PyAny>>) -> PyResult<Wanted> {
    let keys = keys_argument(streams)?;
    let places = start.and_then(|start| start.cast::<PyMapping>().ok());
    let mut wanted = Vec::with_capacity(keys.len());
    for key in keys {
        let place = match (&places, start) {
            (Some(places), _) => {
                let found = match &key {
                    Key::Name(name) => places.get_item(name),
                    Key::Id(id) => places.get_item(id.0),
                };
                let missing = || PyTypeError::new_err(format!("start names no place for stream {key:?}"));
                position(&found.map_err(|_| missing())?)?
            }
            (None, Some(start)) => position(start)?,
            (None, None) => Position::Latest,
        };
        wanted.push((key, place));
    }
    Ok(Wanted::Tail { streams: wanted })
}

/// The positions of the one stream that was asked about.
pub(crate) fn only_positions(
    found: Result<Vec<(Arc<Described>, sbp_client::Positions)>, Failure>,
) -> Result<Positions, Failure> {
    match found?.pop() {
        Some((_, positions)) => Ok(Positions::from(&positions)),
        None => Err(Failure::Corrupt("the server named no positions".to_owned())),
    }
}
