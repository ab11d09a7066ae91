//! Sealed ranges that are copied: to servers that lack some of them, and to others when a server is lost.

use std::time::Duration;

use sbp_e2e::admin::{Admin, seal, trim};
use sbp_e2e::peer::{fetch_request, from};
use sbp_e2e::wait::until;
use sbp_messages::{FetchResponse, Range, ReplicaState, SealKind};
use sbp_server::ClusterTimes;
use sbp_types::{ServerId, StreamId};

use super::cluster::{Cluster, patient, servers};

/// Copies of a server that is away are made elsewhere at once, and ranges renewed.
pub(super) fn hasty() -> ClusterTimes {
    ClusterTimes {
        renew_after: Duration::from_millis(200),
        replace_after: Duration::from_millis(300),
        ..ClusterTimes::default()
    }
}

pub(super) fn sealed(cluster: &Cluster, stream: StreamId) -> Vec<Range> {
    let mut ranges = cluster.admin().ranges(stream);
    ranges.retain(|range| range.end().is_some());
    ranges
}

/// The servers that may lack some of a range.
pub(super) fn incomplete(range: &Range) -> Vec<ServerId> {
    let copying = range
        .servers
        .iter()
        .filter(|server| server.state == ReplicaState::COPYING);
    let ids = copying.filter_map(|server| server.range_server.as_ref());
    ids.map(|server| server.server_id).collect()
}

/// Seals the stream's last range, and opens the next one.
pub(super) fn seal_last(cluster: &Cluster, stream: StreamId) {
    let last = cluster.last(stream).range_index.0;
    seal(&mut cluster.admin(), stream, last, SealKind::PLACEMENT_DRIVER);
}

/// All records from `from` on that one server serves.
pub(super) fn served(cluster: &Cluster, server: ServerId, stream: StreamId, from: i64) -> Vec<(i64, Vec<u8>)> {
    let mut peer = cluster.peer(server);
    let mut found: Vec<(i64, Vec<u8>)> = Vec::new();
    loop {
        let next = found.last().map_or(from, |(offset, _)| offset + 1);
        let more = peer.fetch_all(stream, next);
        if more.is_empty() {
            return found;
        }
        found.extend(more.into_iter().map(|(offset, body)| (offset, body.to_vec())));
    }
}

/// Nothing is under way to the follower when that ends: the primary loses nothing by which it could find out. Before, the follower's
/// readers waited for the next append.
#[test]
fn a_follower_that_starts_again_is_told_what_is_confirmed_although_nothing_more_is_appended() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, servers) = cluster.create(3, 3, 3);
    cluster.append(stream, b"the last one");
    let follower = servers[1];
    let is_told = |cluster: &Cluster| {
        until("what is confirmed", || {
            let request = fetch_request(0, 0, &[from(stream, 0)]);
            let (answer, records): (FetchResponse, _) = cluster.peer(follower).call(&request, b"");
            let is_read = answer.fetch_responses[0].status.is_success() && !records.is_empty();
            is_read.then_some(())
        });
    };
    for stays_there in [false, true] {
        is_told(&cluster);
        let address = cluster.process(follower).address.clone();
        cluster.kill(follower);
        match stays_there {
            true => cluster.start_again_at(follower, &address),
            false => cluster.start_again(follower),
        }
    }
    is_told(&cluster);
}

#[test]
fn what_a_server_lacks_of_a_sealed_range_it_gets_when_it_is_back_and_until_then_says_that_it_is_elsewhere() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, first) = cluster.create(3, 2, 3);
    cluster.append(stream, b"on all three");
    let late = first[2];
    let mut follower = cluster.peer(late);
    until("its copy", || (follower.fetch_all(stream, 0).len() == 1).then_some(()));
    cluster.kill(late);
    for number in 0..20 {
        cluster.append(stream, format!("without the third, {number}").as_bytes());
    }
    seal_last(&cluster, stream);
    let range = sealed(&cluster, stream).remove(0);
    assert_eq!(incomplete(&range), [late]);
    cluster.append(stream, b"in the next range");
    cluster.start_again(late);
    until("a whole copy", || {
        let range = sealed(&cluster, stream).remove(0);
        incomplete(&range).is_empty().then_some(())
    });
    let expected = served(&cluster, first[0], stream, 0);
    assert!(expected.len() >= 21, "{}", expected.len());
    let found = served(&cluster, late, stream, 0);
    assert_eq!(found[..21], expected[..21]);
}

#[test]
fn copies_of_a_lost_server_are_made_on_another_one_which_then_serves_all_of_the_stream_alone() {
    let mut cluster = Cluster::start(3, hasty());
    let (stream, first) = cluster.create(3, 2, 3);
    // More than one frame takes, from the log.
    let large = vec![7; 200 << 10];
    for _ in 0..60 {
        cluster.append(stream, &large);
    }
    seal_last(&cluster, stream);
    for number in 0..10 {
        cluster.append(stream, format!("second range, {number}").as_bytes());
    }
    seal_last(&cluster, stream);
    cluster.append(stream, b"third range");
    trim(&mut cluster.admin(), stream, 5);
    let expected = served(&cluster, first[0], stream, 5);
    let lost = first[0];
    let added = cluster.add();
    cluster.kill(lost);
    let moved = until("copies elsewhere", || {
        let ranges = sealed(&cluster, stream);
        let is_whole = |range: &Range| !servers(range).contains(&lost) && incomplete(range).is_empty();
        ranges[..2].iter().all(is_whole).then_some(ranges)
    });
    for range in &moved[..2] {
        assert!(servers(range).contains(&added), "{range:?}");
    }
    cluster.append(stream, b"behind the loss");
    cluster.wait_for_set(stream, 3);
    for other in [first[1], first[2]] {
        cluster.kill(other);
    }
    let found = served(&cluster, added, stream, 5);
    assert_eq!(found[..expected.len()], expected[..]);
    // It also has it after a start of its own.
    cluster.kill(added);
    cluster.start_again(added);
    let found = served(&cluster, added, stream, 5);
    assert_eq!(found[..70 - 5], expected[..70 - 5]);
}
