//! ALLOCATE_ID, REPORT_METRICS, DESCRIBE_PD_CLUSTER, and the cluster as an error's detail.

use bytes::BytesMut;
use sbp_messages::*;

use super::count::Count;
use super::headers;
use super::ranges::range_server;

fn node(n: &mut Count) -> PlacementDriverNode {
    PlacementDriverNode {
        name: n.text(),
        advertise_addr: n.text(),
        is_leader: true,
    }
}

fn cluster(n: &mut Count) -> PlacementDriverCluster {
    PlacementDriverCluster {
        nodes: n.two(node),
        term: n.extension(0, Count::long),
        range_servers: n.extension(None, |n| Some(n.two(range_server_status))),
    }
}

fn range_server_status(n: &mut Count) -> RangeServerStatus {
    RangeServerStatus {
        range_server: Some(range_server(n)),
        state: ServerState::DRAINING,
        is_up: true,
        silent_ms: n.long(),
        open_range_cnt: n.int(),
        missing_replica_cnt: n.int(),
    }
}

impl super::Header for PlacementDriverCluster {
    fn value(n: &mut Count) -> Self {
        cluster(n)
    }

    fn to_bytes(&self) -> BytesMut {
        BytesMut::from(self.to_detail(&mut Encoder::new()))
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self::from_detail(bytes).expect("a valid detail")
    }
}

headers! {
    IdAllocationRequest, n => IdAllocationRequest {
        timeout_ms: n.int(),
        host: n.text(),
    };
    IdAllocationResponse, n => IdAllocationResponse {
        id: n.int(),
        status: n.status(),
    };
    ReportMetricsRequest, n => ReportMetricsRequest {
        range_server: Some(range_server(n)),
        disk_in_rate: n.long(),
        disk_out_rate: n.long(),
        disk_free_space: n.long(),
        disk_unindexed_data_size: n.long(),
        memory_used: n.long(),
        uring_task_rate: n.short(),
        uring_inflight_task_cnt: n.short(),
        uring_pending_task_cnt: n.int(),
        uring_task_avg_latency: n.short(),
        network_append_rate: n.short(),
        network_fetch_rate: n.short(),
        network_failed_append_rate: n.short(),
        network_failed_fetch_rate: n.short(),
        network_append_avg_latency: n.short(),
        network_fetch_avg_latency: n.short(),
        range_missing_replica_cnt: n.short(),
        range_active_cnt: n.short(),
        wanted: n.extension(ServerState::UNSPECIFIED, |_| ServerState::DRAINING),
    };
    ReportMetricsResponse, n => ReportMetricsResponse {
        range_server: Some(range_server(n)),
        status: n.status(),
    };
    DescribePlacementDriverClusterRequest, n => DescribePlacementDriverClusterRequest {
        range_server: Some(range_server(n)),
        timeout_ms: n.int(),
    };
    DescribePlacementDriverClusterResponse, n => DescribePlacementDriverClusterResponse {
        status: n.status(),
        cluster: Some(cluster(n)),
    };
}
