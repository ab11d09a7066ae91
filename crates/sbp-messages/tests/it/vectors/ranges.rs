//! LIST_RANGES, SEAL_RANGES, SYNC_RANGES, CREATE_RANGE, DESCRIBE_RANGES.

use bytes::Bytes;
use sbp_messages::*;
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId};

use super::count::Count;
use super::headers;

pub(crate) fn range_server(n: &mut Count) -> RangeServer {
    RangeServer {
        server_id: ServerId(n.int()),
        advertise_addr: n.text(),
        zone: n.extension(String::new(), Count::text),
        starts: n.extension(0, Count::long),
        followed: n.extension(0, Count::long),
    }
}

fn replica_server(n: &mut Count) -> ReplicaServer {
    ReplicaServer {
        range_server: Some(range_server(n)),
        is_primary: true,
        state: n.extension(ReplicaState::COMPLETE, |_| ReplicaState::COPYING),
    }
}

pub(crate) fn range(n: &mut Count) -> Range {
    Range {
        stream_id: StreamId(n.long()),
        range_index: RangeIndex(n.int()),
        start_offset: Offset(n.long()),
        end_offset: Some(Offset(n.long())),
        next_offset: Offset(n.long()),
        servers: n.two(replica_server),
        epoch: n.extension(None, |n| Some(Epoch(n.long()))),
        replica_count: n.extension(None, |n| Some(n.byte())),
        ack_count: n.extension(None, |n| Some(n.byte())),
        end_marks: n.extension(0, Count::marks),
        next_marks: n.extension(0, Count::marks),
        opened_offset: n.extension(None, |n| Some(Offset(n.long()))),
    }
}

pub(super) fn range_id(n: &mut Count) -> RangeId {
    RangeId {
        stream_id: StreamId(n.long()),
        range_index: Some(RangeIndex(n.int())),
        epoch: n.extension(None, |n| Some(Epoch(n.long()))),
        end_offset: n.extension(None, |n| Some(Offset(n.long()))),
    }
}

fn range_criteria(n: &mut Count) -> RangeCriteria {
    RangeCriteria {
        range_server: Some(range_server(n)),
        stream_id: Some(StreamId(n.long())),
    }
}

fn list_result(n: &mut Count) -> ListRangesResult {
    ListRangesResult {
        range_criteria: Some(range_criteria(n)),
        ranges: n.two(range),
        status: n.status(),
    }
}

fn seal_result(n: &mut Count) -> SealRangesResult {
    SealRangesResult {
        stream_id: StreamId(n.long()),
        range: Some(range(n)),
        status: n.status(),
        confirmed_offset: n.extension(None, |n| Some(Offset(n.long()))),
        writers_parts: n.extension(0, Count::marks),
        begins_offset: n.extension(None, |n| Some(Offset(n.long()))),
        begins_marks: n.extension(0, Count::marks),
        whole_offset: n.extension(None, |n| Some(Offset(n.long()))),
        whole_marks: n.extension(0, Count::marks),
        lost_offsets: n.extension(Vec::new(), |n| n.two(|n| Offset(n.long()))),
    }
}

fn stream_ranges(n: &mut Count) -> StreamRanges {
    StreamRanges {
        stream_id: StreamId(n.long()),
        ranges: n.two(range),
    }
}

fn sync_result(n: &mut Count) -> SyncRangesResult {
    SyncRangesResult {
        stream_id: StreamId(n.long()),
        ranges: n.two(range),
        status: n.status(),
    }
}

fn describe_result(n: &mut Count) -> DescribeRangeResult {
    DescribeRangeResult {
        stream_id: StreamId(n.long()),
        range: Some(range(n)),
        status: n.status(),
    }
}

headers! {
    ListRangesRequest, n => ListRangesRequest {
        timeout_ms: n.int(),
        range_criteria: n.two(range_criteria),
        limit: n.extension(0, Count::int),
        continuation: n.extension(Bytes::new(), Count::bytes),
    };
    ListRangesResponse, n => ListRangesResponse {
        throttle_time_ms: n.int(),
        list_responses: n.two(list_result),
        status: n.status(),
        continuation: n.extension(Bytes::new(), Count::bytes),
        term: n.extension(0, Count::long),
    };
    SealRangesRequest, n => SealRangesRequest {
        timeout_ms: n.int(),
        ranges: n.two(range_id),
        kind: n.extension(SealKind::UNSPECIFIED, |_| SealKind::PLACEMENT_DRIVER),
        term: n.extension(0, Count::long),
        avoid: n.extension(Vec::new(), |n| n.two(|n| ServerId(n.int()))),
        force: n.extension(false, |_| true),
    };
    SealRangesResponse, n => SealRangesResponse {
        throttle_time_ms: n.int(),
        seal_responses: n.two(seal_result),
        status: n.status(),
    };
    SyncRangesRequest, n => SyncRangesRequest {
        timeout_ms: n.int(),
        stream_ranges: n.two(stream_ranges),
        term: n.extension(0, Count::long),
    };
    SyncRangesResponse, n => SyncRangesResponse {
        throttle_time_ms: n.int(),
        sync_responses: n.two(sync_result),
        status: n.status(),
    };
    CreateRangeRequest, n => CreateRangeRequest {
        timeout_ms: n.int(),
        range: Some(range(n)),
    };
    CreateRangeResponse, n => CreateRangeResponse {
        status: n.status(),
        range: Some(range(n)),
        throttle_time_ms: n.int(),
    };
    DescribeRangesRequest, n => DescribeRangesRequest {
        timeout_ms: n.int(),
        ranges: n.two(range_id),
    };
    DescribeRangesResponse, n => DescribeRangesResponse {
        throttle_time_ms: n.int(),
        describe_responses: n.two(describe_result),
        status: n.status(),
    };
}
