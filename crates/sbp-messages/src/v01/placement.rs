//! ALLOCATE_ID, REPORT_METRICS and DESCRIBE_PD_CLUSTER.

use flatbuffers::WIPOffset;

use super::shared::read_status;
use super::{Builder, Wire, fb, read_string, read_tables, write_string, write_tables};
use crate::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, IdAllocationRequest,
    IdAllocationResponse, PlacementDriverCluster, PlacementDriverNode, RangeServer, ReportMetricsRequest,
    ReportMetricsResponse,
};

impl Wire for PlacementDriverNode {
    type Table<'a> = fb::PlacementDriverNode<'a>;
    const NAME: &'static str = "PlacementDriverNode";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            name: read_string(table.name()),
            advertise_addr: read_string(table.advertise_addr()),
            is_leader: table.is_leader(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let name = write_string(&self.name, builder);
        let advertise_addr = write_string(&self.advertise_addr, builder);
        fb::PlacementDriverNode::create(
            builder,
            &fb::PlacementDriverNodeArgs {
                name,
                advertise_addr,
                is_leader: self.is_leader,
            },
        )
    }
}

impl Wire for PlacementDriverCluster {
    type Table<'a> = fb::PlacementDriverCluster<'a>;
    const NAME: &'static str = "PlacementDriverCluster";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            nodes: read_tables(table.nodes()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let nodes = Some(write_tables(&self.nodes, builder));
        fb::PlacementDriverCluster::create(builder, &fb::PlacementDriverClusterArgs { nodes })
    }
}

impl Wire for IdAllocationRequest {
    type Table<'a> = fb::IdAllocationRequest<'a>;
    const NAME: &'static str = "IdAllocationRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            timeout_ms: table.timeout_ms(),
            host: read_string(table.host()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let host = write_string(&self.host, builder);
        fb::IdAllocationRequest::create(
            builder,
            &fb::IdAllocationRequestArgs {
                timeout_ms: self.timeout_ms,
                host,
            },
        )
    }
}

impl Wire for IdAllocationResponse {
    type Table<'a> = fb::IdAllocationResponse<'a>;
    const NAME: &'static str = "IdAllocationResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            id: table.id(),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let status = Some(self.status.write(builder));
        fb::IdAllocationResponse::create(builder, &fb::IdAllocationResponseArgs { id: self.id, status })
    }
}

impl Wire for DescribePlacementDriverClusterRequest {
    type Table<'a> = fb::DescribePlacementDriverClusterRequest<'a>;
    const NAME: &'static str = "DescribePlacementDriverClusterRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            range_server: table.range_server().map(RangeServer::read),
            timeout_ms: table.timeout_ms(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range_server = self.range_server.as_ref().map(|server| server.write(builder));
        fb::DescribePlacementDriverClusterRequest::create(
            builder,
            &fb::DescribePlacementDriverClusterRequestArgs {
                range_server,
                timeout_ms: self.timeout_ms,
            },
        )
    }
}

impl Wire for DescribePlacementDriverClusterResponse {
    type Table<'a> = fb::DescribePlacementDriverClusterResponse<'a>;
    const NAME: &'static str = "DescribePlacementDriverClusterResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            status: read_status(table.status()),
            cluster: table.cluster().map(PlacementDriverCluster::read),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let status = Some(self.status.write(builder));
        let cluster = self.cluster.as_ref().map(|cluster| cluster.write(builder));
        fb::DescribePlacementDriverClusterResponse::create(
            builder,
            &fb::DescribePlacementDriverClusterResponseArgs { status, cluster },
        )
    }
}

/// Names each number once for both directions.
macro_rules! report_metrics {
    ($($field:ident)*) => {
        impl Wire for ReportMetricsRequest {
            type Table<'a> = fb::ReportMetricsRequest<'a>;
            const NAME: &'static str = "ReportMetricsRequest";

            fn read(table: Self::Table<'_>) -> Self {
                Self { range_server: table.range_server().map(RangeServer::read), $( $field: table.$field() ),* }
            }

            fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
                let range_server = self.range_server.as_ref().map(|server| server.write(builder));
                fb::ReportMetricsRequest::create(
                    builder,
                    &fb::ReportMetricsRequestArgs { range_server, $( $field: self.$field ),* },
                )
            }
        }
    };
}

report_metrics! {
    disk_in_rate disk_out_rate disk_free_space disk_unindexed_data_size memory_used uring_task_rate
    uring_inflight_task_cnt uring_pending_task_cnt uring_task_avg_latency network_append_rate network_fetch_rate
    network_failed_append_rate network_failed_fetch_rate network_append_avg_latency network_fetch_avg_latency
    range_missing_replica_cnt range_active_cnt
}

impl Wire for ReportMetricsResponse {
    type Table<'a> = fb::ReportMetricsResponse<'a>;
    const NAME: &'static str = "ReportMetricsResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            range_server: table.range_server().map(RangeServer::read),
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range_server = self.range_server.as_ref().map(|server| server.write(builder));
        let status = Some(self.status.write(builder));
        fb::ReportMetricsResponse::create(builder, &fb::ReportMetricsResponseArgs { range_server, status })
    }
}
