//! How streams go on in their next range, and how ranges are shown, over a socket.

use std::time::{Duration, Instant};

use sbp_e2e::admin::{Admin, bounds, created, of_stream, on_server, range_id, server_id, stream_named};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::{config, start};
use sbp_e2e::wait::{PATIENCE, until};
use sbp_messages::{
    CreateRangeRequest, ErrorCode, FetchResponse, ListRangesRequest, ListRangesResponse, Range, RangeCriteria, RangeId,
    SealKind, SealRangesRequest, StreamRanges, SyncRangesRequest, SyncRangesResponse,
};
use sbp_server::{Roles, Server, ServerConfig};
use sbp_types::{Epoch, Offset, RangeIndex, StreamId};

#[test]
fn a_seal_ends_a_range_and_appends_go_on_in_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    peer.store(stream, b"b");
    let sealed = peer.seal(range_id(stream, 0), SealKind::PLACEMENT_DRIVER);
    assert_eq!((sealed.stream_id, sealed.status.code), (stream, ErrorCode::NONE));
    let next = sealed.range.unwrap();
    assert_eq!((bounds(&next), next.epoch), ((1, 2, -1, 2), Some(Epoch(1))));
    assert_eq!(peer.store(stream, b"c"), 2, "the open range is meant");
    assert_eq!(peer.append_to(stream, 0).status.code, ErrorCode::RANGE_ALREADY_SEALED);
    assert_eq!(peer.append_to(stream, 1).base_offset, Some(Offset(3)));
    assert_eq!(peer.append_to(stream, 2).status.code, ErrorCode::RANGE_NOT_FOUND);
    for restart in [false, true] {
        if restart {
            drop((peer, server));
            server = start(Some(directory.path()));
            peer = Peer::connect(&server);
        }
        let ranges = peer.ranges(stream);
        assert_eq!(
            ranges.iter().map(bounds).collect::<Vec<_>>(),
            [(0, 0, 2, 2), (1, 2, -1, 4)]
        );
        assert_eq!(
            peer.describe_range(stream, -1).as_ref(),
            Ok(&ranges[1]),
            "-1 is the open one"
        );
        let again = peer.seal(range_id(stream, 0), SealKind::UNSPECIFIED);
        assert_eq!(
            again.range.as_ref(),
            Some(&ranges[1]),
            "again: the same range as it now is"
        );
        let again = peer.seal(range_id(stream, 0), SealKind::RANGE_SERVER);
        assert_eq!(again.range.as_ref(), Some(&ranges[0]));
        assert_eq!(peer.fetch_all(stream, 0).len(), 2, "a result does not cross ranges");
        assert_eq!(peer.fetch_all(stream, 2).len(), 2);
    }
}

#[test]
fn a_seal_compares_epoch_and_end_and_does_nothing_when_they_differ() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    let id = range_id(stream, 0);
    let cases = [
        (
            RangeId {
                epoch: Some(Epoch(1)),
                ..id
            },
            ErrorCode::EXPIRED_RANGE_EPOCH,
        ),
        (
            RangeId {
                end_offset: Some(Offset(0)),
                ..id
            },
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        ),
        (
            RangeId {
                end_offset: Some(Offset(2)),
                ..id
            },
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        ),
        (range_id(stream, 1), ErrorCode::RANGE_NOT_FOUND),
        (range_id(StreamId(9), 0), ErrorCode::NOT_FOUND),
        (range_id(stream, -2), ErrorCode::INVALID_REQUEST),
        (
            RangeId {
                epoch: Some(Epoch(-2)),
                ..id
            },
            ErrorCode::INVALID_REQUEST,
        ),
        (
            RangeId {
                end_offset: Some(Offset(-2)),
                ..id
            },
            ErrorCode::INVALID_REQUEST,
        ),
    ];
    for (range, code) in cases {
        for kind in [SealKind::RANGE_SERVER, SealKind::PLACEMENT_DRIVER] {
            let result = peer.seal(range, kind);
            assert_eq!((result.status.code, result.range), (code, None), "{range:?} {kind:?}");
        }
    }
    assert_eq!(
        peer.append_to(stream, 0).base_offset,
        Some(Offset(1)),
        "it still takes appends"
    );
    let right = RangeId {
        epoch: Some(Epoch(0)),
        end_offset: Some(Offset(2)),
        ..id
    };
    let next = peer.seal(right, SealKind::UNSPECIFIED).range.unwrap();
    assert_eq!(bounds(&next), (1, 2, -1, 2));
    let late = RangeId {
        end_offset: Some(Offset(1)),
        ..id
    };
    assert_eq!(
        peer.seal(late, SealKind::UNSPECIFIED).status.code,
        ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        "a sealed range's end is compared too"
    );
    let request = SealRangesRequest {
        ranges: vec![id],
        kind: SealKind(7),
        ..Default::default()
    };
    assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST);
}

#[test]
fn behind_a_range_servers_seal_nothing_is_open_until_somebody_opens_it() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    for by_seal in [true, false] {
        let stream = peer.create(if by_seal { "by seal" } else { "made" }.replace(' ', "-").as_str());
        peer.store(stream, b"a");
        let sealed = peer.seal(range_id(stream, -1), SealKind::RANGE_SERVER).range.unwrap();
        assert_eq!(bounds(&sealed), (0, 0, 1, 1), "the sealed range is told");
        assert_eq!(peer.append(stream, b"b").status.code, ErrorCode::RANGE_ALREADY_SEALED);
        assert_eq!(
            peer.describe_range(stream, -1).as_ref(),
            Ok(&sealed),
            "the last one, where none is open"
        );
        let end = fetch_request(0, 0, &[from(stream, 1)]);
        let (response, _): (FetchResponse, _) = peer.call(&end, b"");
        assert!(response.fetch_responses[0].end_of_range, "readers know the end");
        let next = if by_seal {
            peer.seal(range_id(stream, 0), SealKind::PLACEMENT_DRIVER).range
        } else {
            peer.make_range(wanted_range(stream, 1, 1)).range
        };
        let next = next.unwrap();
        assert_eq!((bounds(&next), next.epoch), ((1, 1, -1, 1), Some(Epoch(1))));
        assert_eq!(peer.store(stream, b"b"), 1);
    }
}

fn wanted_range(stream_id: StreamId, index: i32, start: i64) -> Range {
    Range {
        stream_id,
        range_index: RangeIndex(index),
        start_offset: Offset(start),
        ..Range::default()
    }
}

#[test]
fn a_range_is_made_only_behind_a_sealed_one() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    let codes = |peer: &mut Peer, cases: &[(Range, ErrorCode)]| {
        for (range, code) in cases {
            assert_eq!(peer.make_range(range.clone()).status.code, *code, "{range:?}");
        }
    };
    let before_seal = ErrorCode::CREATE_RANGE_BEFORE_SEAL;
    codes(
        &mut peer,
        &[
            (wanted_range(stream, 1, 1), before_seal),
            (wanted_range(stream, 2, 1), before_seal),
            (wanted_range(stream, 0, 1), before_seal),
            (wanted_range(stream, 0, 0), ErrorCode::NONE),
            (wanted_range(StreamId(9), 1, 1), ErrorCode::NOT_FOUND),
            (wanted_range(StreamId(0), 1, 1), ErrorCode::NOT_FOUND),
            (wanted_range(stream, -1, 1), ErrorCode::INVALID_REQUEST),
            (wanted_range(stream, 1, -2), ErrorCode::INVALID_REQUEST),
        ],
    );
    peer.seal(range_id(stream, 0), SealKind::RANGE_SERVER);
    let with_epoch = |range: Range, epoch| Range {
        epoch: Some(Epoch(epoch)),
        ..range
    };
    codes(
        &mut peer,
        &[
            (wanted_range(stream, 1, 0), before_seal),
            (wanted_range(stream, 2, 1), before_seal),
            (
                with_epoch(wanted_range(stream, 1, 1), 0),
                ErrorCode::EXPIRED_RANGE_EPOCH,
            ),
            (with_epoch(wanted_range(stream, 1, 1), 1), ErrorCode::NONE),
            (wanted_range(stream, 1, -1), ErrorCode::NONE),
            (
                with_epoch(wanted_range(stream, 1, 1), 2),
                ErrorCode::EXPIRED_RANGE_EPOCH,
            ),
            (wanted_range(stream, 2, 1), before_seal),
        ],
    );
    let request = CreateRangeRequest::default();
    assert_eq!(
        peer.refused(&request, b""),
        ErrorCode::INVALID_REQUEST,
        "a range is required"
    );
    assert_eq!(peer.ranges(stream).len(), 2);
}

#[test]
fn ranges_are_listed_in_pages_over_criteria_of_all_kinds() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let streams: Vec<_> = (0..4).map(|n| peer.create(&format!("s{n}"))).collect();
    for range in 0..3 {
        for stream in &streams {
            peer.seal(range_id(*stream, range), SealKind::UNSPECIFIED);
        }
    }
    let own = server_id(&mut peer);
    let both = RangeCriteria {
        stream_id: Some(streams[1]),
        range_server: Some(on_server(own)),
    };
    let here = RangeCriteria {
        range_server: Some(on_server(own)),
        ..Default::default()
    };
    let elsewhere = RangeCriteria {
        range_server: Some(on_server(own + 1)),
        ..Default::default()
    };
    let criteria = vec![
        of_stream(streams[3]),
        elsewhere,
        both,
        RangeCriteria::default(),
        here,
        of_stream(StreamId(77)),
    ];
    let mut pages = Vec::new();
    for limit in [0, 1, 3, 7, 16, 1_000, 5_000] {
        let (mut rows, mut statuses, mut continuation) = (Vec::new(), Vec::new(), bytes::Bytes::new());
        loop {
            let request = ListRangesRequest {
                range_criteria: criteria.clone(),
                limit,
                continuation,
                ..Default::default()
            };
            let (response, _): (ListRangesResponse, _) = peer.call(&request, b"");
            let before = rows.len();
            for result in response.list_responses {
                let asked = result.range_criteria.unwrap();
                let place = criteria.iter().position(|criterion| *criterion == asked).unwrap();
                rows.extend(
                    result
                        .ranges
                        .iter()
                        .map(|range| (place, range.stream_id.0, range.range_index.0)),
                );
                statuses.push((place, result.status.code));
            }
            assert!(limit == 0 || rows.len() - before <= usize::try_from(limit).unwrap());
            continuation = response.continuation;
            if continuation.is_empty() {
                break;
            }
        }
        statuses.dedup();
        pages.push((rows, statuses));
    }
    let (rows, statuses) = &pages[0];
    let count = |place| rows.iter().filter(|row| row.0 == place).count();
    assert_eq!([0, 1, 2, 3, 4, 5].map(count), [4, 0, 4, 0, 16, 0]);
    let codes = [
        ErrorCode::NONE,
        ErrorCode::NONE,
        ErrorCode::NONE,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::NONE,
        ErrorCode::NOT_FOUND,
    ];
    assert_eq!(statuses.iter().map(|(_, code)| *code).collect::<Vec<_>>(), codes);
    assert!(
        pages.iter().all(|page| page == &pages[0]),
        "whatever the size of a page"
    );
    let request = ListRangesRequest {
        range_criteria: criteria,
        continuation: bytes::Bytes::from_static(b"nonsense"),
        ..Default::default()
    };
    assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST);
}

#[test]
fn a_placement_driver_answers_a_sync_with_what_is_stored_and_changes_nothing() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"a");
    peer.seal(range_id(stream, 0), SealKind::UNSPECIFIED);
    let before = peer.ranges(stream);
    let of = |stream_id, ranges: Vec<Range>| StreamRanges { stream_id, ranges };
    let request = SyncRangesRequest {
        stream_ranges: vec![
            of(stream, Vec::new()),
            of(stream, vec![wanted_range(stream, 1, 500), wanted_range(stream, 9, 0)]),
            of(StreamId(50), Vec::new()),
        ],
        ..Default::default()
    };
    let (response, _): (SyncRangesResponse, _) = peer.call(&request, b"");
    let results = &response.sync_responses;
    assert_eq!((results[0].stream_id, &results[0].ranges), (stream, &before));
    assert_eq!(results[1].ranges, before[1..]);
    assert_eq!(results[2].status.code, ErrorCode::NOT_FOUND);
    assert_eq!(peer.ranges(stream), before);
}

#[test]
fn appends_go_on_over_many_seals_without_a_gap_or_a_repeat() {
    const WRITERS: usize = 3;
    const SEALS: i32 = 30;
    let server = start(None);
    let mut admin = Peer::connect(&server);
    let stream = admin.create("busy");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut stored: Vec<(i64, Vec<u8>)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || {
                    let mut peer = Peer::connect(server);
                    let mut mine = Vec::new();
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let body = format!("{writer}/{}", mine.len()).into_bytes();
                        mine.push((peer.store(stream, &body), body));
                    }
                    mine
                })
            })
            .collect();
        for range in 0..SEALS {
            let result = admin.seal(range_id(stream, range), SealKind::UNSPECIFIED);
            assert!(result.status.is_success(), "{}", result.status);
            let next = result.range.unwrap();
            assert_eq!(next.range_index, RangeIndex(range + 1));
            // Something goes into each range, so that the next end is another one.
            let deadline = Instant::now() + PATIENCE;
            while admin.describe_range(stream, -1).unwrap().next_offset == next.start_offset {
                assert!(Instant::now() < deadline, "appends do not go on in range {}", range + 1);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    stored.sort();
    let ranges = admin.ranges(stream);
    assert_eq!(ranges.len(), usize::try_from(SEALS).unwrap() + 1);
    let mut read = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        assert_eq!(range.epoch, Some(Epoch(i64::try_from(place).unwrap())));
        let mut from = range.start_offset.0;
        assert_eq!(from, i64::try_from(read.len()).unwrap(), "ranges tile the offsets");
        while from < range.next_offset.0 {
            let found = admin.fetch_all(stream, from);
            from += i64::try_from(found.len()).unwrap();
            read.extend(found.into_iter().map(|(offset, body)| (offset, body.to_vec())));
        }
    }
    assert_eq!(read, stored, "each record once, where it was acknowledged");
}

#[test]
fn a_placement_driver_tells_the_ends_that_only_range_servers_know() {
    let directory = tempfile::tempdir().unwrap();
    let in_role = |name: &str, roles| {
        let config = config(Some(&directory.path().join(name)));
        Server::start(ServerConfig { roles, ..config }).unwrap()
    };
    let placement = in_role("placement", Roles::PlacementDriver);
    let placement_driver = vec![placement.address().to_owned()];
    let ranges = in_role("ranges", Roles::RangeServer { placement_driver });
    let (mut peer, mut holder) = (Peer::connect(&placement), Peer::connect(&ranges));
    let (stream, _, code) = created(&mut peer, vec![stream_named("s")]).remove(0);
    assert_eq!(code, ErrorCode::NONE);
    let stream = stream.stream_id;
    for _record in 0..3 {
        holder.store(stream, b"x");
    }
    let listed = peer.ranges(stream).remove(0);
    assert_eq!(bounds(&listed), (0, 0, -1, 0), "its server is not asked for a list");
    assert_eq!(listed.primary().unwrap().advertise_addr, ranges.address());
    let described = Range {
        next_offset: Offset(3),
        ..listed
    };
    assert_eq!(peer.describe_range(stream, 0), Ok(described));
    assert_eq!(peer.trim(stream, 4).status.code, ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS);
    assert_eq!(bounds(&peer.trim(stream, 2).range.unwrap()).1, 2);
    ranges.shutdown().unwrap();
    let code = until("the refusal", || peer.describe_range(stream, 0).err());
    assert_eq!(code, ErrorCode::PD_NO_AVAILABLE_RS);
    let listed = peer.ranges(stream).remove(0);
    assert_eq!(
        bounds(&listed),
        (0, 2, -1, 2),
        "where it is can be told, and a lower bound"
    );
    let (_, _, code) = created(&mut peer, vec![stream_named("t")]).remove(0);
    assert_eq!(code, ErrorCode::PD_NO_AVAILABLE_RS);
}
