//! Idempotent writers and conditional appends, over a socket.
use bytes::{Bytes, BytesMut};
use sbp_e2e::admin::{open_next, seal, trim};
use sbp_e2e::batches::told;
use sbp_e2e::peer::{Peer, append_request};
use sbp_e2e::servers::{config, start};
use sbp_messages::{
    AppendRequest, AppendResponse, AppendResult, ClientRole, ErrorCode, Feature, HeartbeatRequest, HeartbeatResponse,
    Message, SealKind, features,
};
use sbp_record::{EncodeOptions, WriterStamp, encode_empty, encode_fence, encode_raw};
use sbp_types::{Offset, RangeIndex, StreamId, WriterId};

const ME: WriterId = WriterId { high: 7, low: 1 };

fn options(epoch: i64, sequence: i64) -> EncodeOptions {
    EncodeOptions {
        writer: Some(WriterStamp {
            id: ME,
            epoch,
            base_sequence: sequence,
        }),
        ..EncodeOptions::default()
    }
}

/// The batch with one record of this sequence, which is its content too.
pub(super) fn batch(epoch: i64, sequence: i64) -> Bytes {
    let mut out = BytesMut::new();
    encode_raw(&options(epoch, sequence), &sequence.to_be_bytes(), &mut out).unwrap();
    out.freeze()
}

fn question(epoch: i64) -> Bytes {
    let mut out = BytesMut::new();
    encode_empty(&options(epoch, 0), &mut out).unwrap();
    out.freeze()
}

pub(super) fn fence(epoch: i64) -> Bytes {
    let mut out = BytesMut::new();
    encode_fence(&options(epoch, 0), &mut out).unwrap();
    out.freeze()
}

pub(super) fn append(peer: &mut Peer, stream: StreamId, batch: &Bytes) -> AppendResult {
    append_with(peer, batch, append_request(&[(stream, batch.len())]))
}

fn append_with(peer: &mut Peer, batch: &Bytes, request: AppendRequest) -> AppendResult {
    let (mut response, _): (AppendResponse, _) = peer.call(&request, batch);
    response.append_responses.remove(0)
}

/// Code, base offset, next offset, whether it was there before, next sequence.
pub(super) fn short(result: &AppendResult) -> (ErrorCode, i64, i64, bool, i64) {
    (
        result.status.code,
        told(result.base_offset),
        told(result.next_offset),
        result.duplicate,
        result.next_sequence.unwrap_or(-1),
    )
}

/// The sequences in a stream, in order.
pub(super) fn sequences(peer: &mut Peer, stream: StreamId, from: i64) -> Vec<i64> {
    let all = peer.fetch_all(stream, from);
    all.iter()
        .map(|(_, body)| i64::from_be_bytes(body[..].try_into().unwrap()))
        .collect()
}

#[test]
fn a_batch_that_is_sent_again_is_stored_once() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    for sequence in 0..3 {
        let first = append(&mut peer, stream, &batch(0, sequence));
        assert_eq!(
            short(&first),
            (ErrorCode::NONE, sequence, sequence + 1, false, sequence + 1)
        );
    }
    let again = append(&mut peer, stream, &batch(0, 1));
    assert_eq!(short(&again), (ErrorCode::NONE, 1, 2, true, 3));
    let gap = append(&mut peer, stream, &batch(0, 5));
    assert_eq!(short(&gap), (ErrorCode::SEQUENCE_GAP, -1, -1, false, 3));
    assert_eq!(sequences(&mut peer, stream, 0), [0, 1, 2]);
}

#[test]
fn a_new_epoch_fences_the_old_one() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    append(&mut peer, stream, &batch(0, 0));
    assert_eq!(
        short(&append(&mut peer, stream, &question(1))),
        (ErrorCode::NONE, -1, 1, false, 1)
    );
    let not_yet = append(&mut peer, stream, &batch(0, 1));
    assert_eq!(not_yet.status.code, ErrorCode::NONE, "a question fences nothing");
    assert_eq!(
        short(&append(&mut peer, stream, &batch(1, 0))),
        (ErrorCode::NONE, 2, 3, false, 1)
    );
    for fenced in [batch(0, 2), batch(0, 1), question(0), fence(0)] {
        let result = append(&mut peer, stream, &fenced);
        assert_eq!(short(&result), (ErrorCode::WRITER_FENCED, -1, -1, false, -1));
        assert_eq!(result.status.detail[..], 1_i64.to_be_bytes(), "the epoch to beat");
    }
}

#[test]
fn a_writer_that_is_opened_again_goes_on_and_its_fence_outlives_restarts() {
    let place = tempfile::tempdir().unwrap();
    let server = start(Some(place.path()));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    assert_eq!(
        short(&append(&mut peer, stream, &fence(1))),
        (ErrorCode::NONE, -1, 0, false, 0)
    );
    for sequence in 0..3 {
        append(&mut peer, stream, &batch(1, sequence));
    }
    assert_eq!(
        short(&append(&mut peer, stream, &fence(5))),
        (ErrorCode::NONE, -1, 3, false, 3)
    );
    assert_eq!(
        short(&append(&mut peer, stream, &fence(5))),
        (ErrorCode::NONE, -1, 3, true, 3),
        "a repeat says that it is one: two instances never take one epoch for theirs"
    );
    let late = append(&mut peer, stream, &batch(1, 3));
    assert_eq!(late.status.code, ErrorCode::WRITER_FENCED);
    drop(peer);
    drop(server);

    // Nothing but the fence is behind the third batch.
    let server = start(Some(place.path()));
    let mut peer = Peer::connect(&server);
    let late = append(&mut peer, stream, &batch(1, 3));
    assert_eq!(late.status.code, ErrorCode::WRITER_FENCED);
    assert_eq!(late.status.detail[..], 5_i64.to_be_bytes());
    assert_eq!(
        short(&append(&mut peer, stream, &question(5))),
        (ErrorCode::NONE, -1, 3, false, 3)
    );
    // What the older epoch has stored is known to the newer one.
    assert_eq!(
        short(&append(&mut peer, stream, &batch(5, 2))),
        (ErrorCode::NONE, 2, 3, true, 3)
    );
    assert_eq!(
        short(&append(&mut peer, stream, &batch(5, 3))),
        (ErrorCode::NONE, 3, 4, false, 4)
    );
    assert_eq!(sequences(&mut peer, stream, 0), [0, 1, 2, 3]);
    // It goes where batches go.
    seal(&mut peer, stream, 0, SealKind::PLACEMENT_DRIVER);
    assert_eq!(
        short(&append(&mut peer, stream, &fence(6))),
        (ErrorCode::NONE, -1, 4, false, 4)
    );
    assert_eq!(
        short(&append(&mut peer, stream, &batch(6, 4))),
        (ErrorCode::NONE, 4, 5, false, 5)
    );
}

#[test]
fn a_window_in_flight_that_is_sent_again_elsewhere_is_stored_once_and_in_order() {
    let server = start(None);
    let (mut first, mut second) = (Peer::connect(&server), Peer::connect(&server));
    let stream = first.create("s");
    for sequence in 0..64 {
        let batch = batch(0, sequence);
        first.send(&append_request(&[(stream, batch.len())]), &batch);
    }
    // The first connection may be at any of them.
    for sequence in 0..64 {
        let batch = batch(0, sequence);
        second.send(&append_request(&[(stream, batch.len())]), &batch);
    }
    let mut stored = 0;
    for peer in [&mut first, &mut second] {
        for _ in 0..64 {
            let frame = peer.recv();
            let result = AppendResponse::decode(&frame.header)
                .unwrap()
                .append_responses
                .remove(0);
            match result.status.code {
                ErrorCode::NONE => {
                    assert!(result.base_offset.is_some_and(|offset| (0..64).contains(&offset.0)));
                    stored += i32::from(!result.duplicate);
                }
                // The second one was ahead of the first for a moment.
                code => assert_eq!(code, ErrorCode::SEQUENCE_GAP),
            }
        }
    }
    let there = sequences(&mut first, stream, 0);
    assert_eq!(there, (0..64).collect::<Vec<_>>());
    assert_eq!(stored, 64);
}

#[test]
fn a_restarted_server_knows_the_last_64_batches() {
    let directory = tempfile::tempdir().unwrap();
    let stream = {
        let server = start(Some(directory.path()));
        let mut peer = Peer::connect(&server);
        let stream = peer.create("s");
        for sequence in 0..100 {
            append(&mut peer, stream, &batch(3, sequence));
        }
        server.shutdown().unwrap();
        stream
    };
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    assert_eq!(
        short(&append(&mut peer, stream, &question(3))),
        (ErrorCode::NONE, -1, 100, false, 100)
    );
    assert_eq!(
        short(&append(&mut peer, stream, &batch(3, 36))),
        (ErrorCode::NONE, 36, 37, true, 100)
    );
    assert_eq!(
        short(&append(&mut peer, stream, &batch(3, 35))),
        (ErrorCode::NONE, -1, 100, true, 100),
        "older than the window"
    );
    assert_eq!(
        short(&append(&mut peer, stream, &batch(2, 0))).0,
        ErrorCode::WRITER_FENCED
    );
    assert_eq!(
        short(&append(&mut peer, stream, &batch(3, 100))),
        (ErrorCode::NONE, 100, 101, false, 101)
    );
    assert_eq!(sequences(&mut peer, stream, 0), (0..101).collect::<Vec<_>>());
}

#[test]
fn a_writer_outlives_the_trim_of_all_it_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = config(Some(directory.path()));
    settings.segment_bytes = Some(1 << 20);
    let server = sbp_server::Server::start(settings.clone()).unwrap();
    let mut peer = Peer::connect(&server);
    let (stream, other) = (peer.create("s"), peer.create("other"));
    for sequence in 0..5 {
        append(&mut peer, stream, &batch(0, sequence));
    }
    trim(&mut peer, stream, 5);
    // Enough for the segment with the writer's batches to go with the next checkpoints.
    for _ in 0..4 {
        peer.store(other, &vec![0; 600_000]);
    }
    assert_eq!(
        short(&append(&mut peer, stream, &batch(0, 4))),
        (ErrorCode::NONE, 4, 5, true, 5)
    );
    server.shutdown().unwrap();
    for _ in 0..3 {
        let server = sbp_server::Server::start(settings.clone()).unwrap();
        let mut peer = Peer::connect(&server);
        assert_eq!(
            short(&append(&mut peer, stream, &batch(0, 4))),
            (ErrorCode::NONE, 4, 5, true, 5)
        );
        server.shutdown().unwrap();
    }
}

#[test]
fn a_sealed_range_answers_repeats_and_questions() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    append(&mut peer, stream, &batch(0, 0));
    append(&mut peer, stream, &batch(0, 1));
    seal(&mut peer, stream, 0, SealKind::RANGE_SERVER);
    assert_eq!(
        short(&append(&mut peer, stream, &batch(0, 1))),
        (ErrorCode::NONE, 1, 2, true, 2)
    );
    assert_eq!(
        short(&append(&mut peer, stream, &question(0))),
        (ErrorCode::NONE, -1, 2, false, 2)
    );
    let refused = append(&mut peer, stream, &batch(0, 2));
    assert_eq!(short(&refused), (ErrorCode::RANGE_ALREADY_SEALED, -1, -1, false, 2));
    open_next(&mut peer, stream, 1, 2);
    assert_eq!(
        short(&append(&mut peer, stream, &batch(0, 1))),
        (ErrorCode::NONE, 1, 2, true, 2)
    );
    assert_eq!(
        short(&append(&mut peer, stream, &batch(0, 2))),
        (ErrorCode::NONE, 2, 3, false, 3)
    );
    let named = AppendRequest {
        append_requests: append_request(&[(stream, batch(0, 2).len())])
            .append_requests
            .into_iter()
            .map(|info| sbp_messages::AppendInfo {
                range_index: Some(RangeIndex(0)),
                ..info
            })
            .collect(),
        ..Default::default()
    };
    let elsewhere = append_with(&mut peer, &batch(0, 2), named);
    assert_eq!(
        short(&elsewhere),
        (ErrorCode::NONE, 2, 3, true, 3),
        "a repeat is found before the range is looked at"
    );
}

#[test]
fn a_condition_holds_once_and_its_repeat_is_a_repeat() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let conditional = |batch: &Bytes, expected| {
        let mut request = append_request(&[(stream, batch.len())]);
        request.append_requests[0].expected_offset = Some(Offset(expected));
        request
    };
    let first = batch(0, 0);
    for duplicate in [false, true] {
        let result = append_with(&mut peer, &first, conditional(&first, 0));
        assert_eq!(short(&result), (ErrorCode::NONE, 0, 1, duplicate, 1));
    }
    let second = batch(0, 1);
    let failed = append_with(&mut peer, &second, conditional(&second, 0));
    assert_eq!(short(&failed), (ErrorCode::PRECONDITION_FAILED, -1, 1, false, 1));
    let held = append_with(&mut peer, &second, conditional(&second, 1));
    assert_eq!(short(&held), (ErrorCode::NONE, 1, 2, false, 2));
}

#[test]
fn writers_are_told_of_the_window() {
    let server = start(None);
    let mut peer = Peer::connect(&server);
    let request = HeartbeatRequest {
        client_role: ClientRole::CLIENT,
        protocol_revision: 1,
        features: vec![
            Feature::new(features::IDEMPOTENCE, "1"),
            Feature::new(features::CONDITIONAL_APPEND, "1"),
        ],
        ..Default::default()
    };
    let (response, _): (HeartbeatResponse, _) = peer.call(&request, b"");
    assert_eq!(features::find(&response.features, features::IDEMPOTENCE), Some("64"));
    assert_eq!(
        features::find(&response.features, features::CONDITIONAL_APPEND),
        Some("1")
    );
}

#[test]
fn a_busy_server_refuses_before_it_does_anything_and_asks_for_patience() {
    let server = sbp_server::Server::start(sbp_server::ServerConfig {
        max_pending_bytes: 64 << 10,
        ..config(None)
    })
    .unwrap();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let batch = sbp_e2e::batches::raw_batch(&[1; 50_000]);
    let (mut stored, mut refused) = (0, 0);
    let deadline = std::time::Instant::now() + sbp_e2e::wait::PATIENCE;
    // How busy it is depends on the disk.
    while refused == 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "{stored} appends, and no one was refused"
        );
        for _ in 0..64 {
            peer.send(&append_request(&[(stream, batch.len())]), &batch);
        }
        for _ in 0..64 {
            let response = AppendResponse::decode(&peer.recv().header).unwrap();
            match response.append_responses[0].status.code {
                ErrorCode::NONE => stored += 1,
                code => {
                    assert_eq!(code, ErrorCode::TOO_MANY_REQUESTS);
                    assert!(response.throttle_time_ms > 0);
                    refused += 1;
                }
            }
        }
    }
    println!("{stored} stored, {refused} refused");
    let end = peer.store(stream, b"later");
    assert_eq!(end, stored, "what was refused took no offset");
}
