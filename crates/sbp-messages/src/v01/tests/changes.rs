//! Random messages of the operations that change ranges, streams and the cluster.

use proptest::option;
use proptest::prelude::*;
use sbp_types::{Offset, RangeIndex, ServerId, StreamId};

use super::strategies::*;
use crate::*;

pub(super) fn seal_ranges_request() -> impl Strategy<Value = SealRangesRequest> {
    let told = (or_absent(), some(any::<i32>().prop_map(ServerId)), any::<bool>());
    (any::<i32>(), some(range_id()), any::<i8>(), told).prop_map(|(timeout_ms, ranges, kind, (term, avoid, force))| {
        SealRangesRequest {
            timeout_ms,
            ranges,
            kind: SealKind(kind),
            term,
            avoid,
            force,
        }
    })
}

pub(super) fn seal_ranges_response() -> impl Strategy<Value = SealRangesResponse> {
    let marks = (or_absent(), or_absent(), or_absent());
    let offsets = (said_offset(), said_offset(), said_offset());
    let lost = some(any::<i64>().prop_map(Offset));
    let result = (any::<i64>(), option::of(range()), status(), offsets, marks, lost);
    let result = result.prop_map(
        |(stream, range, status, offsets, marks, lost_offsets)| SealRangesResult {
            stream_id: StreamId(stream),
            range,
            status,
            confirmed_offset: offsets.0,
            writers_parts: marks.0,
            begins_offset: offsets.1,
            begins_marks: marks.1,
            whole_offset: offsets.2,
            whole_marks: marks.2,
            lost_offsets,
        },
    );
    (any::<i32>(), some(result), status()).prop_map(|(throttle_time_ms, seal_responses, status)| SealRangesResponse {
        throttle_time_ms,
        seal_responses,
        status,
    })
}

pub(super) fn sync_ranges_request() -> impl Strategy<Value = SyncRangesRequest> {
    let ranges = (any::<i64>(), some(range())).prop_map(|(stream, ranges)| StreamRanges {
        stream_id: StreamId(stream),
        ranges,
    });
    (any::<i32>(), some(ranges), or_absent()).prop_map(|(timeout_ms, stream_ranges, term)| SyncRangesRequest {
        timeout_ms,
        stream_ranges,
        term,
    })
}

pub(super) fn sync_ranges_response() -> impl Strategy<Value = SyncRangesResponse> {
    let result = (any::<i64>(), some(range()), status()).prop_map(|(stream, ranges, status)| SyncRangesResult {
        stream_id: StreamId(stream),
        ranges,
        status,
    });
    (any::<i32>(), some(result), status()).prop_map(|(throttle_time_ms, sync_responses, status)| SyncRangesResponse {
        throttle_time_ms,
        sync_responses,
        status,
    })
}

pub(super) fn create_range_request() -> impl Strategy<Value = CreateRangeRequest> {
    (any::<i32>(), option::of(range())).prop_map(|(timeout_ms, range)| CreateRangeRequest { timeout_ms, range })
}

pub(super) fn create_range_response() -> impl Strategy<Value = CreateRangeResponse> {
    (status(), option::of(range()), any::<i32>()).prop_map(|(status, range, throttle_time_ms)| CreateRangeResponse {
        status,
        range,
        throttle_time_ms,
    })
}

pub(super) fn delete_streams_request() -> impl Strategy<Value = DeleteStreamsRequest> {
    (any::<i32>(), some(stream()), or_absent()).prop_map(|(timeout_ms, streams, term)| DeleteStreamsRequest {
        timeout_ms,
        streams,
        term,
    })
}

pub(super) fn delete_streams_response() -> impl Strategy<Value = DeleteStreamsResponse> {
    let result =
        (option::of(stream()), status(), any::<bool>()).prop_map(|(deleted_stream, status, gone)| DeleteStreamResult {
            deleted_stream,
            status,
            gone,
        });
    (any::<i32>(), some(result), status()).prop_map(|(throttle_time_ms, delete_responses, status)| {
        DeleteStreamsResponse {
            throttle_time_ms,
            delete_responses,
            status,
        }
    })
}

pub(super) fn update_streams_request() -> impl Strategy<Value = UpdateStreamsRequest> {
    (any::<i32>(), some(stream())).prop_map(|(timeout_ms, streams)| UpdateStreamsRequest { timeout_ms, streams })
}

pub(super) fn update_streams_response() -> impl Strategy<Value = UpdateStreamsResponse> {
    let result = (option::of(stream()), status()).prop_map(|(stream, status)| UpdateStreamResult { stream, status });
    (any::<i32>(), some(result), status()).prop_map(|(throttle_time_ms, update_responses, status)| {
        UpdateStreamsResponse {
            throttle_time_ms,
            update_responses,
            status,
        }
    })
}

pub(super) fn trim_streams_request() -> impl Strategy<Value = TrimStreamsRequest> {
    let trimmed = (any::<i64>(), any::<i64>()).prop_map(|(stream, offset)| TrimmedStream {
        stream_id: StreamId(stream),
        trim_offset: Offset(offset),
    });
    (any::<i32>(), some(trimmed)).prop_map(|(timeout_ms, trimmed_streams)| TrimStreamsRequest {
        timeout_ms,
        trimmed_streams,
    })
}

pub(super) fn trim_streams_response() -> impl Strategy<Value = TrimStreamsResponse> {
    let result = (option::of(stream()), option::of(range()), status()).prop_map(|(trimmed_stream, range, status)| {
        TrimStreamResult {
            trimmed_stream,
            range,
            status,
        }
    });
    (any::<i32>(), some(result), status()).prop_map(|(throttle_time_ms, trim_responses, status)| TrimStreamsResponse {
        throttle_time_ms,
        trim_responses,
        status,
    })
}

pub(super) fn id_allocation_request() -> impl Strategy<Value = IdAllocationRequest> {
    (any::<i32>(), string()).prop_map(|(timeout_ms, host)| IdAllocationRequest { timeout_ms, host })
}

pub(super) fn id_allocation_response() -> impl Strategy<Value = IdAllocationResponse> {
    (any::<i32>(), status()).prop_map(|(id, status)| IdAllocationResponse { id, status })
}

pub(super) fn report_metrics_request() -> impl Strategy<Value = ReportMetricsRequest> {
    let wide = (
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i32>(),
    );
    let extensions = (or_absent::<i8>(), or_absent(), or_absent(), some(range_id()));
    (option::of(range_server()), wide, any::<[i16; 11]>(), extensions).prop_map(
        |(range_server, (disk_in, disk_out, free, unindexed, memory, pending), narrow, extensions)| {
            let (wanted, withheld, bytes, incomplete) = extensions;
            ReportMetricsRequest {
                range_server,
                disk_in_rate: disk_in,
                disk_out_rate: disk_out,
                disk_free_space: free,
                disk_unindexed_data_size: unindexed,
                memory_used: memory,
                uring_task_rate: narrow[0],
                uring_inflight_task_cnt: narrow[1],
                uring_pending_task_cnt: pending,
                uring_task_avg_latency: narrow[2],
                network_append_rate: narrow[3],
                network_fetch_rate: narrow[4],
                network_failed_append_rate: narrow[5],
                network_failed_fetch_rate: narrow[6],
                network_append_avg_latency: narrow[7],
                network_fetch_avg_latency: narrow[8],
                range_missing_replica_cnt: narrow[9],
                range_active_cnt: narrow[10],
                wanted: ServerState(wanted),
                withheld_range_cnt: withheld,
                withheld_bytes: bytes,
                incomplete,
            }
        },
    )
}

pub(super) fn report_metrics_response() -> impl Strategy<Value = ReportMetricsResponse> {
    (option::of(range_server()), status())
        .prop_map(|(range_server, status)| ReportMetricsResponse { range_server, status })
}

pub(super) fn cluster() -> impl Strategy<Value = PlacementDriverCluster> {
    let node = (string(), string(), any::<bool>()).prop_map(|(name, advertise_addr, is_leader)| PlacementDriverNode {
        name,
        advertise_addr,
        is_leader,
    });
    let stuck = (any::<i64>(), any::<i32>(), string()).prop_map(|(stream, range, reason)| StuckRange {
        stream_id: StreamId(stream),
        range_index: RangeIndex(range),
        reason,
    });
    let server = (
        option::of(range_server()),
        any::<i8>(),
        any::<bool>(),
        any::<i64>(),
        any::<[i32; 7]>(),
        any::<[i64; 2]>(),
        some(stuck),
    );
    let server = server.prop_map(
        |(range_server, state, is_up, silent_ms, counts, bytes, stuck)| RangeServerStatus {
            range_server,
            state: ServerState(state),
            is_up,
            silent_ms,
            open_range_cnt: counts[0],
            missing_replica_cnt: counts[1],
            follower_range_cnt: counts[2],
            sealed_range_cnt: counts[3],
            incomplete_range_cnt: counts[4],
            disk_free_space: bytes[0],
            stuck_range_cnt: counts[5],
            stuck,
            withheld_range_cnt: counts[6],
            withheld_bytes: bytes[1],
        },
    );
    let member = (string(), any::<bool>(), string()).prop_map(|(address, is_up, trouble)| MetadataStoreMember {
        address,
        is_up,
        trouble,
    });
    let counts = (or_absent(), or_absent());
    let cluster = (
        some(node),
        or_absent(),
        option::of(some(server)),
        counts,
        option::of(some(member)),
    );
    cluster.prop_map(
        |(nodes, term, range_servers, (copying_range_cnt, waiting_range_cnt), metadata_store)| PlacementDriverCluster {
            nodes,
            term,
            range_servers,
            copying_range_cnt,
            waiting_range_cnt,
            metadata_store,
        },
    )
}

pub(super) fn describe_cluster_request() -> impl Strategy<Value = DescribePlacementDriverClusterRequest> {
    (option::of(range_server()), any::<i32>()).prop_map(|(range_server, timeout_ms)| {
        DescribePlacementDriverClusterRequest {
            range_server,
            timeout_ms,
        }
    })
}

pub(super) fn describe_cluster_response() -> impl Strategy<Value = DescribePlacementDriverClusterResponse> {
    (status(), option::of(cluster()))
        .prop_map(|(status, cluster)| DescribePlacementDriverClusterResponse { status, cluster })
}
