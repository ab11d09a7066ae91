//! Copies that are done without: they leave the disk of their server, and the server takes the range again.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use sbp_e2e::admin::{Admin, delete, trim};
use sbp_e2e::peer::fetch_request;
use sbp_e2e::wait::{LIMIT, until, until_by};
use sbp_messages::{
    ClientRole, ErrorCode, FetchInfo, FetchResponse, HeartbeatRequest, HeartbeatResponse, ServerState, StreamRanges,
    SyncRangesRequest, SyncRangesResponse,
};
use sbp_server::ClusterTimes;
use sbp_types::{Offset, RangeIndex, ServerId, StreamId};

use super::cluster::{Cluster, servers};
use super::replication_copies::{incomplete, seal_last, sealed, served};
use super::replication_drain::wait_until_empty;

/// What the records of the sealed range begin with, and no other record.
const MARK: &[u8] = b"it was sealed and copied elsewhere";
const RECORDS: usize = 12;

/// Range servers that remove soon what they are done without; none is done without because of silence.
fn tidy(servers: usize) -> Cluster {
    let times = ClusterTimes {
        replace_after: Duration::from_secs(3_600),
        renew_after: Duration::from_secs(3_600),
        ..ClusterTimes::default()
    };
    Cluster::with_retention(servers, times, Some(Duration::from_millis(200)))
}

fn record(number: usize) -> Vec<u8> {
    let mut body = MARK.to_vec();
    body.resize(100_000 + number, u8::try_from(number).unwrap());
    body
}

fn records() -> Vec<(i64, Vec<u8>)> {
    (0..).zip((0..RECORDS).map(record)).collect()
}

/// A stream with a sealed range of some size, and an open one.
fn filled(cluster: &Cluster) -> (StreamId, Vec<ServerId>) {
    let (stream, first) = cluster.create(3, 2, 3);
    for number in 0..RECORDS {
        cluster.append(stream, &record(number));
    }
    seal_last(cluster, stream);
    (stream, first)
}

/// How often a server's files have something of the sealed range.
fn marks_of(cluster: &Cluster, server: ServerId) -> usize {
    fn files(directory: &Path, found: &mut Vec<Vec<u8>>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if let Ok(bytes) = std::fs::read(&path) {
                // Others are removed meanwhile.
                found.push(bytes);
            }
        }
    }
    let mut found = Vec::new();
    files(&cluster.directory_of(server), &mut found);
    let count = |bytes: &Vec<u8>| bytes.windows(MARK.len()).filter(|window| *window == MARK).count();
    found.iter().map(count).sum()
}

fn wait_until_removed(cluster: &Cluster, server: ServerId) {
    until_by(LIMIT, "the range on no file", || {
        (marks_of(cluster, server) == 0).then_some(())
    });
}

/// What a server answers to a reader of the sealed range.
fn answer(cluster: &Cluster, server: ServerId, stream: StreamId) -> ErrorCode {
    let info = FetchInfo {
        stream_id: stream,
        fetch_offset: Offset(0),
        ..FetchInfo::default()
    };
    let (answer, _): (FetchResponse, _) = cluster.peer(server).call(&fetch_request(0, 0, &[info]), b"");
    answer.fetch_responses[0].status.code
}

/// Waits until all of the sealed range is on these servers, in any order.
fn wait_for(cluster: &Cluster, stream: StreamId, wanted: &[ServerId]) {
    until_by(LIMIT, "whole copies", || {
        let range = sealed(cluster, stream).remove(0);
        let on = servers(&range);
        let all = wanted.len() == on.len() && wanted.iter().all(|server| on.contains(server));
        (all && incomplete(&range).is_empty()).then_some(())
    });
}

#[test]
fn a_drained_server_removes_its_copies_takes_them_again_and_serves_them_alone_with_kills_between() {
    let mut cluster = tidy(3);
    let (stream, first) = filled(&cluster);
    let drained = first[0];
    let added = cluster.add();
    assert!(marks_of(&cluster, drained) >= RECORDS);
    assert_eq!(cluster.want(drained, ServerState::DRAINING), ErrorCode::NONE);
    wait_for(&cluster, stream, &[first[1], first[2], added]);
    wait_until_empty(&cluster, drained);
    // Whatever it has done of it by now.
    cluster.kill(drained);
    cluster.start_again(drained);
    wait_until_removed(&cluster, drained);
    assert_eq!(answer(&cluster, drained, stream), ErrorCode::RANGE_NOT_FOUND);
    cluster.kill(drained);
    cluster.restart_placement();
    cluster.start_again(drained);

    // It is the only one that can have the range instead of another one.
    assert_eq!(cluster.want(drained, ServerState::IN_USE), ErrorCode::NONE);
    assert_eq!(cluster.want(added, ServerState::DRAINING), ErrorCode::NONE);
    wait_for(&cluster, stream, &[first[1], first[2], drained]);
    assert_eq!(served(&cluster, drained, stream, 0)[..RECORDS], records()[..]);
    cluster.kill(drained);
    for lost in [first[1], first[2], added] {
        cluster.kill(lost);
    }
    cluster.start_again(drained);
    let alone = until("all of it", || {
        (answer(&cluster, drained, stream) == ErrorCode::NONE).then(|| served(&cluster, drained, stream, 0))
    });
    assert_eq!(alone[..RECORDS], records()[..]);
}

#[test]
fn a_copy_whose_range_is_trimmed_before_its_server_hears_that_it_is_done_without_leaves_too() {
    let mut cluster = tidy(3);
    let (stream, first) = cluster.create(3, 2, 3);
    for number in 0..RECORDS {
        cluster.append(stream, &record(number));
    }
    let away = first[2];
    until("all of it on each server", || {
        (marks_of(&cluster, away) >= RECORDS).then_some(())
    });
    cluster.kill(away);
    // It does not hear where the range ends.
    seal_last(&cluster, stream);
    let added = cluster.add();
    assert_eq!(cluster.want(away, ServerState::DRAINING), ErrorCode::NONE);
    wait_for(&cluster, stream, &[first[0], first[1], added]);
    trim(&mut cluster.admin(), stream, i64::try_from(RECORDS).unwrap());
    until("no trace of the range", || {
        (cluster.admin().ranges(stream)[0].range_index != RangeIndex(0)).then_some(())
    });
    cluster.start_again(away);
    wait_until_removed(&cluster, away);
}

#[test]
fn a_server_that_is_away_when_it_is_let_go_removes_its_copy_when_it_is_back() {
    for stopped in [true, false] {
        let mut cluster = tidy(3);
        let (stream, first) = filled(&cluster);
        let away = first[2];
        let added = cluster.add();
        if stopped {
            cluster.process(away).pause();
        } else {
            cluster.kill(away);
        }
        assert_eq!(cluster.want(away, ServerState::DRAINING), ErrorCode::NONE);
        wait_for(&cluster, stream, &[first[0], first[1], added]);
        // Whoever leads from now on was not there.
        cluster.restart_placement();
        assert!(marks_of(&cluster, away) >= RECORDS, "nobody has told it");
        if stopped {
            cluster.process(away).signal(Signal::CONT);
        } else {
            cluster.start_again(away);
        }
        wait_until_removed(&cluster, away);
        // And it is given the range again.
        assert_eq!(cluster.want(away, ServerState::IN_USE), ErrorCode::NONE);
        assert_eq!(cluster.want(first[0], ServerState::DRAINING), ErrorCode::NONE);
        wait_for(&cluster, stream, &[first[1], added, away]);
        assert_eq!(served(&cluster, away, stream, 0)[..RECORDS], records()[..]);
    }
}

#[test]
fn a_stream_that_is_deleted_while_a_server_is_away_that_was_let_go_of_it_is_deleted_there_too() {
    let mut cluster = tidy(3);
    let (stream, first) = filled(&cluster);
    let away = first[1];
    let added = cluster.add();
    cluster.kill(away);
    assert_eq!(cluster.want(away, ServerState::DRAINING), ErrorCode::NONE);
    wait_for(&cluster, stream, &[first[0], first[2], added]);
    wait_until_empty(&cluster, away);
    delete(&mut cluster.admin(), stream);
    cluster.restart_placement();
    cluster.start_again(away);
    until_by(LIMIT, "the deletion", || {
        (answer(&cluster, away, stream) == ErrorCode::NOT_FOUND).then_some(())
    });
}

#[test]
fn an_order_to_remove_a_copy_that_comes_late_does_nothing_to_one_that_counts() {
    let cluster = tidy(3);
    let (stream, first) = filled(&cluster);
    wait_for(&cluster, stream, &first);
    let holder = first[0];
    let mut range = sealed(&cluster, stream).remove(0);
    let is_holder = |id: Option<ServerId>| id == Some(holder);
    range
        .servers
        .retain(|server| !is_holder(server.range_server.as_ref().map(|server| server.server_id)));
    assert_eq!(range.servers.len(), 2);
    let mut late = cluster.peer(holder);
    let greeting = HeartbeatRequest {
        client_role: ClientRole::PLACEMENT_DRIVER,
        ..HeartbeatRequest::default()
    };
    let (greeted, _): (HeartbeatResponse, _) = late.call(&greeting, b"");
    assert!(greeted.status.is_success(), "{}", greeted.status);
    // The term of the one that leads, which was started once, and none.
    for term in [1, 0] {
        let order = SyncRangesRequest {
            stream_ranges: vec![StreamRanges {
                stream_id: stream,
                ranges: vec![range.clone()],
            }],
            term,
            ..SyncRangesRequest::default()
        };
        let (answer, _): (SyncRangesResponse, _) = late.call(&order, b"");
        let result = &answer.sync_responses[0];
        assert!(result.status.is_success(), "{}", result.status);
        let listed: Vec<_> = result.ranges.iter().map(|range| range.range_index).collect();
        assert_eq!(listed, [range.range_index], "it says that it has it");
        assert_eq!(served(&cluster, holder, stream, 0)[..RECORDS], records()[..]);
    }
}
