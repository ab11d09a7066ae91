//! ALLOCATE_ID, REPORT_METRICS, DESCRIBE_PD_CLUSTER, and the cluster as an error's detail.

use bytes::BytesMut;
use sbp_messages::*;
use sbp_types::{RangeIndex, StreamId};

use super::count::Count;
use super::headers;
use super::ranges::{range_id, range_server};

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
        copying_range_cnt: n.extension(0, Count::int),
        waiting_range_cnt: n.extension(0, Count::int),
        metadata_store: n.extension(None, |n| Some(n.two(metadata_store_member))),
    }
}

fn metadata_store_member(n: &mut Count) -> MetadataStoreMember {
    MetadataStoreMember {
        address: n.text(),
        is_up: true,
        trouble: n.text(),
    }
}

fn stuck(n: &mut Count) -> StuckRange {
    StuckRange {
        stream_id: StreamId(n.long()),
        range_index: RangeIndex(n.int()),
        reason: n.text(),
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
        follower_range_cnt: n.int(),
        sealed_range_cnt: n.int(),
        incomplete_range_cnt: n.int(),
        disk_free_space: n.long(),
        stuck_range_cnt: n.int(),
        stuck: n.two(stuck),
        withheld_range_cnt: n.int(),
        withheld_bytes: n.long(),
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
        withheld_range_cnt: n.extension(0, Count::int),
        withheld_bytes: n.extension(0, Count::long),
        incomplete: n.extension(Vec::new(), |n| n.two(range_id)),
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
