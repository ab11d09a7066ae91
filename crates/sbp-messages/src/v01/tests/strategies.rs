//! Random messages. Numbers range over all that their type holds: what they mean is judged elsewhere.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sbp_types::{Epoch, Offset, Position, RangeIndex, ServerId, StreamId, StreamIdentity, TimestampMs};

use crate::*;

pub(super) fn string() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..6).prop_map(String::from_iter)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..9).prop_map(Bytes::from)
}

/// A number that may be left out: every fourth is.
fn optional<T: PartialEq + std::hash::Hash>(value: T, none: T) -> Option<T> {
    let mut hasher = std::hash::DefaultHasher::new();
    value.hash(&mut hasher);
    (value != none && !std::hash::Hasher::finish(&hasher).is_multiple_of(4)).then_some(value)
}

/// A number that is left out where it is 0: every other one is.
pub(super) fn or_absent<T: Arbitrary + Default + Clone + std::fmt::Debug + 'static>() -> BoxedStrategy<T> {
    prop_oneof![Just(T::default()), any::<T>()].boxed()
}

/// An offset, or none; -1 says that there is none.
pub(super) fn said_offset() -> impl Strategy<Value = Option<Offset>> {
    option::of(any::<i64>().prop_map(|offset| Offset(if offset == -1 { -2 } else { offset })))
}

/// A place, or none; an offset of -1 says that there is none.
fn position() -> impl Strategy<Value = Option<Position>> {
    option::of((any::<i64>(), or_absent()).prop_map(|(offset, marks)| Position {
        offset: Offset(if offset == -1 { -2 } else { offset }),
        marks,
    }))
}

pub(super) fn some<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    vec(strategy, 0..4)
}

/// A code that reads as itself: no foreign word for another one, none of this side's.
fn code() -> impl Strategy<Value = ErrorCode> {
    any::<i16>().prop_map(ErrorCode).prop_filter("reads as itself", |code| {
        !code.is_local() && ErrorCode::from_wire(code.0) == *code
    })
}

pub(super) fn status() -> BoxedStrategy<Status> {
    let error = (code(), string(), bytes()).prop_map(|(code, message, detail)| Status { code, message, detail });
    prop_oneof![Just(Status::success()), error].boxed()
}

pub(super) fn range_server() -> impl Strategy<Value = RangeServer> {
    (any::<i32>(), string(), string(), or_absent(), or_absent()).prop_map(
        |(id, advertise_addr, zone, starts, followed)| RangeServer {
            server_id: ServerId(id),
            advertise_addr,
            zone,
            starts,
            followed,
        },
    )
}

pub(super) fn range() -> impl Strategy<Value = Range> {
    let replica = (option::of(range_server()), any::<bool>(), or_absent::<i8>());
    let replica = replica.prop_map(|(range_server, is_primary, state)| ReplicaServer {
        range_server,
        is_primary,
        state: ReplicaState(state),
    });
    let offsets = (any::<i64>(), any::<i64>(), any::<i64>());
    let counts = (any::<i8>(), any::<i8>(), or_absent(), or_absent(), said_offset());
    (any::<i64>(), any::<i32>(), offsets, some(replica), any::<i64>(), counts).prop_map(
        |(
            stream,
            index,
            (start, end, next),
            servers,
            epoch,
            (replica_count, ack_count, end_marks, next_marks, opened_offset),
        )| {
            Range {
                stream_id: StreamId(stream),
                range_index: RangeIndex(index),
                start_offset: Offset(start),
                end_offset: optional(Offset(end), Offset(-1)),
                next_offset: Offset(next),
                servers,
                epoch: optional(Epoch(epoch), Epoch(-1)),
                replica_count: optional(replica_count, -1),
                ack_count: optional(ack_count, -1),
                end_marks,
                next_marks,
                opened_offset,
            }
        },
    )
}

pub(super) fn stream() -> impl Strategy<Value = Stream> {
    let property = (string(), string()).prop_map(|(key, value)| KeyValue { key, value });
    let counts = (any::<i8>(), any::<i8>());
    let retention = (any::<i64>(), any::<i64>());
    let identity = option::of(any::<[u8; 16]>().prop_map(StreamIdentity));
    let rest = (option::of(some(property)), option::of(bytes()), any::<i64>(), identity);
    (any::<i64>(), counts, retention, string(), rest).prop_map(
        |(stream, (replica_nums, ack_count), (period, bytes), name, (properties, schema, created, identity))| Stream {
            stream_id: StreamId(stream),
            replica_nums,
            retention_period_ms: period,
            ack_count,
            name,
            properties,
            retention_bytes: bytes,
            schema,
            created_at_ms: TimestampMs(created),
            identity,
        },
    )
}

fn features() -> impl Strategy<Value = Vec<Feature>> {
    some((string(), string()).prop_map(|(name, value)| Feature { name, value }))
}

pub(super) fn go_away() -> impl Strategy<Value = GoAway> {
    (status(), any::<i32>()).prop_map(|(status, grace_ms)| GoAway { status, grace_ms })
}

pub(super) fn heartbeat_request() -> impl Strategy<Value = HeartbeatRequest> {
    (
        string(),
        any::<i8>(),
        option::of(range_server()),
        any::<i32>(),
        features(),
        any::<i64>(),
        string().prop_map(Token::new),
    )
        .prop_map(
            |(client_id, role, range_server, protocol_revision, features, connection_id, token)| HeartbeatRequest {
                client_id,
                client_role: ClientRole(role),
                range_server,
                protocol_revision,
                features,
                connection_id,
                token,
            },
        )
}

pub(super) fn heartbeat_response() -> impl Strategy<Value = HeartbeatResponse> {
    (heartbeat_request(), status(), or_absent()).prop_map(|(request, status, term)| HeartbeatResponse {
        client_id: request.client_id,
        client_role: request.client_role,
        range_server: request.range_server,
        status,
        protocol_revision: request.protocol_revision,
        features: request.features,
        connection_id: request.connection_id,
        term,
    })
}

/// An entry of a client.
fn append_info() -> impl Strategy<Value = AppendInfo> {
    (
        any::<i64>(),
        any::<i32>(),
        any::<i32>(),
        any::<i32>(),
        any::<i64>(),
        any::<i64>(),
    )
        .prop_map(
            |(stream, request_index, batch_length, range, epoch, expected)| AppendInfo {
                stream_id: StreamId(stream),
                request_index,
                batch_length,
                range_index: optional(RangeIndex(range), RangeIndex(-1)),
                epoch: optional(Epoch(epoch), Epoch(-1)),
                expected_offset: optional(Offset(expected), Offset(-1)),
                ..AppendInfo::default()
            },
        )
}

/// Entries as `entry` makes them.
fn append_request_of(entry: impl Strategy<Value = AppendInfo>) -> impl Strategy<Value = AppendRequest> {
    (any::<i32>(), vec(entry, 0..20)).prop_map(|(timeout_ms, entries)| AppendRequest {
        timeout_ms,
        append_requests: entries.into(),
    })
}

pub(super) fn append_request() -> impl Strategy<Value = AppendRequest> {
    append_request_of(append_info())
}

/// What the primary of a range sends to its other servers.
pub(super) fn replica_append_request() -> impl Strategy<Value = AppendRequest> {
    let told = (or_absent(), position(), or_absent::<i8>(), position(), or_absent());
    let entry = (append_info(), told).prop_map(|(info, (time, confirmed, entry, sealed_end, marks))| AppendInfo {
        append_time_ms: TimestampMs(time),
        confirmed,
        entry: ReplicaEntry(entry),
        sealed_end,
        marks,
        ..info
    });
    append_request_of(entry)
}

/// Answers whose statuses come from `status`.
pub(super) fn append_response(status: impl Strategy<Value = Status> + Clone) -> impl Strategy<Value = AppendResponse> {
    let numbers = (
        any::<i64>(),
        any::<i32>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<bool>(),
        any::<i64>(),
    );
    let result = (numbers, status.clone()).prop_map(
        |((stream, request_index, base, time, next, duplicate, next_sequence), status)| AppendResult {
            stream_id: StreamId(stream),
            request_index,
            base_offset: optional(Offset(base), Offset(-1)),
            stream_append_time_ms: TimestampMs(time),
            status,
            next_offset: optional(Offset(next), Offset(-1)),
            duplicate,
            next_sequence: optional(next_sequence, -1),
            next_marks: 0,
        },
    );
    (any::<i32>(), vec(result, 0..20), status).prop_map(|(throttle_time_ms, results, status)| AppendResponse {
        throttle_time_ms,
        append_responses: results.into(),
        status,
    })
}

/// Answers of a replica.
pub(super) fn replica_append_response() -> impl Strategy<Value = AppendResponse> {
    (append_response(status()), vec(or_absent(), 20)).prop_map(|(mut response, marks)| {
        for (result, next_marks) in response.append_responses.iter_mut().zip(marks) {
            result.next_marks = next_marks;
        }
        response
    })
}

pub(super) fn fetch_request() -> impl Strategy<Value = FetchRequest> {
    let entry = (
        any::<i64>(),
        any::<i32>(),
        any::<i64>(),
        any::<i32>(),
        any::<i64>(),
        any::<i64>(),
    )
        .prop_map(
            |(stream, request_index, offset, batch_max_bytes, end, time)| FetchInfo {
                stream_id: StreamId(stream),
                request_index,
                fetch_offset: Offset(offset),
                batch_max_bytes,
                end_offset: optional(Offset(end), Offset(-1)),
                start_timestamp_ms: optional(TimestampMs(time), TimestampMs(-1)),
            },
        );
    let withdraw = prop_oneof![Just(0), any::<i32>()];
    (any::<i32>(), any::<i32>(), vec(entry, 0..20), any::<i32>(), withdraw).prop_map(
        |(max_wait_ms, min_bytes, entries, max_bytes, withdraw)| FetchRequest {
            max_wait_ms,
            min_bytes,
            fetch_requests: entries.into(),
            max_bytes,
            withdraw,
        },
    )
}

/// Answers whose statuses come from `status`.
pub(super) fn fetch_response(status: impl Strategy<Value = Status> + Clone) -> impl Strategy<Value = FetchResponse> {
    let offsets = (any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>());
    let numbers = (any::<i64>(), any::<i32>(), any::<i32>(), any::<bool>(), any::<i32>());
    let result = (numbers, offsets, status.clone()).prop_map(
        |((stream, request_index, batch_length, end_of_range, record_count), (base, next, start, high), status)| {
            FetchResult {
                stream_id: StreamId(stream),
                request_index,
                batch_length,
                status,
                base_offset: optional(Offset(base), Offset(-1)),
                next_offset: optional(Offset(next), Offset(-1)),
                start_offset: optional(Offset(start), Offset(-1)),
                high_watermark: optional(Offset(high), Offset(-1)),
                end_of_range,
                record_count,
            }
        },
    );
    (any::<i32>(), vec(result, 0..20), status).prop_map(|(throttle_time_ms, results, status)| FetchResponse {
        throttle_time_ms,
        fetch_responses: results.into(),
        status,
    })
}

fn criteria() -> impl Strategy<Value = RangeCriteria> {
    (option::of(range_server()), any::<i64>()).prop_map(|(range_server, stream)| RangeCriteria {
        range_server,
        stream_id: optional(StreamId(stream), StreamId(-1)),
    })
}

pub(super) fn list_ranges_request() -> impl Strategy<Value = ListRangesRequest> {
    (any::<i32>(), some(criteria()), any::<i32>(), bytes()).prop_map(
        |(timeout_ms, range_criteria, limit, continuation)| ListRangesRequest {
            timeout_ms,
            range_criteria,
            limit,
            continuation,
        },
    )
}

pub(super) fn list_ranges_response() -> impl Strategy<Value = ListRangesResponse> {
    let result = (option::of(criteria()), some(range()), status()).prop_map(|(range_criteria, ranges, status)| {
        ListRangesResult {
            range_criteria,
            ranges,
            status,
        }
    });
    (any::<i32>(), some(result), status(), bytes(), or_absent()).prop_map(
        |(throttle_time_ms, list_responses, status, continuation, term)| ListRangesResponse {
            throttle_time_ms,
            list_responses,
            status,
            continuation,
            term,
        },
    )
}

pub(super) fn range_id() -> impl Strategy<Value = RangeId> {
    (any::<i64>(), any::<i32>(), any::<i64>(), any::<i64>()).prop_map(|(stream, index, epoch, end)| RangeId {
        stream_id: StreamId(stream),
        range_index: optional(RangeIndex(index), RangeIndex(-1)),
        epoch: optional(Epoch(epoch), Epoch(-1)),
        end_offset: optional(Offset(end), Offset(-1)),
    })
}

pub(super) fn describe_ranges_request() -> impl Strategy<Value = DescribeRangesRequest> {
    (any::<i32>(), some(range_id())).prop_map(|(timeout_ms, ranges)| DescribeRangesRequest { timeout_ms, ranges })
}

pub(super) fn describe_ranges_response() -> impl Strategy<Value = DescribeRangesResponse> {
    let result =
        (any::<i64>(), option::of(range()), status()).prop_map(|(stream, range, status)| DescribeRangeResult {
            stream_id: StreamId(stream),
            range,
            status,
        });
    (any::<i32>(), some(result), status()).prop_map(|(throttle_time_ms, describe_responses, status)| {
        DescribeRangesResponse {
            throttle_time_ms,
            describe_responses,
            status,
        }
    })
}

pub(super) fn create_streams_request() -> impl Strategy<Value = CreateStreamsRequest> {
    (any::<i32>(), some(stream())).prop_map(|(timeout_ms, streams)| CreateStreamsRequest { timeout_ms, streams })
}

pub(super) fn create_streams_response() -> impl Strategy<Value = CreateStreamsResponse> {
    let result = (option::of(stream()), option::of(range()), status())
        .prop_map(|(stream, range, status)| CreateStreamResult { stream, range, status });
    (any::<i32>(), some(result), status()).prop_map(|(throttle_time_ms, create_responses, status)| {
        CreateStreamsResponse {
            throttle_time_ms,
            create_responses,
            status,
        }
    })
}

pub(super) fn describe_streams_request() -> impl Strategy<Value = DescribeStreamsRequest> {
    (
        any::<i32>(),
        some(any::<i64>().prop_map(StreamId)),
        some(string()),
        any::<i32>(),
        bytes(),
    )
        .prop_map(
            |(timeout_ms, stream_ids, names, limit, continuation)| DescribeStreamsRequest {
                timeout_ms,
                stream_ids,
                names,
                limit,
                continuation,
            },
        )
}

pub(super) fn describe_streams_response() -> impl Strategy<Value = DescribeStreamsResponse> {
    let result = (option::of(stream()), status()).prop_map(|(stream, status)| DescribeStreamResult { stream, status });
    (any::<i32>(), some(result), status(), bytes(), or_absent()).prop_map(
        |(throttle_time_ms, describe_responses, status, continuation, term)| DescribeStreamsResponse {
            throttle_time_ms,
            describe_responses,
            status,
            continuation,
            term,
        },
    )
}
