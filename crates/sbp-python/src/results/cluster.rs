//! Ranges and servers as Python sees them.

use pyo3::prelude::*;
use sbp_messages::{PlacementDriverCluster, PlacementDriverNode, Range};
use sbp_python_macros::stub_docs;

#[stub_docs]
#[pyclass(frozen, eq, module = "sbp_native", name = "RangeInfo")]
#[derive(PartialEq, Eq)]
pub(crate) struct RangeInfo(pub(crate) Range);

#[stub_docs]
#[pymethods]
impl RangeInfo {
    #[getter]
    fn stream_id(&self) -> i64 {
        self.0.stream_id.0
    }

    #[getter]
    fn index(&self) -> i32 {
        self.0.range_index.0
    }

    #[getter]
    fn start_offset(&self) -> i64 {
        self.0.start_offset.0
    }

    #[getter]
    fn end_offset(&self) -> Option<i64> {
        self.0.end().map(|end| end.0)
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    #[getter]
    fn epoch(&self) -> Option<i64> {
        self.0.epoch.map(|epoch| epoch.0).filter(|epoch| *epoch >= 0)
    }

    #[getter]
    fn servers(&self) -> Vec<&str> {
        let servers = self
            .0
            .servers
            .iter()
            .filter_map(|replica| replica.range_server.as_ref());
        servers.map(|server| server.advertise_addr.as_str()).collect()
    }

    #[getter]
    fn replicas(&self) -> Option<i8> {
        self.0.replica_count
    }

    #[getter]
    fn acks(&self) -> Option<i8> {
        self.0.ack_count
    }

    fn __repr__(&self) -> String {
        let end = self
            .end_offset()
            .map_or_else(|| "None".to_owned(), |end| end.to_string());
        format!(
            "RangeInfo(stream_id={}, index={}, start_offset={}, end_offset={end}, servers={:?})",
            self.0.stream_id,
            self.0.range_index,
            self.0.start_offset,
            self.servers()
        )
    }
}

#[stub_docs]
#[pyclass(frozen, eq, module = "sbp_native", name = "ClusterMember")]
#[derive(PartialEq, Eq)]
pub(crate) struct ClusterMember(PlacementDriverNode);

#[stub_docs]
#[pymethods]
impl ClusterMember {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn address(&self) -> &str {
        &self.0.advertise_addr
    }

    #[getter]
    fn is_leader(&self) -> bool {
        self.0.is_leader
    }

    fn __repr__(&self) -> String {
        let leads = if self.0.is_leader { "True" } else { "False" };
        format!(
            "ClusterMember(name={:?}, address={:?}, is_leader={leads})",
            self.0.name, self.0.advertise_addr
        )
    }
}

#[stub_docs]
#[pyclass(frozen, eq, module = "sbp_native", name = "ClusterInfo")]
#[derive(PartialEq, Eq)]
pub(crate) struct ClusterInfo(pub(crate) PlacementDriverCluster);

#[stub_docs]
#[pymethods]
impl ClusterInfo {
    #[getter]
    fn members(&self) -> Vec<ClusterMember> {
        self.0.nodes.iter().cloned().map(ClusterMember).collect()
    }

    #[getter]
    fn leader(&self) -> Option<ClusterMember> {
        self.0.leader().cloned().map(ClusterMember)
    }

    fn __repr__(&self) -> String {
        let members: Vec<_> = self.0.nodes.iter().map(|node| node.advertise_addr.as_str()).collect();
        format!("<sbp_native.ClusterInfo of {members:?}>")
    }
}
