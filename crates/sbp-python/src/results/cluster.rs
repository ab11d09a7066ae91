//! Ranges and servers as Python sees them.

use pyo3::prelude::*;
use sbp_messages::{PlacementDriverCluster, PlacementDriverNode, Range};

/// A range: a run of offsets of one stream that one set of servers holds. Only a stream's last range is open.
#[pyclass(frozen, eq, module = "sbp_native", name = "RangeInfo")]
#[derive(PartialEq, Eq)]
pub(crate) struct RangeInfo(pub(crate) Range);

#[pymethods]
impl RangeInfo {
    /// The stream's id.
    #[getter]
    fn stream_id(&self) -> i64 {
        self.0.stream_id.0
    }

    /// The range's place within the stream, from 0.
    #[getter]
    fn index(&self) -> i32 {
        self.0.range_index.0
    }

    /// The first offset of the range.
    #[getter]
    fn start_offset(&self) -> i64 {
        self.0.start_offset.0
    }

    /// The offset behind its last record; ``None`` while it is open.
    #[getter]
    fn end_offset(&self) -> Option<i64> {
        self.0.end().map(|end| end.0)
    }

    /// Whether it still takes appends.
    #[getter]
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// The range's epoch, where the server says it.
    #[getter]
    fn epoch(&self) -> Option<i64> {
        Some(self.0.epoch.0).filter(|epoch| *epoch >= 0)
    }

    /// The servers that hold it, as ``host:port``.
    #[getter]
    fn servers(&self) -> Vec<&str> {
        let servers = self
            .0
            .servers
            .iter()
            .filter_map(|replica| replica.range_server.as_ref());
        servers.map(|server| server.advertise_addr.as_str()).collect()
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

/// One of the servers that place streams.
#[pyclass(frozen, eq, module = "sbp_native", name = "ClusterMember")]
#[derive(PartialEq, Eq)]
pub(crate) struct ClusterMember(PlacementDriverNode);

#[pymethods]
impl ClusterMember {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Where clients reach it: ``host:port``.
    #[getter]
    fn address(&self) -> &str {
        &self.0.advertise_addr
    }

    /// Whether it decides, as far as the server that was asked knows.
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

/// The servers that place streams.
#[pyclass(frozen, eq, module = "sbp_native", name = "ClusterInfo")]
#[derive(PartialEq, Eq)]
pub(crate) struct ClusterInfo(pub(crate) PlacementDriverCluster);

#[pymethods]
impl ClusterInfo {
    /// All of them.
    #[getter]
    fn members(&self) -> Vec<ClusterMember> {
        self.0.nodes.iter().cloned().map(ClusterMember).collect()
    }

    /// The one that decides, if the server that was asked knows it.
    #[getter]
    fn leader(&self) -> Option<ClusterMember> {
        self.0.leader().cloned().map(ClusterMember)
    }

    fn __repr__(&self) -> String {
        let members: Vec<_> = self.0.nodes.iter().map(|node| node.advertise_addr.as_str()).collect();
        format!("<sbp_native.ClusterInfo of {members:?}>")
    }
}
