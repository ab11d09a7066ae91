//! What one server alone had of a stream, in several ranges: it is copied, and leaves its server, and the copies are never taken for
//! the state of its writers.

use bytes::Bytes;
use sbp_e2e::admin::{Admin, numbered, open_next, seal};
use sbp_e2e::peer::Peer;
use sbp_e2e::wait::until;
use sbp_messages::{
    AppendResult, ErrorCode, Range, SealKind, ServerState, Stream, UpdateStreamsRequest, UpdateStreamsResponse,
};
use sbp_types::{Offset, RangeIndex, ServerId, StreamId};

use super::cluster::{Cluster, eager, servers};
use super::idempotence::{append, batch, fence, sequences, short};
use super::replication_copies::{incomplete, seal_last};
use super::replication_drain::{calm, wait_until_empty};

/// How many batches of a writer [`filled`] has stored.
const STORED: i64 = 8;

/// A stream with one copy: three sealed ranges and an open one, two batches of a writer in each. The writer was opened again
/// before the second range and at the end of the third one, so that its epoch is 2.
fn filled(cluster: &Cluster) -> (StreamId, ServerId) {
    let (stream, on) = cluster.create(1, 1, 1);
    let mut peer = cluster.peer(on[0]);
    let mut sequence = 0;
    let mut store = |peer: &mut Peer, epoch| {
        for _batch in 0..2 {
            let stored = append(peer, stream, &batch(epoch, sequence));
            let expected = (ErrorCode::NONE, sequence, sequence + 1, false, sequence + 1);
            assert_eq!(short(&stored), expected);
            sequence += 1;
        }
    };
    let open = |peer: &mut Peer, epoch| assert!(append(peer, stream, &fence(epoch)).status.is_success());
    open(&mut peer, 0);
    store(&mut peer, 0);
    seal_last(cluster, stream);
    open(&mut peer, 1);
    store(&mut peer, 1);
    seal_last(cluster, stream);
    store(&mut peer, 1);
    open(&mut peer, 2);
    seal_last(cluster, stream);
    store(&mut peer, 2);
    (stream, on[0])
}

/// What the stream's primary says to a batch of the writer, once there is one that judges it: a range may be sealed and go on
/// elsewhere at any time, and one server may be `gone`.
fn judged(cluster: &Cluster, stream: StreamId, gone: Option<ServerId>, batch: &Bytes) -> AppendResult {
    until("a primary", || {
        let primary = Some(servers(&cluster.last(stream))[0]).filter(|primary| Some(*primary) != gone)?;
        let result = append(&mut cluster.peer(primary), stream, batch);
        let again = [ErrorCode::RANGE_NOT_FOUND, ErrorCode::RANGE_ALREADY_SEALED];
        (!again.contains(&result.status.code)).then_some(result)
    })
}

/// What the writer is told, wherever its appends go now: its old batches are there, also those of sealed ranges, one of before it
/// was opened again is refused, and so is one before which others are missing.
fn expect_judged(cluster: &Cluster, stream: StreamId, gone: Option<ServerId>) {
    let judged = |epoch, sequence| judged(cluster, stream, gone, &batch(epoch, sequence));
    for sequence in (0..STORED).rev() {
        let repeat = judged(2, sequence);
        let found = repeat.base_offset.map(|offset| offset.0);
        assert_eq!(
            (repeat.status.code, repeat.duplicate, found),
            (ErrorCode::NONE, true, Some(sequence)),
            "{repeat:?}"
        );
    }
    assert_eq!(judged(1, STORED).status.code, ErrorCode::WRITER_FENCED);
    assert_eq!(judged(2, STORED + 1).status.code, ErrorCode::SEQUENCE_GAP);
}

fn update(cluster: &Cluster, stream: StreamId, replica_nums: i8, ack_count: i8) {
    let request = UpdateStreamsRequest {
        streams: vec![Stream {
            replica_nums,
            ack_count,
            ..numbered(stream)
        }],
        ..Default::default()
    };
    until("as many range servers", || {
        let (answer, _): (UpdateStreamsResponse, _) = cluster.admin().call(&request, b"");
        let code = answer.update_responses[0].status.code;
        assert!(
            [ErrorCode::NONE, ErrorCode::PD_NO_AVAILABLE_RS].contains(&code),
            "{code}"
        );
        (code == ErrorCode::NONE).then_some(())
    });
}

/// Whether so many servers have all of each range.
fn are_whole(ranges: &[Range], on: usize) -> bool {
    let is_whole = |range: &Range| servers(range).len() == on && incomplete(range).is_empty();
    ranges.iter().all(is_whole)
}

/// Everything that one server serves of the stream.
fn read(cluster: &Cluster, server: ServerId, stream: StreamId) -> Vec<i64> {
    let mut peer = cluster.peer(server);
    let mut found = Vec::new();
    loop {
        let next = i64::try_from(found.len()).unwrap();
        let more = sequences(&mut peer, stream, next);
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

#[test]
fn all_ranges_that_one_server_alone_had_are_copied_when_the_stream_is_to_have_three_replicas() {
    let mut cluster = Cluster::start(3, eager());
    let (stream, first) = filled(&cluster);
    update(&cluster, stream, 3, 2);
    expect_judged(&cluster, stream, None);
    until("all of it on three servers", || {
        are_whole(&cluster.admin().ranges(stream), 3).then_some(())
    });
    cluster.kill(first);
    expect_judged(&cluster, stream, Some(first));
    let all: Vec<i64> = (0..STORED).collect();
    for other in [ServerId(1), ServerId(2), ServerId(3)] {
        if other != first {
            assert_eq!(read(&cluster, other, stream), all);
        }
    }
    // Also after starts of the others, which know no more of the writers than they did.
    cluster.start_again(first);
    for other in [ServerId(1), ServerId(2), ServerId(3)] {
        cluster.kill(other);
        cluster.start_again(other);
        expect_judged(&cluster, stream, None);
        until("the server", || cluster.status_of(other).is_up.then_some(()));
    }
    let stored = judged(&cluster, stream, None, &batch(2, STORED));
    let found = stored.base_offset.map(|offset| offset.0);
    assert_eq!((stored.status.code, found), (ErrorCode::NONE, Some(STORED)));
}

#[test]
fn all_ranges_that_one_server_alone_had_leave_it_when_it_is_drained() {
    let mut cluster = Cluster::start(1, calm());
    let (stream, first) = filled(&cluster);
    let added = cluster.add();
    assert_eq!(cluster.want(first, ServerState::DRAINING), ErrorCode::NONE);
    wait_until_empty(&cluster, first);
    assert_eq!(cluster.status_of(first).stuck_range_cnt, 0);
    let ranges = cluster.admin().ranges(stream);
    assert!(ranges.iter().all(|range| servers(range) == [added]), "{ranges:?}");
    cluster.kill(first);
    expect_judged(&cluster, stream, Some(first));
    assert_eq!(read(&cluster, added, stream), (0..STORED).collect::<Vec<_>>());
    // What was copied is drained again.
    let third = cluster.add();
    assert_eq!(cluster.want(added, ServerState::DRAINING), ErrorCode::NONE);
    wait_until_empty(&cluster, added);
    cluster.kill(added);
    expect_judged(&cluster, stream, Some(added));
    assert_eq!(read(&cluster, third, stream), (0..STORED).collect::<Vec<_>>());
}

#[test]
fn a_stream_that_has_ended_on_one_server_is_copied_and_goes_on_where_its_writers_are_known() {
    let mut cluster = Cluster::start(3, calm());
    let (stream, first) = filled(&cluster);
    let last = cluster.last(stream).range_index.0;
    seal(&mut cluster.admin(), stream, last, SealKind::RANGE_SERVER);
    update(&cluster, stream, 2, 1);
    let ranges = until("all of it on two servers", || {
        let ranges = cluster.admin().ranges(stream);
        are_whole(&ranges, 2).then_some(ranges)
    });
    assert_eq!(ranges.len(), 4, "none follows");
    let other = servers(&ranges[3])[1];
    cluster.kill(first);
    let found = sequences(&mut cluster.peer(other), stream, 6);
    assert_eq!(found, [6, 7], "the last range is there");
    until("that it is missed", || (!cluster.status_of(first).is_up).then_some(()));
    let next = Range {
        stream_id: stream,
        range_index: RangeIndex(4),
        start_offset: Offset(STORED),
        ..Range::default()
    };
    let refused = cluster.admin().make_range(next).status.code;
    assert_eq!(
        refused,
        ErrorCode::PD_NO_AVAILABLE_RS,
        "it has the records, and not the writers"
    );
    cluster.start_again(first);
    until("the server", || cluster.status_of(first).is_up.then_some(()));
    open_next(&mut cluster.admin(), stream, 4, STORED);
    expect_judged(&cluster, stream, None);
    assert_eq!(servers(&cluster.last(stream))[0], first);
}
