//! A server over real loopback: append and fetch back, restart and read back, streamed FETCH.

use std::time::{Duration, Instant};

use sbp_e2e::batches::{bodies, raw_batch, told};
use sbp_e2e::damage::damage;
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::servers::{config, start};
use sbp_frame::Flags;
use sbp_messages::{
    AppendInfo, AppendRequest, AppendResponse, ClientRole, CreateStreamsRequest, CreateStreamsResponse,
    DescribeRangesRequest, DescribeRangesResponse, DescribeStreamsRequest, DescribeStreamsResponse, ErrorCode, Feature,
    FetchInfo, FetchResponse, HeartbeatRequest, HeartbeatResponse, ListRangesRequest, ListRangesResponse, Message,
    RangeCriteria, RangeId, Stream, features,
};
use sbp_server::{Durability, Server, ServerConfig};
use sbp_types::{Offset, RangeIndex, StreamId, TimestampMs};

#[test]
fn what_is_appended_is_fetched() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("orders");
    for n in 0..10 {
        assert_eq!(peer.store(stream, format!("record {n}").as_bytes()), n);
    }
    let all = peer.fetch_all(stream, 0);
    let expected: Vec<_> = (0..10).map(|n| (n, format!("record {n}").into())).collect();
    assert_eq!(all, expected);
    assert_eq!(peer.fetch_all(stream, 7), expected[7..]);
    assert_eq!(peer.fetch_all(stream, 10), []);
    let stats = server.stats();
    assert_eq!((stats.appends, stats.records_appended, stats.streams), (10, 10, 1));
    server.shutdown().unwrap();
}

#[test]
fn a_restarted_server_has_everything() {
    let directory = tempfile::tempdir().unwrap();
    let (orders, empty) = {
        let server = start(Some(directory.path()));
        let mut peer = Peer::connect(&server);
        let (orders, empty) = (peer.create("orders"), peer.create("empty"));
        for n in 0..5 {
            assert_eq!(peer.store(orders, &[n; 100]), i64::from(n));
        }
        server.shutdown().unwrap();
        (orders, empty)
    };
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    assert_eq!(
        (peer.create("orders"), peer.create("empty")),
        (orders, empty),
        "the same streams"
    );
    let all = peer.fetch_all(orders, 0);
    assert_eq!(
        all,
        (0..5)
            .map(|n| (n.into(), vec![n; 100].into()))
            .collect::<Vec<(i64, _)>>()
    );
    assert_eq!((peer.store(orders, b"next"), peer.store(empty, b"first")), (5, 0));
    assert!(peer.create("another") > empty, "ids are never given twice");
}

#[test]
fn many_streams_go_in_one_frame_and_each_entry_has_its_own_end() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let (a, b) = (peer.create("a"), peer.create("b"));
    let (first, second, third) = (raw_batch(b"1"), raw_batch(b"22"), raw_batch(b"333"));
    let mut request = append_request(&[(a, first.len()), (StreamId(99), second.len()), (b, third.len()), (a, 1)]);
    request.append_requests[2].expected_offset = Some(Offset(4));
    let payload = [&first[..], &second, &third, b"x"].concat();
    let (response, _): (AppendResponse, _) = peer.call(&request, &payload);
    let mut results = response.append_responses;
    results.sort_by_key(|result| result.request_index);
    let ends: Vec<_> = results
        .iter()
        .map(|result| (result.status.code, result.base_offset, result.next_offset))
        .collect();
    assert_eq!(
        ends,
        [
            (ErrorCode::NONE, Some(Offset(0)), Some(Offset(1))),
            (ErrorCode::NOT_FOUND, None, None),
            (ErrorCode::PRECONDITION_FAILED, None, Some(Offset(0))),
            (ErrorCode::BATCH_CORRUPT, None, None),
        ]
    );
    assert_eq!(peer.fetch_all(b, 0), []);
}

#[test]
fn appends_of_one_connection_take_effect_in_the_order_of_their_frames() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let mut calls = Vec::new();
    for n in 0..500_u32 {
        let batch = raw_batch(&n.to_be_bytes());
        calls.push(peer.send(&append_request(&[(stream, batch.len())]), &batch));
    }
    for _ in 0..500 {
        let frame = peer.recv();
        let place = calls.iter().position(|call| *call == frame.call_id).unwrap();
        let response = AppendResponse::decode(&frame.header).unwrap();
        assert_eq!(
            response.append_responses[0].base_offset,
            Some(Offset(i64::try_from(place).unwrap()))
        );
    }
    let all = peer.fetch_all(stream, 0);
    assert!(
        all.iter()
            .enumerate()
            .all(|(n, (_, body))| body[..] == u32::try_from(n).unwrap().to_be_bytes())
    );
    assert!(
        server.stats().groups < 500,
        "appends that wait together are written together"
    );
}

#[test]
fn a_fetch_is_answered_stream_by_stream_as_data_comes() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let streams: Vec<_> = ["a", "b", "c"].iter().map(|name| writer.create(name)).collect();
    writer.store(streams[0], b"there");
    let started = Instant::now();
    let wait = Duration::from_secs(3);
    let entries: Vec<_> = streams.iter().map(|stream| from(*stream, 0)).collect();
    let call = reader.send(
        &fetch_request(i32::try_from(wait.as_millis()).unwrap(), 1, &entries),
        b"",
    );

    let first = reader.recv();
    assert_eq!(
        (first.call_id, first.flags),
        (call, Flags::RESPONSE),
        "a frame without END, before anything else is written"
    );
    let response = FetchResponse::decode(&first.header).unwrap();
    assert_eq!(response.fetch_responses.len(), 1);
    assert_eq!(
        (
            response.fetch_responses[0].request_index,
            response.fetch_responses[0].stream_id
        ),
        (0, streams[0])
    );
    assert_eq!(bodies(&first.payload.into_contiguous()), [(0, "there".into())]);

    writer.store(streams[1], b"later");
    let second = reader.recv();
    assert_eq!((second.call_id, second.flags), (call, Flags::RESPONSE));
    let response = FetchResponse::decode(&second.header).unwrap();
    assert_eq!(response.fetch_responses[0].request_index, 1);
    assert_eq!(response.fetch_responses[0].high_watermark, Some(Offset(1)));
    assert_eq!(bodies(&second.payload.into_contiguous()), [(0, "later".into())]);
    assert!(started.elapsed() < wait, "the machine is too slow for this test's wait");

    let last = reader.recv();
    assert!(started.elapsed() >= wait, "END comes at max_wait, not before");
    assert_eq!((last.call_id, last.flags), (call, Flags::RESPONSE | Flags::END));
    let response = FetchResponse::decode(&last.header).unwrap();
    let result = &response.fetch_responses[0];
    assert_eq!(
        (result.request_index, result.batch_length, result.status.code),
        (2, 0, ErrorCode::NONE)
    );
    assert_eq!(
        (result.base_offset, result.next_offset, result.high_watermark),
        (Some(Offset(0)), Some(Offset(0)), Some(Offset(0)))
    );

    // The connection is as good as before.
    assert_eq!(reader.fetch_all(streams[1], 0).len(), 1);
}

#[test]
fn a_waiting_fetch_ends_when_its_last_stream_has_data() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let stream = writer.create("s");
    let call = reader.send(&fetch_request(60_000, 1, &[from(stream, -1)]), b"");
    // Answered behind the fetch by the same connection, so the fetch is there when the record comes.
    assert_eq!(reader.fetch_all(stream, 0), []);
    writer.store(stream, b"news");
    let frame = reader.recv();
    assert_eq!((frame.call_id, frame.flags), (call, Flags::RESPONSE | Flags::END));
    assert_eq!(bodies(&frame.payload.into_contiguous()), [(0, "news".into())]);
}

#[test]
fn min_bytes_are_waited_for() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let stream = writer.create("s");
    let batch = i32::try_from(raw_batch(&[1; 100]).len()).unwrap();
    let call = reader.send(&fetch_request(60_000, batch * 3, &[from(stream, 0)]), b"");
    assert_eq!(reader.fetch_all(stream, 0), []);
    for n in 0..3 {
        assert_eq!(writer.store(stream, &[1; 100]), n);
    }
    let frame = reader.recv();
    assert_eq!(frame.call_id, call);
    assert_eq!(
        bodies(&frame.payload.into_contiguous()).len(),
        3,
        "not before there was enough"
    );
}

#[test]
fn a_fetch_that_has_spent_its_budget_does_not_wait() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let (full, empty) = (peer.create("full"), peer.create("empty"));
    peer.store(full, b"data");
    let mut request = fetch_request(60_000, 1, &[from(empty, 0), from(full, 0)]);
    request.max_bytes = 1;
    let (response, payload): (FetchResponse, _) = peer.call(&request, b"");
    assert_eq!(response.fetch_responses.len(), 2);
    assert_eq!(bodies(&payload), [(0, "data".into())]);
}

#[test]
fn places_can_be_named() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for n in 0..4 {
        peer.store(stream, &[n]);
    }
    let positions = FetchInfo {
        batch_max_bytes: FetchInfo::POSITIONS_ONLY,
        ..from(stream, -1)
    };
    let earliest = FetchInfo {
        batch_max_bytes: FetchInfo::POSITIONS_ONLY,
        ..from(stream, -2)
    };
    let bounded = FetchInfo {
        end_offset: Some(Offset(3)),
        ..from(stream, 1)
    };
    let timed = FetchInfo {
        start_timestamp_ms: Some(TimestampMs(1_000)),
        ..from(stream, 2)
    };
    let too_late = FetchInfo {
        start_timestamp_ms: Some(TimestampMs(1_001)),
        ..from(stream, 0)
    };
    let outside = from(stream, 5);
    let request = fetch_request(0, 0, &[positions, earliest, bounded, timed, too_late, outside]);
    // What is looked for on the disk may come in a frame of its own.
    let (call, mut results) = (peer.send(&request, b""), Vec::new());
    loop {
        let frame = peer.recv();
        assert_eq!((frame.call_id, sbp_e2e::frames::system_error(&frame)), (call, None));
        let answered = FetchResponse::decode(&frame.header).unwrap().fetch_responses;
        let lengths: i32 = answered.iter().map(|result| result.batch_length).sum();
        assert_eq!(usize::try_from(lengths).unwrap(), frame.payload.len());
        results.extend(answered);
        if frame.flags.contains(Flags::END) {
            break;
        }
    }
    results.sort_by_key(|result| result.request_index);
    let seen: Vec<_> = results
        .iter()
        .map(|r| {
            (
                r.status.code,
                told(r.base_offset),
                told(r.next_offset),
                told(r.start_offset),
                told(r.high_watermark),
                r.record_count,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (ErrorCode::NONE, 4, 4, 0, 4, 0),
            (ErrorCode::NONE, 0, 0, 0, 4, 0),
            (ErrorCode::NONE, 1, 3, 0, 4, 2),
            (ErrorCode::NONE, 2, 4, 0, 4, 2),
            (ErrorCode::NONE, 4, 4, 0, 4, 0),
            (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, -1, 4, 0, 4, 0),
        ]
    );
}

#[test]
fn sizes_bound_what_is_returned() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let streams = [peer.create("a"), peer.create("b"), peer.create("c")];
    for stream in streams {
        for _ in 0..4 {
            peer.store(stream, &[7; 1_000]);
        }
    }
    let one = raw_batch(&[7; 1_000]).len();
    let fetch = |peer: &mut Peer, batch_max_bytes: usize, max_bytes: usize| {
        let entries = streams.map(|stream| FetchInfo {
            batch_max_bytes: i32::try_from(batch_max_bytes).unwrap(),
            ..from(stream, 0)
        });
        let mut request = fetch_request(0, 0, &entries);
        request.max_bytes = i32::try_from(max_bytes).unwrap();
        let (response, payload): (FetchResponse, _) = peer.call(&request, b"");
        let counts: Vec<_> = response
            .fetch_responses
            .iter()
            .map(|result| result.record_count)
            .collect();
        (counts, payload.len() / one)
    };
    assert_eq!(fetch(&mut peer, 1, 0), (vec![1, 1, 1], 3), "at least one whole batch");
    assert_eq!(fetch(&mut peer, one * 2, 0), (vec![2, 2, 2], 6));
    assert_eq!(fetch(&mut peer, one * 2 + 1, 0), (vec![2, 2, 2], 6));
    let (counts, batches) = fetch(&mut peer, 0, one * 2);
    assert_eq!(
        (counts.iter().sum::<i32>(), batches),
        (2, 2),
        "what is over the budget is answered empty"
    );
    let (_, batches) = fetch(&mut peer, 0, one * 5 + 1);
    assert!((5..=6).contains(&batches), "one batch over at most: {batches}");
}

#[test]
fn results_larger_than_a_frame_come_in_several() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let streams = [peer.create("a"), peer.create("b"), peer.create("c")];
    let body = vec![3; 9 << 20];
    for stream in streams {
        peer.store(stream, &body);
    }
    let call = peer.send(&fetch_request(0, 0, &streams.map(|stream| from(stream, 0))), b"");
    let mut results = 0;
    loop {
        let frame = peer.recv();
        assert_eq!(frame.call_id, call);
        let end = frame.flags.contains(Flags::END);
        results += FetchResponse::decode(&frame.header).unwrap().fetch_responses.len();
        for (_, read) in bodies(&frame.payload.into_contiguous()) {
            assert_eq!(read, body);
        }
        if end {
            break;
        }
    }
    assert_eq!(results, 3);
}

#[test]
fn streams_and_ranges_are_described() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("flights/UA");
    peer.store(stream, b"x");
    let query = DescribeStreamsRequest {
        names: vec!["flights/UA".to_owned(), "nope".to_owned()],
        ..Default::default()
    };
    let (response, _): (DescribeStreamsResponse, _) = peer.call(&query, b"");
    let found = &response.describe_responses;
    assert_eq!(found[0].stream.as_ref().unwrap().stream_id, stream);
    assert_eq!(
        (found[1].status.code, found[1].stream.as_ref().unwrap().name.as_str()),
        (ErrorCode::NOT_FOUND, "nope")
    );
    let criteria = RangeCriteria {
        stream_id: Some(stream),
        range_server: None,
    };
    let request = ListRangesRequest {
        range_criteria: vec![criteria],
        ..Default::default()
    };
    let (response, _): (ListRangesResponse, _) = peer.call(&request, b"");
    let range = &response.list_responses[0].ranges[0];
    assert_eq!(
        (
            range.range_index,
            range.start_offset,
            range.end_offset,
            range.next_offset
        ),
        (RangeIndex(0), Offset(0), None, Offset(1))
    );
    assert_eq!(range.primary().unwrap().advertise_addr, server.address());
    let ids = [stream, StreamId(50)].map(|stream_id| RangeId {
        stream_id,
        ..RangeId::default()
    });
    let request = DescribeRangesRequest {
        ranges: ids.to_vec(),
        ..Default::default()
    };
    let (response, _): (DescribeRangesResponse, _) = peer.call(&request, b"");
    assert_eq!(response.describe_responses[0].range.as_ref(), Some(range));
    assert_eq!(response.describe_responses[1].status.code, ErrorCode::NOT_FOUND);
}

#[test]
fn a_long_list_of_streams_comes_in_pages_that_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(Some(directory.path()));
    let names: Vec<_> = (0..50).map(|n| format!("s{n:02}")).collect();
    let streams = names
        .iter()
        .map(|name| Stream {
            name: name.clone(),
            ..Stream::default()
        })
        .collect();
    let request = CreateStreamsRequest {
        streams,
        ..Default::default()
    };
    let (response, _): (CreateStreamsResponse, _) = Peer::connect(&server).call(&request, b"");
    assert!(
        response
            .create_responses
            .iter()
            .all(|result| result.status.is_success())
    );
    let (mut seen, mut continuation) = (Vec::new(), bytes::Bytes::new());
    for page in 0..4 {
        let request = DescribeStreamsRequest {
            limit: 13,
            continuation,
            ..Default::default()
        };
        let (response, _): (DescribeStreamsResponse, _) = Peer::connect(&server).call(&request, b"");
        seen.extend(
            response
                .describe_responses
                .into_iter()
                .map(|result| result.stream.unwrap().name),
        );
        continuation = response.continuation;
        assert_eq!(continuation.is_empty(), page == 3);
        server.shutdown().unwrap();
        server = start(Some(directory.path()));
    }
    assert_eq!(seen, names);
}

#[test]
fn heartbeats_agree_once() {
    let server = Server::start(ServerConfig {
        durability: Durability::None,
        ..config(None)
    })
    .unwrap();
    let mut peer = Peer::connect(&server);
    let mut request = HeartbeatRequest {
        client_id: "test".to_owned(),
        client_role: ClientRole::CLIENT,
        protocol_revision: 1,
        features: vec![
            Feature::new(features::DURABILITY, ""),
            Feature::new(features::SERVER_ID, ""),
        ],
        ..Default::default()
    };
    let (first, _): (HeartbeatResponse, _) = peer.call(&request, b"");
    assert_eq!(features::find(&first.features, features::DURABILITY), Some("none"));
    assert_eq!(
        features::find_number(&first.features, features::MAX_ENTRIES),
        Some(1_024)
    );
    assert!(first.connection_id > 0);
    request.connection_id = first.connection_id;
    request.features.clear();
    let (second, _): (HeartbeatResponse, _) = peer.call(&request, b"");
    assert_eq!(second, first);
}

#[test]
fn a_server_that_goes_down_says_so_and_answers_what_waits() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let call = peer.send(&fetch_request(60_000, 1, &[from(stream, 0)]), b"");
    assert_eq!(peer.fetch_all(stream, 0), []);
    let end = std::thread::spawn(move || server.shutdown());
    let (mut goodbye, mut answered) = (false, false);
    while let Some(frame) = peer.recv_or_end() {
        match frame.opcode {
            sbp_frame::OpCode::GOAWAY => {
                assert_eq!(frame.flags, Flags::NONE);
                goodbye = true;
            }
            _ => {
                assert_eq!((frame.call_id, frame.flags), (call, Flags::RESPONSE | Flags::END));
                answered = true;
            }
        }
    }
    assert!(goodbye && answered);
    end.join().unwrap().unwrap();
}

#[test]
fn a_timeout_that_is_long_enough_does_not_matter() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let batch = raw_batch(b"x");
    let info = AppendInfo {
        stream_id: stream,
        batch_length: i32::try_from(batch.len()).unwrap(),
        ..AppendInfo::default()
    };
    let request = AppendRequest {
        timeout_ms: 900,
        append_requests: [info].into_iter().collect(),
    };
    let (response, _): (AppendResponse, _) = peer.call(&request, &batch);
    assert!(response.append_responses[0].status.is_success());
}

#[test]
fn all_connections_see_one_order_and_no_wake_up_is_missed() {
    const WRITERS: usize = 4;
    const EACH: usize = 100;
    let server = start(None);
    let streams = ["a", "b"].map(|name| Peer::connect(&server).create(name));
    let read = |server: &Server| {
        let mut peer = Peer::connect(server);
        let mut seen = [Vec::new(), Vec::new()];
        while seen.iter().any(|seen| seen.len() < WRITERS * EACH / 2) {
            // A stream that is asked for has more to come, so every entry ends; the time given is longer than a test
            // may take, so it ends because it was woken or because the record was there before.
            let asked: Vec<_> = (0..2).filter(|n| seen[*n].len() < WRITERS * EACH / 2).collect();
            let entries: Vec<_> = asked
                .iter()
                .map(|n| from(streams[*n], i64::try_from(seen[*n].len()).unwrap()))
                .collect();
            let call = peer.send(&fetch_request(60_000, 1, &entries), b"");
            let mut end = false;
            while !end {
                let frame = peer.recv();
                assert_eq!(frame.call_id, call);
                end = frame.flags.contains(Flags::END);
                let response = FetchResponse::decode(&frame.header).unwrap();
                let mut payload = frame.payload.into_contiguous();
                for result in &response.fetch_responses {
                    let part = payload.split_to(usize::try_from(result.batch_length).unwrap());
                    let n = asked[usize::try_from(result.request_index).unwrap()];
                    seen[n].extend(bodies(&part).into_iter().map(|(_, body)| body));
                }
            }
        }
        seen
    };
    let write = &|writer: usize| {
        let mut peer = Peer::connect(&server);
        for n in 0..EACH {
            peer.store(streams[n % 2], format!("{writer} {n:03}").as_bytes());
        }
    };
    let seen: Vec<_> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| read(&server))).collect();
        for writer in 0..WRITERS {
            scope.spawn(move || write(writer));
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    assert!(seen.iter().all(|one| *one == seen[0]), "one order for all");
    for writer in 0..WRITERS {
        let prefix = format!("{writer} ");
        let own: Vec<_> = seen[0][0]
            .iter()
            .filter(|body| body.starts_with(prefix.as_bytes()))
            .collect();
        assert_eq!(own.len(), EACH / 2);
        assert!(own.is_sorted(), "each writer's records are in its order");
    }
}

#[test]
fn damage_is_told_and_what_lies_around_it_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let small = || ServerConfig {
        segment_bytes: Some(256 << 10),
        ..config(Some(directory.path()))
    };
    let server = Server::start(small()).unwrap();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for body in [b"before the damage", b"this gets damaged", b"behind the damage"] {
        peer.store(stream, body);
    }
    server.shutdown().unwrap();
    damage(directory.path(), b"this gets damaged");
    let server = Server::start(small()).expect("the test owns the directory");
    let mut peer = Peer::connect(&server);
    let (response, payload): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    assert_eq!(response.fetch_responses[0].next_offset, Some(Offset(1)));
    assert_eq!(bodies(&payload), [(0, "before the damage".into())]);
    let (response, payload): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 1)]), b"");
    let result = &response.fetch_responses[0];
    assert_eq!(
        (result.status.code, result.next_offset),
        (ErrorCode::RS_DATA_CORRUPTED, Some(Offset(2)))
    );
    let said = &result.status.message;
    assert!(
        said.contains("damaged from offset 1 to 2 in segment-0000000000000001; `sbp verify`"),
        "{said}"
    );
    assert!(payload.is_empty());
    assert_eq!(peer.fetch_all(stream, 2), [(2, "behind the damage".into())]);
    assert_eq!(peer.store(stream, b"life goes on"), 3);
}
