//! What is done to streams, and who decides, over a socket.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use bytes::{Bytes, BytesMut};
use sbp_e2e::admin::{Admin, bounds, created, numbered, on_server, pair, range_id, server_id, stream_named};
use sbp_e2e::batches::{raw_batch, told};
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::servers::start;
use sbp_messages::{
    AppendResponse, AppendResult, DeleteStreamsRequest, DeleteStreamsResponse, DescribePlacementDriverClusterRequest,
    DescribePlacementDriverClusterResponse, DescribeStreamsRequest, DescribeStreamsResponse, ErrorCode, FetchResponse,
    IdAllocationRequest, IdAllocationResponse, Message, ReportMetricsRequest, ReportMetricsResponse, SealKind, Stream,
};
use sbp_record::{EncodeOptions, RecordsBuilder, StreamSchema, encode_arrow, inspect};
use sbp_types::{Epoch, Offset, ServerId, StreamId, StreamIdentity};

#[test]
fn a_stream_comes_with_its_first_range_and_the_settings_in_force() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let wanted = vec![
        stream_named("a"),
        Stream::default(),
        stream_named("a"),
        stream_named("9"),
    ];
    let made = created(&mut peer, wanted);
    let (stream, range, _) = &made[0];
    assert_eq!(
        (stream.stream_id, stream.replica_nums, stream.ack_count),
        (StreamId(1), 1, 1)
    );
    assert_eq!((stream.retention_period_ms, stream.retention_bytes), (0, -1));
    let range = range.as_ref().unwrap();
    assert_eq!((bounds(range), range.epoch), ((0, 0, -1, 0), Some(Epoch(0))));
    assert_eq!((range.replica_count, range.ack_count), (Some(1), Some(1)));
    assert_eq!(range.primary().unwrap().advertise_addr, server.address());
    assert_eq!((made[1].0.stream_id, made[1].0.name.as_str()), (StreamId(2), ""));
    assert_eq!(made[2].0.stream_id, StreamId(1), "the same name is the same stream");
    assert_eq!((made[3].0.name.as_str(), made[3].2), ("9", ErrorCode::INVALID_REQUEST));
    let other = Stream {
        retention_bytes: 5,
        ..stream_named("a")
    };
    let two_copies = Stream {
        replica_nums: 2,
        ..stream_named("two")
    };
    let results = created(&mut peer, vec![other, two_copies, stream_named("A")]);
    let codes: Vec<_> = results.iter().map(|(_, _, code)| *code).collect();
    assert_eq!(
        codes,
        [
            ErrorCode::ALREADY_EXISTS,
            ErrorCode::PD_NO_AVAILABLE_RS,
            ErrorCode::NONE
        ]
    );
    assert_eq!(results[2].0.stream_id, StreamId(3), "names differ byte by byte");
}

/// What streams with these numbers are described with.
fn identities(peer: &mut Peer, ids: &[StreamId]) -> Vec<Option<StreamIdentity>> {
    let request = DescribeStreamsRequest {
        stream_ids: ids.to_vec(),
        ..Default::default()
    };
    let (response, _): (DescribeStreamsResponse, _) = peer.call(&request, b"");
    let streams = response.describe_responses.into_iter();
    streams.map(|result| result.stream.unwrap().identity).collect()
}

#[test]
fn a_stream_keeps_the_identity_that_it_was_created_with_and_no_other_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let made = created(&mut peer, vec![stream_named("a"), stream_named("b"), Stream::default()]);
    let ids: Vec<_> = made.iter().map(|(stream, ..)| stream.stream_id).collect();
    let first: Vec<_> = made.iter().map(|(stream, ..)| stream.identity).collect();
    let different: HashSet<_> = first.iter().map(|identity| identity.unwrap()).collect();
    assert_eq!(different.len(), 3);
    assert_eq!(identities(&mut peer, &ids), first);
    // What a request says of it is not looked at.
    let wanted = Stream {
        identity: Some(StreamIdentity([1; 16])),
        ..stream_named("a")
    };
    assert_eq!(created(&mut peer, vec![wanted])[0].0.identity, first[0]);
    let change = Stream {
        name: "renamed".to_owned(),
        retention_bytes: 1 << 20,
        identity: Some(StreamIdentity([2; 16])),
        ..numbered(ids[0])
    };
    assert_eq!(peer.update(change).0.identity, first[0]);
    drop((peer, server));
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    assert_eq!(identities(&mut peer, &ids), first, "after a restart");
    drop((peer, server));
    // A server that is set up anew gives the same numbers and names.
    let other = tempfile::tempdir().unwrap();
    let server = start(Some(other.path()));
    let mut peer = Peer::connect(&server);
    let (again, ..) = created(&mut peer, vec![stream_named("a")]).remove(0);
    assert_eq!((again.stream_id, again.name.as_str()), (ids[0], "a"));
    assert!(again.identity.is_some_and(|identity| !different.contains(&identity)));
}

#[test]
fn an_update_is_in_force_at_once_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let wanted = Stream {
        retention_period_ms: 60_000,
        properties: Some(vec![pair("team", "a")]),
        ..stream_named("before")
    };
    let id = created(&mut peer, vec![wanted]).remove(0).0.stream_id;
    let change = Stream {
        name: "after".to_owned(),
        retention_bytes: 1 << 20,
        ..numbered(id)
    };
    let (stream, status) = peer.update(change);
    assert!(status.is_success(), "{status}");
    assert_eq!((stream.name.as_str(), stream.retention_bytes), ("after", 1 << 20));
    assert_eq!(stream.retention_period_ms, 0, "always taken");
    assert_eq!(stream.properties, Some(vec![pair("team", "a")]));
    drop((peer, server));
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let names = DescribeStreamsRequest {
        names: vec!["after".to_owned(), "before".to_owned()],
        ..Default::default()
    };
    let (response, _): (DescribeStreamsResponse, _) = peer.call(&names, b"");
    let found = &response.describe_responses;
    assert_eq!(found[0].stream.as_ref(), Some(&stream));
    assert_eq!(found[1].status.code, ErrorCode::NOT_FOUND, "the old name is free");
    let none = Stream {
        properties: Some(Vec::new()),
        ..numbered(id)
    };
    assert_eq!(peer.update(none).0.properties, None, "replaced by none");
    for (change, code) in [
        (numbered(StreamId(9)), ErrorCode::NOT_FOUND),
        (numbered(StreamId(-1)), ErrorCode::NOT_FOUND),
        (
            Stream {
                ack_count: 2,
                ..numbered(id)
            },
            ErrorCode::INVALID_REQUEST,
        ),
    ] {
        let asked = change.stream_id;
        let (stream, status) = peer.update(change);
        assert_eq!((stream.stream_id, status.code), (asked, code));
    }
}

#[test]
fn a_deleted_stream_is_not_found_by_anybody_and_its_number_is_never_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(Some(directory.path()));
    let (mut peer, mut waiting) = (Peer::connect(&server), Peer::connect(&server));
    let stream = peer.create("s");
    peer.store(stream, b"x");
    let call = waiting.send(&fetch_request(20_000, 1, &[from(stream, 1)]), b"");
    // The fetch waits when a later request of its connection is answered.
    waiting.store(stream, b"y");
    let frame = waiting.recv();
    assert_eq!(frame.call_id, call, "it saw the record");
    let call = waiting.send(&fetch_request(20_000, 1, &[from(stream, 2)]), b"");
    let query = DescribeStreamsRequest::default();
    let _: (DescribeStreamsResponse, _) = waiting.call(&query, b"");
    assert!(peer.delete(stream).is_success());
    assert_eq!(peer.append(stream, b"z").status.code, ErrorCode::NOT_FOUND, "at once");
    let frame = waiting.recv();
    let response = FetchResponse::decode(&frame.header).unwrap();
    assert_eq!(
        (frame.call_id, response.fetch_responses[0].status.code),
        (call, ErrorCode::NOT_FOUND),
        "also who waits"
    );
    assert_eq!(peer.delete(stream).code, ErrorCode::NOT_FOUND, "twice");
    assert_eq!(peer.trim(stream, 0).status.code, ErrorCode::NOT_FOUND);
    assert_eq!(
        peer.seal(range_id(stream, 0), SealKind::UNSPECIFIED).status.code,
        ErrorCode::NOT_FOUND
    );
    assert_eq!(peer.describe_range(stream, 0), Err(ErrorCode::NOT_FOUND));
    let again = peer.create("s");
    assert_eq!(again, StreamId(stream.0 + 1), "the name is free, the number is not");
    drop((peer, waiting, server));
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    assert_eq!(peer.append(stream, b"z").status.code, ErrorCode::NOT_FOUND);
    assert_eq!(peer.store(again, b"z"), 0);
}

#[test]
fn entries_of_one_stream_in_one_request_take_turns() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let (one, two) = (peer.create("one"), peer.create("two"));
    let request = DeleteStreamsRequest {
        streams: [one, two, one, StreamId(0)].map(numbered).to_vec(),
        ..Default::default()
    };
    let (response, _): (DeleteStreamsResponse, _) = peer.call(&request, b"");
    let codes: Vec<_> = response
        .delete_responses
        .iter()
        .map(|result| result.status.code)
        .collect();
    assert_eq!(
        codes,
        [
            ErrorCode::NONE,
            ErrorCode::NONE,
            ErrorCode::NOT_FOUND,
            ErrorCode::NOT_FOUND
        ]
    );
}

#[test]
fn a_trim_moves_the_start_also_inside_a_batch_and_drops_ranges() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for range in 0..3 {
        for _record in 0..4 {
            peer.store(stream, b"x");
        }
        if range < 2 {
            peer.seal(range_id(stream, range), SealKind::UNSPECIFIED);
        }
    }
    // Ranges 0..4, 4..8, 8.. with 12 records.
    let result = peer.trim(stream, 2);
    assert!(result.status.is_success(), "{}", result.status);
    assert_eq!(result.trimmed_stream.unwrap().name, "s");
    assert_eq!(bounds(&result.range.unwrap()), (0, 2, 4, 4));
    let out = |peer: &mut Peer, offset| {
        let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, offset)]), b"");
        let result = response.fetch_responses[0].clone();
        (result.status.code, told(result.start_offset))
    };
    assert_eq!(out(&mut peer, 1), (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, 2));
    assert_eq!(out(&mut peer, -2), (ErrorCode::NONE, 2), "the earliest is the start");
    assert_eq!(
        bounds(&peer.trim(stream, 1).range.unwrap()),
        (0, 2, 4, 4),
        "below it nothing changes"
    );
    assert_eq!(bounds(&peer.trim(stream, 9).range.unwrap()), (2, 9, -1, 12));
    assert_eq!(peer.describe_range(stream, 1), Err(ErrorCode::RANGE_NOT_FOUND));
    for start in [13, i64::MAX, -1] {
        assert_eq!(
            peer.trim(stream, start).status.code,
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
            "{start}"
        );
    }
    for restart in [false, true] {
        if restart {
            drop((peer, server));
            server = start(Some(directory.path()));
            peer = Peer::connect(&server);
        }
        assert_eq!(
            peer.ranges(stream).iter().map(bounds).collect::<Vec<_>>(),
            [(2, 9, -1, 12)]
        );
        assert_eq!(out(&mut peer, 8), (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, 9));
        assert_eq!(peer.fetch_all(stream, 9).len(), 3);
    }
    assert_eq!(
        bounds(&peer.trim(stream, 12).range.unwrap()),
        (2, 12, -1, 12),
        "all of it"
    );
    assert_eq!(peer.store(stream, b"x"), 12, "offsets go on");
    let next = peer.seal(range_id(stream, 2), SealKind::UNSPECIFIED).range.unwrap();
    assert_eq!(bounds(&next), (3, 13, -1, 13), "indices go on");
}

#[test]
fn ids_of_servers_are_given_once_also_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut given = Vec::new();
    for _life in 0..2 {
        let server = start(Some(directory.path()));
        let mut peer = Peer::connect(&server);
        given.push(server_id(&mut peer));
        for _server in 0..2 {
            let request = IdAllocationRequest {
                host: "elsewhere".to_owned(),
                ..Default::default()
            };
            let (response, _): (IdAllocationResponse, _) = peer.call(&request, b"");
            assert!(response.status.is_success());
            given.push(response.id);
        }
        let nobody = IdAllocationRequest::default();
        assert_eq!(peer.refused(&nobody, b""), ErrorCode::INVALID_REQUEST, "who asks?");
    }
    assert_eq!(
        given,
        [1, 2, 3, 1, 4, 5],
        "a combined server takes its own and keeps it"
    );
}

#[test]
fn a_cluster_of_one_leads_itself_and_takes_reports() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let request = DescribePlacementDriverClusterRequest::default();
    let (response, _): (DescribePlacementDriverClusterResponse, _) = peer.call(&request, b"");
    let cluster = response.cluster.unwrap();
    assert_eq!((cluster.nodes.len(), response.status.code), (1, ErrorCode::NONE));
    assert_eq!(cluster.leader().unwrap().advertise_addr, server.address());
    let report = |range_server| ReportMetricsRequest {
        range_server,
        disk_free_space: 1 << 40,
        ..Default::default()
    };
    let newcomer = IdAllocationRequest {
        host: "elsewhere".to_owned(),
        ..Default::default()
    };
    let (given, _): (IdAllocationResponse, _) = peer.call(&newcomer, b"");
    let (response, _): (ReportMetricsResponse, _) = peer.call(&report(Some(on_server(given.id))), b"");
    assert_eq!(response.range_server.unwrap().server_id, ServerId(given.id));
    assert!(response.status.is_success());
    let (response, _): (ReportMetricsResponse, _) = peer.call(&report(Some(on_server(7))), b"");
    assert_eq!(
        response.status.code,
        ErrorCode::INVALID_REQUEST,
        "nobody has that number"
    );
    let (response, _): (ReportMetricsResponse, _) = peer.call(&report(None), b"");
    assert_eq!(response.status.code, ErrorCode::INVALID_REQUEST);
}

/// Appends one batch as it is.
fn append_batch(peer: &mut Peer, stream: StreamId, batch: &Bytes) -> AppendResult {
    let (mut response, _): (AppendResponse, _) = peer.call(&append_request(&[(stream, batch.len())]), batch);
    response.append_responses.remove(0)
}

#[test]
fn a_trim_inside_a_batch_leaves_the_batch_whole() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let (mut records, mut batch) = (RecordsBuilder::new(), BytesMut::new());
    for value in [b"a", b"b", b"c", b"d"] {
        records.push(Some(value), None, None, &[]).unwrap();
    }
    records.finish(&EncodeOptions::default(), &mut batch).unwrap();
    let batch = batch.freeze();
    assert_eq!(append_batch(&mut peer, stream, &batch).next_offset, Some(Offset(4)));
    peer.store(stream, b"e");
    assert_eq!(bounds(&peer.trim(stream, 2).range.unwrap()), (0, 2, -1, 5));
    let (response, payload): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 2)]), b"");
    let result = &response.fetch_responses[0];
    assert_eq!((told(result.base_offset), told(result.start_offset)), (0, 2));
    assert_eq!(
        (told(result.next_offset), result.record_count),
        (5, 5),
        "whole batches are counted"
    );
    let head = inspect(&[payload.slice(..batch.len())], true).unwrap();
    assert_eq!((head.base_offset.0, head.record_count), (0, 4));
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 1)]), b"");
    assert_eq!(
        response.fetch_responses[0].status.code,
        ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS
    );
}

/// A schema of so many integer columns, of which only the first one must be there, and one row of it.
fn columns(count: usize) -> (StreamSchema, Bytes) {
    let field = |place| Field::new(format!("c{place}"), DataType::Int64, place > 0);
    let fields = Arc::new(Schema::new((0..count).map(field).collect::<Vec<_>>()));
    let schema = StreamSchema::from_arrow(&fields).unwrap();
    let values = (0..count).map(|_| Arc::new(Int64Array::from(vec![7])) as ArrayRef);
    let rows = RecordBatch::try_new(fields, values.collect()).unwrap();
    let mut batch = BytesMut::new();
    encode_arrow(&EncodeOptions::default(), &schema, &rows, &mut batch).unwrap();
    (schema, batch.freeze())
}

#[test]
fn a_stream_whose_schema_has_grown_takes_batches_of_either() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let ((old, narrow), (new, wide)) = (columns(1), columns(2));
    let typed = |schema: &StreamSchema, stream| Stream {
        schema: Some(schema.to_ipc().into()),
        ..stream
    };
    let id = created(&mut peer, vec![typed(&old, Stream::default())])
        .remove(0)
        .0
        .stream_id;
    let code = |peer: &mut Peer, batch| append_batch(peer, id, batch).status.code;
    assert_eq!(code(&mut peer, &narrow), ErrorCode::NONE);
    assert_eq!(code(&mut peer, &wide), ErrorCode::SCHEMA_MISMATCH);
    let (stream, status) = peer.update(typed(&new, numbered(id)));
    assert!(status.is_success(), "{status}");
    assert_eq!(StreamSchema::from_ipc(&stream.schema.unwrap()).unwrap(), new);
    assert_eq!(code(&mut peer, &wide), ErrorCode::NONE);
    assert_eq!(code(&mut peer, &narrow), ErrorCode::NONE);
    let (_, status) = peer.update(typed(&old, numbered(id)));
    assert_eq!(status.code, ErrorCode::INVALID_REQUEST, "it does not shrink");
    assert_eq!(code(&mut peer, &raw_batch(b"opaque")), ErrorCode::SCHEMA_MISMATCH);
}
