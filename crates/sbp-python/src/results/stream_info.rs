//! Streams and positions as Python sees them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sbp_python_macros::stub_docs;

use crate::requests::Described;

#[stub_docs]
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

#[stub_docs]
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

    #[getter]
    fn retention(&self) -> Option<Duration> {
        let millis = u64::try_from(self.0.stream.retention_period_ms).ok()?;
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    #[getter]
    fn retention_bytes(&self) -> Option<i64> {
        self.0.stream.kept_bytes()
    }

    #[getter]
    fn replicas(&self) -> i8 {
        self.0.stream.replica_nums
    }

    #[getter]
    fn acks(&self) -> i8 {
        self.0.stream.ack_count
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        for pair in self.0.stream.properties.iter().flatten() {
            properties.set_item(&pair.key, &pair.value)?;
        }
        Ok(properties)
    }

    #[getter]
    fn created_at(&self) -> i64 {
        self.0.stream.created_at_ms.0
    }

    #[getter]
    fn identity(&self) -> Option<String> {
        self.0.identity()
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

#[stub_docs]
#[pyclass(frozen, eq, hash, get_all, module = "sbp_native", name = "Positions")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Positions {
    /// The first offset that can be read.
    earliest: i64,
    /// The offset that the next record will get.
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

#[stub_docs]
#[pymethods]
impl Positions {
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
