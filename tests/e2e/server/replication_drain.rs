//! Range servers that are to be emptied: what leaves them, what stays, and what is durable.

use std::time::Duration;

use sbp_e2e::admin::{Admin, range_id};
use sbp_e2e::wait::until;
use sbp_messages::{ErrorCode, SealKind, SealRangesRequest, SealRangesResponse, ServerState};
use sbp_server::ClusterTimes;
use sbp_types::{ServerId, StreamId};

use super::cluster::{Cluster, held, patient, servers};
use super::replication_copies::{hasty, incomplete, seal_last, sealed, served};

/// Nobody is done without because of silence, and copies are made only because somebody asked for that.
pub(super) fn calm() -> ClusterTimes {
    ClusterTimes {
        replace_after: Duration::from_secs(3_600),
        renew_after: Duration::from_secs(3_600),
        ..patient()
    }
}

/// A stream of three sealed ranges and an open one with a record each.
fn filled(cluster: &Cluster) -> (StreamId, Vec<ServerId>) {
    let (stream, first) = cluster.create(3, 2, 3);
    for range in 0..3 {
        cluster.append(stream, format!("range {range}").as_bytes());
        seal_last(cluster, stream);
    }
    cluster.append(stream, b"the open range");
    (stream, first)
}

/// The records of [`filled`], as each server that has them serves them.
fn records() -> Vec<(i64, Vec<u8>)> {
    let bodies: [&[u8]; 4] = [b"range 0", b"range 1", b"range 2", b"the open range"];
    (0..).zip(bodies.map(<[u8]>::to_vec)).collect()
}

/// Waits until a server holds nothing that counts.
pub(super) fn wait_until_empty(cluster: &Cluster, server: ServerId) {
    until("an empty server", || {
        (held(&cluster.status_of(server)) == 0).then_some(())
    });
}

fn expect_without(cluster: &Cluster, stream: StreamId, without: ServerId) {
    for range in cluster.admin().ranges(stream) {
        let servers = servers(&range);
        assert!(servers.len() == 3 && !servers.contains(&without), "{range:?}");
        assert_eq!(incomplete(&range), [], "{range:?}");
    }
}

#[test]
fn a_server_that_is_drained_ends_empty_gets_nothing_new_and_can_be_removed_without_a_loss() {
    let mut cluster = Cluster::start(3, calm());
    let (stream, first) = filled(&cluster);
    let added = cluster.add();
    assert_eq!(cluster.want(ServerId(99), ServerState::DRAINING), ErrorCode::NOT_FOUND);
    let drained = first[0];
    assert_eq!(cluster.want(drained, ServerState::DRAINING), ErrorCode::NONE);
    assert_eq!(
        cluster.want(drained, ServerState::DRAINING),
        ErrorCode::NONE,
        "twice is once"
    );
    wait_until_empty(&cluster, drained);
    let status = cluster.status_of(drained);
    assert_eq!((status.state, status.stuck_range_cnt), (ServerState::DRAINING, 0));
    expect_without(&cluster, stream, drained);
    let (_, on) = cluster.create(3, 2, 3);
    assert!(!on.contains(&drained), "{on:?}");
    cluster.kill(drained);
    cluster.append(stream, b"without it");
    until("all records at the one that was added", || {
        (served(&cluster, added, stream, 0).len() == 5).then_some(())
    });
    assert_eq!(served(&cluster, added, stream, 0)[..4], records()[..]);
}

#[test]
fn where_too_few_others_are_there_ranges_stay_and_say_why_until_one_is_added() {
    let mut cluster = Cluster::start(3, calm());
    let (stream, first) = filled(&cluster);
    let drained = first[2];
    assert_eq!(cluster.want(drained, ServerState::DRAINING), ErrorCode::NONE);
    let status = cluster.status_of(drained);
    assert_eq!((held(&status), status.stuck_range_cnt), (4, 4));
    for stuck in &status.stuck {
        assert_eq!(stuck.stream_id, stream);
        let reason = &stuck.reason;
        assert!(reason.contains("3 replicas, and 2 range servers are up"), "{reason}");
    }
    // What is durable of it is there after a start.
    cluster.restart_placement();
    until("the servers", || {
        cluster.status().iter().all(|server| server.is_up).then_some(())
    });
    assert_eq!(cluster.status_of(drained).state, ServerState::DRAINING);
    cluster.append(stream, b"it goes on all the same");
    cluster.add();
    wait_until_empty(&cluster, drained);
    expect_without(&cluster, stream, drained);
}

#[test]
fn a_server_that_was_taken_back_keeps_what_it_has_and_gets_more() {
    let cluster = Cluster::start(3, calm());
    let (stream, first) = filled(&cluster);
    assert_eq!(cluster.want(first[0], ServerState::DRAINING), ErrorCode::NONE);
    assert_eq!(cluster.want(first[0], ServerState::IN_USE), ErrorCode::NONE);
    let status = cluster.status_of(first[0]);
    assert_eq!(
        (status.state, held(&status), status.stuck_range_cnt),
        (ServerState::IN_USE, 4, 0)
    );
    assert!(servers(&cluster.last(stream)).contains(&first[0]));
    let (_, on) = cluster.create(3, 2, 3);
    assert!(on.contains(&first[0]));
}

#[test]
fn a_server_that_is_killed_while_it_is_drained_and_a_placement_driver_that_is_restarted_change_nothing() {
    let mut cluster = Cluster::start(3, hasty());
    let (stream, first) = filled(&cluster);
    assert_eq!(cluster.want(first[0], ServerState::DRAINING), ErrorCode::NONE);
    let added = cluster.add();
    cluster.kill(first[0]);
    cluster.restart_placement();
    wait_until_empty(&cluster, first[0]);
    until("copies", || {
        let ranges = sealed(&cluster, stream);
        let whole = ranges
            .iter()
            .all(|range| servers(range).len() == 3 && incomplete(range).is_empty());
        whole.then_some(())
    });
    cluster.wait_for_set(stream, 3);
    // It comes back, and still gets nothing.
    cluster.start_again(first[0]);
    until("it is back", || cluster.status_of(first[0]).is_up.then_some(()));
    seal_last(&cluster, stream);
    expect_without(&cluster, stream, first[0]);
    until("all records at the one that was added", || {
        (served(&cluster, added, stream, 0) == records()).then_some(())
    });
}

#[test]
fn a_stream_with_one_replica_leaves_in_two_steps_and_its_first_range_is_copied() {
    let mut cluster = Cluster::start(1, calm());
    let (stream, first) = cluster.create(1, 1, 1);
    cluster.append(stream, b"before");
    let added = cluster.add();
    assert_eq!(cluster.want(first[0], ServerState::DRAINING), ErrorCode::NONE);
    let last = until("a range elsewhere", || {
        let last = cluster.last(stream);
        (servers(&last) == [added]).then_some(last)
    });
    assert_eq!((last.replica_count, last.ack_count), (Some(1), Some(1)));
    cluster.append(stream, b"after");
    until("the range between on the other one alone", || {
        let between = cluster.admin().ranges(stream).remove(1);
        (servers(&between) == [added]).then_some(())
    });
    wait_until_empty(&cluster, first[0]);
    let ranges = cluster.admin().ranges(stream);
    assert!(ranges.iter().all(|range| servers(range) == [added]), "{ranges:?}");
    assert_eq!(cluster.status_of(first[0]).stuck_range_cnt, 0);
    cluster.kill(first[0]);
    assert_eq!(
        served(&cluster, added, stream, 0),
        [(0, b"before".to_vec()), (1, b"after".to_vec())]
    );
}

/// Asks for the end of a stream's last range. Returns the code and the message.
fn end(cluster: &Cluster, stream: StreamId, force: bool) -> (ErrorCode, String) {
    let request = SealRangesRequest {
        ranges: vec![range_id(stream, cluster.last(stream).range_index.0)],
        kind: SealKind::PLACEMENT_DRIVER,
        force,
        ..SealRangesRequest::default()
    };
    let (answer, _): (SealRangesResponse, _) = cluster.admin().call(&request, b"");
    let status = answer.seal_responses[0].status.clone();
    (status.code, status.message)
}

#[test]
fn a_range_whose_disks_are_lost_is_ended_by_force_where_the_best_copy_ends() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, first) = cluster.create(3, 2, 3);
    cluster.append(stream, b"on all three");
    let left = first[2];
    let mut follower = cluster.peer(left);
    until("its copy", || (follower.fetch_all(stream, 0).len() == 1).then_some(()));
    // The primary last: without it the other two would end the range at once.
    for lost in [first[1], first[0]] {
        cluster.kill(lost);
    }
    let (code, message) = end(&cluster, stream, false);
    assert_eq!(code, ErrorCode::PD_NO_AVAILABLE_RS);
    let what_to_do = format!("`sbp cluster force-seal {stream}/0`");
    assert!(message.contains(&what_to_do), "{message}");
    let (code, message) = end(&cluster, stream, true);
    assert_eq!(
        code,
        ErrorCode::PD_NO_AVAILABLE_RS,
        "two have to acknowledge: {message}"
    );
    assert!(cluster.last(stream).end().is_none());
    let added = [cluster.add(), cluster.add()];
    until("the servers that take their place", || {
        let is_up = |server: &ServerId| cluster.status_of(*server).is_up;
        added.iter().all(is_up).then_some(())
    });
    assert_eq!(end(&cluster, stream, false).0, ErrorCode::PD_NO_AVAILABLE_RS);
    assert_eq!(end(&cluster, stream, true), (ErrorCode::NONE, String::new()));
    let sealed = cluster.admin().ranges(stream).remove(0);
    assert_eq!(sealed.end().map(|end| end.0), Some(1), "{sealed:?}");
    let next = servers(&cluster.last(stream));
    assert_eq!(next[0], left, "it alone has the records before");
    cluster.append(stream, b"the stream goes on");
    assert_eq!(served(&cluster, left, stream, 0).len(), 2);
    // With enough servers it is the ordinary seal, and said so.
    let (code, message) = end(&cluster, stream, true);
    assert_eq!(code, ErrorCode::INVALID_REQUEST);
    assert!(message.contains("nothing is lost"), "{message}");
    until("the range that follows", || {
        (cluster.last(stream).range_index.0 == 2).then_some(())
    });
}
