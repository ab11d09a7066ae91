//! What servers say of segments.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use sbp_peers::pravega::{Owned, SegmentInfo as PeerInfo};
use sbp_python_macros::stub_docs;

use crate::results::answer::Answer;

#[stub_docs]
#[pyclass(frozen, eq, get_all, module = "sbp_native.pravega", name = "SegmentInfo")]
#[derive(PartialEq)]
pub(crate) struct SegmentInfo {
    /// Its name.
    name: String,
    /// Its number in the stream.
    segment_id: i64,
    /// The first byte that is kept.
    start: i64,
    /// The byte behind the last one.
    length: i64,
    /// Whether nothing more is appended to it.
    sealed: bool,
    /// The positions of the routing keys that belong to it: from the first to below the second.
    keys: (f64, f64),
}

#[stub_docs]
#[pymethods]
impl SegmentInfo {
    fn __repr__(&self) -> String {
        let sealed = if self.sealed { "True" } else { "False" };
        format!(
            "SegmentInfo(name={:?}, segment_id={}, start={}, length={}, sealed={sealed}, keys=({:?}, {:?}))",
            self.name, self.segment_id, self.start, self.length, self.keys.0, self.keys.1
        )
    }
}

/// A segment of a stream, and what it is.
pub(super) struct Described(pub(super) Owned, pub(super) PeerInfo);

impl Answer for Described {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(owned, info) = self;
        let segment = SegmentInfo {
            name: owned.segment.to_string(),
            segment_id: owned.segment.id.0,
            start: info.start.unwrap_or(0),
            length: info.length,
            sealed: info.is_sealed,
            keys: (owned.low, owned.high),
        };
        segment.into_py_any(py)
    }
}

/// A name.
pub(super) struct Name(pub(super) String);

impl Answer for Name {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.into_py_any(py)
    }
}
