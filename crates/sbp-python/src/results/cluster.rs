//! Ranges and servers as Python sees them.

use pyo3::prelude::*;
use sbp_messages::{PlacementDriverCluster, PlacementDriverNode, Range, RangeServerStatus, ServerState};
use sbp_python_macros::stub_docs;
use sbp_types::ClusterId;

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
pub(crate) struct ClusterInfo(pub(crate) KnownCluster);

/// What a placement driver says of its cluster.
#[derive(PartialEq, Eq)]
pub(crate) struct KnownCluster {
    pub(crate) id: Option<ClusterId>,
    pub(crate) described: PlacementDriverCluster,
}

#[stub_docs]
#[pymethods]
impl ClusterInfo {
    #[getter]
    fn id(&self) -> Option<String> {
        self.0.id.map(|id| id.to_string())
    }

    #[getter]
    fn members(&self) -> Vec<ClusterMember> {
        self.0.described.nodes.iter().cloned().map(ClusterMember).collect()
    }

    #[getter]
    fn leader(&self) -> Option<ClusterMember> {
        self.0.described.leader().cloned().map(ClusterMember)
    }

    #[getter]
    fn range_servers(&self) -> Option<Vec<RangeServerInfo>> {
        let servers = self.0.described.range_servers.as_ref()?;
        Some(servers.iter().cloned().map(RangeServerInfo).collect())
    }

    #[getter]
    fn copies_under_way(&self) -> i32 {
        self.0.described.copying_range_cnt
    }

    #[getter]
    fn ranges_waiting_for_a_copy(&self) -> i32 {
        self.0.described.waiting_range_cnt
    }

    fn __repr__(&self) -> String {
        let members: Vec<_> = self
            .0
            .described
            .nodes
            .iter()
            .map(|node| node.advertise_addr.as_str())
            .collect();
        format!("<sbp_native.ClusterInfo of {members:?}>")
    }
}

#[stub_docs]
#[pyclass(frozen, eq, module = "sbp_native", name = "RangeServerInfo")]
#[derive(PartialEq, Eq)]
pub(crate) struct RangeServerInfo(pub(crate) RangeServerStatus);

#[stub_docs]
#[pymethods]
impl RangeServerInfo {
    #[getter]
    fn server_id(&self) -> Option<i32> {
        Some(self.0.range_server.as_ref()?.server_id.0)
    }

    #[getter]
    fn address(&self) -> &str {
        let server = self.0.range_server.as_ref();
        server.map_or("", |server| server.advertise_addr.as_str())
    }

    #[getter]
    fn zone(&self) -> Option<&str> {
        let server = self.0.range_server.as_ref()?;
        Some(server.zone.as_str()).filter(|zone| !zone.is_empty())
    }

    #[getter]
    fn is_up(&self) -> bool {
        self.0.is_up
    }

    #[getter]
    fn silent_for(&self) -> Option<f64> {
        let millis = u64::try_from(self.0.silent_ms).ok()?;
        Some(std::time::Duration::from_millis(millis).as_secs_f64())
    }

    #[getter]
    fn is_draining(&self) -> bool {
        self.0.state == ServerState::DRAINING
    }

    #[getter]
    fn is_drained(&self) -> bool {
        self.is_draining() && self.0.held_range_cnt() == 0
    }

    #[getter]
    fn open_ranges(&self) -> i32 {
        self.0.open_range_cnt
    }

    #[getter]
    fn followed_ranges(&self) -> i32 {
        self.0.follower_range_cnt
    }

    #[getter]
    fn sealed_ranges(&self) -> i32 {
        self.0.sealed_range_cnt
    }

    #[getter]
    fn incomplete_ranges(&self) -> i32 {
        self.0.incomplete_range_cnt
    }

    #[getter]
    fn missing_replicas(&self) -> i32 {
        self.0.missing_replica_cnt
    }

    #[getter]
    fn free_bytes(&self) -> Option<i64> {
        Some(self.0.disk_free_space).filter(|bytes| *bytes >= 0)
    }

    #[getter]
    fn withheld_ranges(&self) -> i32 {
        self.0.withheld_range_cnt
    }

    #[getter]
    fn withheld_bytes(&self) -> i64 {
        self.0.withheld_bytes
    }

    #[getter]
    fn stuck(&self) -> Vec<(i64, i32, &str)> {
        let stuck = self.0.stuck.iter();
        stuck
            .map(|stuck| (stuck.stream_id.0, stuck.range_index.0, stuck.reason.as_str()))
            .collect()
    }

    fn __repr__(&self) -> String {
        let state = match (self.is_up(), self.is_drained(), self.is_draining()) {
            (true, false, false) => "up",
            (false, false, false) => "down",
            (true, true, _) => "up, drained",
            (false, true, _) => "down, drained",
            (true, false, true) => "up, draining",
            (false, false, true) => "down, draining",
        };
        let id = self.server_id().unwrap_or(-1);
        format!("<sbp_native.RangeServerInfo {id} at {:?}: {state}>", self.address())
    }
}
