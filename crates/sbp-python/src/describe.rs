//! Streams and positions as Python sees them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sbp_record::{SchemaError, StreamSchema};

use crate::arrow;

/// A stream the server described, and its schema read once.
pub(crate) struct Described {
    pub(crate) stream: Arc<sbp_messages::Stream>,
    pub(crate) name: Arc<str>,
    pub(crate) schema: Option<StreamSchema>,
}

impl Described {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// The schema cannot be read.
    pub(crate) fn new(stream: Arc<sbp_messages::Stream>) -> Result<Arc<Self>, SchemaError> {
        let schema = stream
            .schema
            .as_ref()
            .map(|message| StreamSchema::from_ipc(message))
            .transpose()?;
        let name = if stream.name.is_empty() {
            stream.stream_id.to_string()
        } else {
            stream.name.clone()
        };
        Ok(Arc::new(Self {
            name: Arc::from(name),
            stream,
            schema,
        }))
    }

    /// The schema as a `pyarrow.Schema`.
    pub(crate) fn pyarrow_schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.schema
            .as_ref()
            .map(|schema| arrow::pyarrow_schema(py, schema.arrow()))
            .transpose()
    }
}

/// A stream as the server describes it.
#[pyclass(frozen, eq, hash, module = "sbp_native", name = "StreamInfo")]
pub(crate) struct StreamInfo(pub(crate) Arc<Described>);

impl PartialEq for StreamInfo {
    fn eq(&self, other: &Self) -> bool {
        self.0.stream == other.0.stream
    }
}

impl Hash for StreamInfo {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.stream.stream_id.hash(state);
    }
}

#[pymethods]
impl StreamInfo {
    #[getter]
    fn id(&self) -> i64 {
        self.0.stream.stream_id.0
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn schema_ipc<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.stream.schema.as_ref().map(|message| PyBytes::new(py, message))
    }

    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.pyarrow_schema(py)
    }

    fn __repr__(&self) -> String {
        let kind = if self.0.schema.is_some() {
            "with a schema"
        } else {
            "of records"
        };
        format!(
            "<sbp_native.StreamInfo {:?} (id {}) {kind}>",
            self.0.name, self.0.stream.stream_id
        )
    }
}

/// What a stream holds.
#[pyclass(frozen, eq, hash, module = "sbp_native", name = "Positions")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Positions {
    earliest: i64,
    latest: i64,
}

impl From<&sbp_client::Positions> for Positions {
    fn from(positions: &sbp_client::Positions) -> Self {
        Self {
            earliest: positions.earliest.0,
            latest: positions.latest.0,
        }
    }
}

#[pymethods]
impl Positions {
    #[getter]
    fn earliest(&self) -> i64 {
        self.earliest
    }

    #[getter]
    fn latest(&self) -> i64 {
        self.latest
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.latest - self.earliest).unwrap_or(0)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("Positions(earliest={}, latest={})", self.earliest, self.latest)
    }
}
