//! One record as Python sees it.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sbp_python_macros::stub_docs;

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "Record")]
pub(crate) struct Record {
    /// Its place in the stream.
    #[pyo3(get)]
    offset: i64,
    /// Its time: microseconds since 1970, UTC.
    #[pyo3(get)]
    timestamp: i64,
    /// Its key, if it has one.
    #[pyo3(get)]
    key: Option<Py<PyBytes>>,
    /// Its value; ``None`` where the writer wrote a null.
    #[pyo3(get)]
    value: Option<Py<PyBytes>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// Copies a record of a batch.
    pub(crate) fn new(py: Python<'_>, record: sbp_record::Record<'_>) -> Self {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        Self {
            offset: record.offset.0,
            timestamp: record.timestamp_us,
            key: record.key.map(bytes),
            value: record.value.map(bytes),
            headers: record
                .headers
                .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)))
                .collect(),
        }
    }

    /// What two equal records have in common.
    fn parts<'a>(&'a self, py: Python<'_>) -> impl PartialEq + Hash + use<'a> {
        let bytes = |bytes: &'a Option<Py<PyBytes>>| bytes.as_ref().map(|bytes| bytes.as_bytes(py));
        (
            self.offset,
            self.timestamp,
            bytes(&self.key),
            bytes(&self.value),
            &self.headers,
        )
    }
}

#[stub_docs]
#[pymethods]
impl Record {
    #[getter]
    fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect()
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| self.parts(py) == other.get().parts(py))
    }

    fn __hash__(&self, py: Python<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.parts(py).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let show = |bytes: &Option<Py<PyBytes>>| match bytes {
            Some(bytes) => format!("b\"{}\"", bytes.as_bytes(py).escape_ascii()),
            None => "None".to_owned(),
        };
        format!(
            "Record(offset={}, timestamp={}, key={}, value={})",
            self.offset,
            self.timestamp,
            show(&self.key),
            show(&self.value)
        )
    }
}
