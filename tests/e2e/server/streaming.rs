//! Streamed FETCH over many streams, and over ranges that end while it waits.
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sbp_e2e::admin::{create_many, delete, open_next, seal, trim};
use sbp_e2e::batches::{bodies, raw_batch, told};
use sbp_e2e::peer::{Peer, append_request, fetch_request, from};
use sbp_e2e::servers::start;
use sbp_frame::{CallId, Flags};
use sbp_messages::{ErrorCode, FetchInfo, FetchRequest, FetchResponse, FetchResult, Message, SealKind};
use sbp_record::{EncodeOptions, encode_raw};
use sbp_types::{Offset, StreamId, TimestampMs};

const LONG: i32 = 60_000;

/// The next frame of a call: its results, its batches, and whether it is the last.
fn next(peer: &mut Peer, call: CallId) -> (Vec<FetchResult>, Vec<(i64, Bytes)>, bool) {
    let frame = peer.recv();
    assert_eq!(frame.call_id, call);
    assert!(!frame.flags.contains(Flags::SYSTEM_ERROR), "{frame:?}");
    let response = FetchResponse::decode(&frame.header).unwrap();
    let last = frame.flags.contains(Flags::END);
    let payload = bodies(&frame.payload.into_contiguous());
    (response.fetch_responses.into_vec(), payload, last)
}

/// Sends a fetch that waits, and returns when the server has begun to: what a connection asks for is looked at in order.
fn wait_for(peer: &mut Peer, min_bytes: i32, entries: &[FetchInfo]) -> CallId {
    let call = peer.send(&fetch_request(LONG, min_bytes, entries), b"");
    let positions = FetchInfo {
        batch_max_bytes: FetchInfo::POSITIONS_ONLY,
        ..from(entries[0].stream_id, -1)
    };
    let behind = peer.send(&fetch_request(0, 0, &[positions]), b"");
    let (_, _, last) = next(peer, behind);
    assert!(last);
    call
}

fn codes(results: &[FetchResult]) -> Vec<(i32, ErrorCode)> {
    results
        .iter()
        .map(|result| (result.request_index, result.status.code))
        .collect()
}

#[test]
fn the_hot_one_of_1000_streams_is_answered_at_once_and_the_others_as_they_come() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let streams = create_many(&mut writer, 1_000);
    let entries: Vec<_> = streams.iter().map(|stream| from(*stream, -1)).collect();
    let call = wait_for(&mut reader, 1, &entries);
    let mut slowest = Duration::ZERO;
    for hot in [500, 3, 999] {
        let started = Instant::now();
        writer.store(streams[hot], format!("hot {hot}").as_bytes());
        let (results, batches, last) = next(&mut reader, call);
        slowest = slowest.max(started.elapsed());
        assert_eq!(codes(&results), [(i32::try_from(hot).unwrap(), ErrorCode::NONE)]);
        assert_eq!(batches, [(0, format!("hot {hot}").into())]);
        assert!(!last, "the others still wait");
    }
    println!("append to answer, the slowest of 3: {slowest:?}");
    // The answered one is asked for again, on its own, beside the others.
    let again = wait_for(&mut reader, 1, &[from(streams[500], 1)]);
    writer.store(streams[500], b"more");
    let (_, batches, last) = next(&mut reader, again);
    assert_eq!((batches, last), (vec![(1, "more".into())], true));
}

#[test]
fn one_fetch_is_answered_piece_by_piece_as_data_arrives() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let ids = create_many(&mut writer, 3);
    writer.store(ids[1], b"there already");
    let entries: Vec<_> = ids.iter().map(|&id| from(id, Offset::EARLIEST.0)).collect();
    let call = reader.send(&fetch_request(3_000, 1, &entries), b"");
    let mut piece = || {
        let (results, batches, last) = next(&mut reader, call);
        let [result] = results.as_slice() else {
            panic!("{results:?}")
        };
        assert!(result.status.is_success());
        (result.stream_id, result.next_offset, batches.len(), last)
    };
    assert_eq!(piece(), (ids[1], Some(Offset(1)), 1, false));
    // Only now is there anything for the second, and the call is still the same.
    writer.store(ids[2], b"later");
    assert_eq!(piece(), (ids[2], Some(Offset(1)), 1, false));
    // The time is over: the last is answered with nothing.
    assert_eq!(piece(), (ids[0], Some(Offset(0)), 0, true));
}

#[test]
fn where_1000_streams_stand_comes_in_one_frame() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let streams = create_many(&mut peer, 1_000);
    for stream in streams.iter().step_by(100) {
        peer.store(*stream, b"one");
    }
    let entries: Vec<_> = streams
        .iter()
        .map(|stream| FetchInfo {
            batch_max_bytes: FetchInfo::POSITIONS_ONLY,
            ..from(*stream, -1)
        })
        .collect();
    let (response, payload): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &entries), b"");
    assert!(payload.is_empty());
    let mut results = response.fetch_responses.into_vec();
    results.sort_by_key(|result| result.request_index);
    assert_eq!(results.len(), 1_000);
    for (place, result) in results.iter().enumerate() {
        let end = i64::from(place % 100 == 0);
        assert!(result.status.is_success());
        assert_eq!(result.stream_id, streams[place]);
        assert_eq!(
            (
                told(result.start_offset),
                told(result.next_offset),
                told(result.high_watermark)
            ),
            (0, end, end)
        );
    }
}

#[test]
fn a_fetch_that_waits_goes_on_in_the_next_range() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let stream = writer.create("s");
    writer.store(stream, b"first range");
    let call = wait_for(&mut reader, 1, &[from(stream, 1)]);
    for index in 0..5 {
        seal(&mut writer, stream, index, SealKind::PLACEMENT_DRIVER);
    }
    assert_eq!(writer.store(stream, b"sixth range"), 1);
    let (results, batches, last) = next(&mut reader, call);
    assert_eq!((batches, last), (vec![(1, "sixth range".into())], true));
    assert!(!results[0].end_of_range);
    // What is there is returned range by range.
    let (response, payload): (FetchResponse, _) = reader.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    let result = &response.fetch_responses[0];
    assert_eq!(bodies(&payload.clone()), [(0, "first range".into())]);
    assert_eq!(
        (
            result.end_of_range,
            told(result.next_offset),
            told(result.high_watermark)
        ),
        (true, 1, 2)
    );
}

#[test]
fn a_tail_over_many_seals_misses_nothing_and_sees_nothing_twice() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let stream = writer.create("s");
    let writing = std::thread::spawn(move || {
        for n in 0..200_i64 {
            assert_eq!(writer.store(stream, &n.to_be_bytes()), n);
            if n % 10 == 9 {
                let index = i32::try_from(n / 10).unwrap();
                seal(&mut writer, stream, index, SealKind::PLACEMENT_DRIVER);
            }
        }
    });
    let mut expected = 0_i64;
    while expected < 200 {
        let (response, payload): (FetchResponse, _) =
            reader.call(&fetch_request(10_000, 1, &[from(stream, expected)]), b"");
        let result = &response.fetch_responses[0];
        assert!(result.status.is_success(), "{}", result.status);
        for (offset, body) in bodies(&payload) {
            assert_eq!(
                (offset, i64::from_be_bytes(body[..].try_into().unwrap())),
                (expected, expected)
            );
            expected += 1;
        }
        assert_eq!(told(result.next_offset), expected);
    }
    writing.join().unwrap();
}

#[test]
fn without_a_next_range_a_fetch_ends_with_its_range() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let stream = writer.create("s");
    writer.store(stream, b"there");
    // The second one waits for more bytes than ever come: the end concerns it.
    let call = wait_for(&mut reader, 1_000_000, &[from(stream, 1), from(stream, 0)]);
    seal(&mut writer, stream, 0, SealKind::RANGE_SERVER);
    let (mut results, batches, last) = next(&mut reader, call);
    results.sort_by_key(|result| result.request_index);
    assert!(last);
    assert_eq!(codes(&results), [(0, ErrorCode::NONE), (1, ErrorCode::NONE)]);
    assert!(
        results
            .iter()
            .all(|result| result.end_of_range && result.next_offset == Some(Offset(1)))
    );
    assert_eq!(batches, [(0, "there".into())]);
    // At the end: at once, although it would wait.
    let started = Instant::now();
    let (response, _): (FetchResponse, _) = reader.call(&fetch_request(LONG, 1, &[from(stream, 1)]), b"");
    assert!(response.fetch_responses[0].end_of_range);
    assert!(started.elapsed() < Duration::from_secs(30));
    open_next(&mut writer, stream, 1, 1);
    let call = wait_for(&mut reader, 1, &[from(stream, 1)]);
    writer.store(stream, b"next");
    assert_eq!(next(&mut reader, call).1, [(1, "next".into())]);
}

#[test]
fn a_trim_and_a_deletion_end_a_fetch_that_waits() {
    let server = start(None);
    let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let (trimmed, deleted, kept) = (
        writer.create("trimmed"),
        writer.create("deleted"),
        writer.create("kept"),
    );
    for stream in [trimmed, deleted, kept] {
        for _ in 0..4 {
            writer.store(stream, b"1");
        }
    }
    let entries = [from(trimmed, 1), from(deleted, 1), from(kept, 1)];
    let call = wait_for(&mut reader, 1_000_000, &entries);
    trim(&mut writer, trimmed, 3);
    let (results, _, last) = next(&mut reader, call);
    assert_eq!(
        (codes(&results), last),
        (vec![(0, ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS)], false)
    );
    let bounds = &results[0];
    assert_eq!(
        (
            told(bounds.base_offset),
            told(bounds.next_offset),
            told(bounds.start_offset),
            told(bounds.high_watermark)
        ),
        (-1, 3, 3, 4)
    );
    delete(&mut writer, deleted);
    let (results, _, last) = next(&mut reader, call);
    assert_eq!((codes(&results), last), (vec![(1, ErrorCode::NOT_FOUND)], false));
    trim(&mut writer, kept, 1);
    seal(&mut writer, kept, 0, SealKind::PLACEMENT_DRIVER);
    let (results, batches, last) = next(&mut reader, call);
    assert_eq!((codes(&results), last), (vec![(2, ErrorCode::NONE)], true));
    assert_eq!(batches.len(), 3, "a trim up to where it begins does not concern it");
}

fn store_at(peer: &mut Peer, stream: StreamId, time: i64) -> i64 {
    let mut out = BytesMut::new();
    let options = EncodeOptions {
        timestamp: TimestampMs(time),
        ..EncodeOptions::default()
    };
    encode_raw(&options, &time.to_be_bytes(), &mut out).unwrap();
    let request = append_request(&[(stream, out.len())]);
    let (response, _): (sbp_messages::AppendResponse, _) = peer.call(&request, &out);
    response.append_responses[0].base_offset.expect("it is stored").0
}

#[test]
fn a_time_is_found_in_whichever_range_reaches_it() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for (index, times) in [[100, 200], [300, 400], [500, 600]].iter().enumerate() {
        for time in times {
            store_at(&mut peer, stream, *time);
        }
        seal(
            &mut peer,
            stream,
            i32::try_from(index).unwrap(),
            SealKind::PLACEMENT_DRIVER,
        );
    }
    for (offset, time, expected) in [
        (-2, 0, 0),
        (-2, 200, 1),
        (0, 250, 2),
        (1, 450, 4),
        (3, 100, 3),
        (0, 601, 6),
    ] {
        let entry = FetchInfo {
            start_timestamp_ms: Some(TimestampMs(time)),
            ..from(stream, offset)
        };
        let request = FetchRequest {
            ..fetch_request(0, 0, &[entry])
        };
        let (response, _): (FetchResponse, _) = peer.call(&request, b"");
        let result = &response.fetch_responses[0];
        assert!(result.status.is_success(), "{}", result.status);
        assert_eq!(told(result.base_offset), expected, "from {offset}, time {time}");
    }
}

#[test]
fn more_waiting_fetches_than_allowed_are_refused_unless_they_can_be_answered() {
    let server = sbp_server::Server::start(sbp_server::ServerConfig {
        max_waits: 2,
        ..sbp_e2e::servers::config(None)
    })
    .unwrap();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"there");
    for _ in 0..2 {
        wait_for(&mut peer, 1, &[from(stream, 1)]);
    }
    let (refused, _): (FetchResponse, _) = peer.call(&fetch_request(LONG, 1, &[from(stream, 1)]), b"");
    assert_eq!(refused.status.code, ErrorCode::TOO_MANY_REQUESTS);
    assert!(refused.fetch_responses.is_empty());
    assert_eq!(peer.fetch_all(stream, 0).len(), 1);
}

#[test]
fn a_fetch_that_is_withdrawn_ends_at_once_and_makes_room_for_another() {
    let server = sbp_server::Server::start(sbp_server::ServerConfig {
        max_waits: 1,
        ..sbp_e2e::servers::config(None)
    })
    .unwrap();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"there");
    for round in 0..1_000 {
        let waiting = wait_for(&mut peer, 1, &[from(stream, 1)]);
        let withdrawal = peer.send(&FetchRequest::withdrawal(waiting.raw()), b"");
        let (results, batches, last) = next(&mut peer, waiting);
        assert_eq!(
            (codes(&results), last),
            (vec![(0, ErrorCode::NONE)], true),
            "round {round}"
        );
        assert_eq!((batches.len(), told(results[0].next_offset)), (0, 1));
        assert_eq!(next(&mut peer, withdrawal), (vec![], vec![], true));
    }
    let waiting = wait_for(&mut peer, 1, &[from(stream, 1)]);
    Peer::connect(&server).store(stream, b"new");
    let (_, batches, last) = next(&mut peer, waiting);
    assert_eq!((batches, last), (vec![(1, Bytes::from_static(b"new"))], true));
}

#[test]
fn withdrawing_what_is_no_waiting_fetch_of_the_connection_does_no_harm() {
    let server = start(None);
    let (mut peer, mut other) = (Peer::connect(&server), Peer::connect(&server));
    let stream = peer.create("s");
    peer.store(stream, b"there");
    // The other connection counts its calls from the beginning: the number of its FETCH is one that this one does not have.
    for _ in 0..50 {
        other.fetch_all(stream, 0);
    }
    let of_other = wait_for(&mut other, 1, &[from(stream, 1)]);
    let waiting = wait_for(&mut peer, 1, &[from(stream, 1)]);
    assert!(waiting.raw() < of_other.raw());
    let withdraw = |peer: &mut Peer, call: u32| {
        let (answer, payload): (FetchResponse, _) = peer.call(&FetchRequest::withdrawal(call), b"");
        assert_eq!((answer, payload.len()), (FetchResponse::default(), 0), "call {call}");
    };
    // Of the other connection; never seen; the highest there is; the request's own; of calls that are over.
    let own = waiting.raw() + 5;
    for call in [of_other.raw(), 1_000_000, i32::MAX.unsigned_abs(), own, 1, 2] {
        withdraw(&mut peer, call);
    }
    // Of an APPEND, which is on its way when the withdrawal is read.
    let batch = raw_batch(b"stored all the same");
    let append = peer.send(&append_request(&[(stream, batch.len())]), &batch);
    let withdrawal = peer.send(&FetchRequest::withdrawal(append.raw()), b"");
    // The FETCHes of both connections wait for just that.
    let mut ended: Vec<_> = (0..3)
        .map(|_| peer.recv())
        .inspect(|frame| assert!(frame.flags.contains(Flags::END)))
        .map(|frame| frame.call_id)
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, [waiting, append, withdrawal]);
    let (_, batches, last) = next(&mut other, of_other);
    assert_eq!(
        (batches, last),
        (vec![(1, Bytes::from_static(b"stored all the same"))], true)
    );
    // Twice, at once: the second finds nothing.
    let waiting = wait_for(&mut peer, 1, &[from(stream, 2)]);
    let twice = [(); 2].map(|()| peer.send(&FetchRequest::withdrawal(waiting.raw()), b""));
    for call in [waiting, twice[0], twice[1]] {
        assert!(next(&mut peer, call).2);
    }
    // A number that is none, and one beside entries: nothing is done.
    for (number, entries) in [(-1, vec![]), (1, vec![from(stream, 0)])] {
        let request = FetchRequest {
            withdraw: number,
            ..fetch_request(0, 0, &entries)
        };
        assert_eq!(peer.refused(&request, b""), ErrorCode::INVALID_REQUEST);
    }
    assert_eq!(peer.fetch_all(stream, 0).len(), 2);
}

#[test]
fn of_a_fetch_of_many_streams_what_is_answered_stays_so_and_the_rest_ends_without_data() {
    let server = start(None);
    let (mut peer, mut writer) = (Peer::connect(&server), Peer::connect(&server));
    let streams = create_many(&mut writer, 3);
    // Some bytes, fewer than the FETCH waits for: they are not sent to one who does not want them.
    writer.store(streams[2], b"few");
    let entries = [from(streams[0], 0), from(streams[1], 0), from(streams[2], 0)];
    let waiting = wait_for(&mut peer, 1_000, &entries);
    writer.store(streams[1], &[7; 2_000]);
    let (results, _, last) = next(&mut peer, waiting);
    assert_eq!((codes(&results), last), (vec![(1, ErrorCode::NONE)], false));
    let withdrawal = peer.send(&FetchRequest::withdrawal(waiting.raw()), b"");
    let (results, batches, last) = next(&mut peer, waiting);
    assert_eq!(codes(&results), [(0, ErrorCode::NONE), (2, ErrorCode::NONE)]);
    assert_eq!((batches.len(), last), (0, true));
    assert!(next(&mut peer, withdrawal).2);
}
