//! What brokers say of their topics.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use sbp_peers::tank::{PartitionBounds, TopicSummary};
use sbp_python_macros::stub_docs;

use crate::results::answer::Answer;

#[stub_docs]
#[pyclass(frozen, eq, hash, get_all, module = "sbp_native.tank", name = "TopicInfo")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct TopicInfo {
    /// Its name.
    name: String,
    /// How many partitions it has.
    partitions: u16,
    /// Whether the broker serves it.
    enabled: bool,
}

#[stub_docs]
#[pymethods]
impl TopicInfo {
    fn __repr__(&self) -> String {
        let enabled = if self.enabled { "True" } else { "False" };
        format!(
            "TopicInfo(name={:?}, partitions={}, enabled={enabled})",
            self.name, self.partitions
        )
    }
}

impl Answer for TopicSummary {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let topic = TopicInfo {
            name: self.name,
            partitions: self.partitions,
            enabled: self.is_enabled,
        };
        topic.into_py_any(py)
    }
}

#[stub_docs]
#[pyclass(frozen, eq, hash, get_all, module = "sbp_native.tank", name = "PartitionInfo")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PartitionInfo {
    /// Its number in the topic, from 0.
    partition: u16,
    /// The sequence number of the first message that is kept; 0 while there is none.
    first: u64,
    /// That of the last message; 0 while there is none.
    high_water: u64,
}

#[stub_docs]
#[pymethods]
impl PartitionInfo {
    fn __repr__(&self) -> String {
        format!(
            "PartitionInfo(partition={}, first={}, high_water={})",
            self.partition, self.first, self.high_water
        )
    }
}

impl Answer for (u16, PartitionBounds) {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (partition, PartitionBounds { first, high_water }) = self;
        let info = PartitionInfo {
            partition,
            first,
            high_water,
        };
        info.into_py_any(py)
    }
}
