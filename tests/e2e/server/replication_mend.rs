//! Records that the disk of one server has lost come back from the others.

use std::time::Duration;

use sbp_e2e::admin::range_id;
use sbp_e2e::damage::{damage, damage_head};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::wait::{LIMIT, until, until_by};
use sbp_messages::{ErrorCode, FetchResponse, SealKind, SealRangesRequest, SealRangesResponse, SealRangesResult};
use sbp_server::ClusterTimes;
use sbp_types::{Offset, ServerId, StreamId};

use super::cluster::{Cluster, patient};
use super::replication_copies::{seal_last, served};

fn record(number: i64) -> Vec<u8> {
    format!("record {number} of many").into_bytes()
}

/// A stream with so many records on three servers, each in a batch of its own.
fn filled(cluster: &Cluster, count: i64) -> (StreamId, Vec<ServerId>) {
    filled_with(cluster, 3, count)
}

/// The same, where so many acknowledge.
fn filled_with(cluster: &Cluster, acks: i8, count: i64) -> (StreamId, Vec<ServerId>) {
    let (stream, on) = cluster.create(3, acks, 3);
    for number in 0..count {
        cluster.append(stream, &record(number));
    }
    (stream, on)
}

fn expected(count: i64) -> Vec<(i64, Vec<u8>)> {
    (0..count).map(|number| (number, record(number))).collect()
}

/// The server is killed, its disk loses some records, and it starts again.
fn lose(cluster: &mut Cluster, server: ServerId, records: &[i64]) {
    cluster.kill(server);
    for number in records {
        damage(&cluster.directory_of(server), &record(*number));
    }
    cluster.start_again(server);
}

fn code_at(peer: &mut Peer, stream: StreamId, offset: i64) -> ErrorCode {
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, offset)]), b"");
    response.fetch_responses[0].status.code
}

/// Waits until the server itself serves all records.
fn wait_until_whole(cluster: &Cluster, server: ServerId, stream: StreamId, count: i64) {
    until("a whole copy", || {
        let mut peer = cluster.peer(server);
        let is_readable = (0..count).all(|offset| code_at(&mut peer, stream, offset) == ErrorCode::NONE);
        // A server that does not know yet that the last records are confirmed serves those before them, and no error.
        let is_whole = is_readable && served(cluster, server, stream, 0) == expected(count);
        is_whole.then_some(())
    });
}

#[test]
fn records_that_a_disk_has_lost_come_back_from_the_other_servers_of_an_open_range_and_of_a_sealed_one() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, on) = filled(&cluster, 12);
    // Of the open range, which a primary that starts again has sealed.
    lose(&mut cluster, on[1], &[0, 5, 6, 11]);
    wait_until_whole(&cluster, on[1], stream, 12);
    lose(&mut cluster, on[0], &[3, 11]);
    wait_until_whole(&cluster, on[0], stream, 12);
    seal_last(&cluster, stream);
    lose(&mut cluster, on[2], &[7]);
    wait_until_whole(&cluster, on[2], stream, 12);
    // Each other's.
    lose(&mut cluster, on[0], &[1]);
    lose(&mut cluster, on[1], &[2]);
    for server in [on[0], on[1]] {
        wait_until_whole(&cluster, server, stream, 12);
    }
    // What was mended stays so when the server is alone.
    for server in [on[0], on[1]] {
        cluster.kill(server);
    }
    cluster.start_again(on[0]);
    wait_until_whole(&cluster, on[0], stream, 12);
}

#[test]
fn a_record_that_all_servers_have_lost_stays_lost_and_is_told_so_until_one_has_it_again() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, on) = filled(&cluster, 6);
    seal_last(&cluster, stream);
    for server in &on {
        cluster.kill(*server);
        damage(&cluster.directory_of(*server), &record(2));
    }
    for server in &on {
        cluster.start_again(*server);
    }
    for server in &on {
        let mut peer = cluster.peer(*server);
        until("what is left", || {
            (code_at(&mut peer, stream, 3) == ErrorCode::NONE).then_some(())
        });
        assert_eq!(code_at(&mut peer, stream, 2), ErrorCode::RS_DATA_CORRUPTED);
    }
    // The disk gives the bytes back that it had.
    cluster.kill(on[2]);
    damage(&cluster.directory_of(on[2]), b"secord 2 of many");
    cluster.start_again(on[2]);
    wait_until_whole(&cluster, on[2], stream, 6);
}

#[test]
fn a_server_whose_disk_has_lost_some_of_a_sealed_range_does_not_count_for_it_until_it_was_sent_that_again() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, on) = filled(&cluster, 6);
    seal_last(&cluster, stream);
    assert_eq!(cluster.status_of(on[0]).incomplete_range_cnt, 0);
    // Nobody is there who could send it what it lacks.
    for server in [on[1], on[2]] {
        cluster.kill(server);
    }
    lose(&mut cluster, on[0], &[4]);
    let lacking = |cluster: &Cluster| cluster.status_of(on[0]).incomplete_range_cnt;
    until("that it is known", || (lacking(&cluster) == 1).then_some(()));
    for server in [on[1], on[2]] {
        cluster.start_again(server);
    }
    wait_until_whole(&cluster, on[0], stream, 6);
    until("that it counts again", || (lacking(&cluster) == 0).then_some(()));
}

/// Asks for the end of a stream's first range.
fn end(cluster: &Cluster, stream: StreamId, force: bool) -> SealRangesResult {
    let request = SealRangesRequest {
        ranges: vec![range_id(stream, 0)],
        kind: SealKind::PLACEMENT_DRIVER,
        force,
        ..SealRangesRequest::default()
    };
    let (answer, _): (SealRangesResponse, _) = cluster.admin().call(&request, b"");
    answer.seal_responses[0].clone()
}

#[test]
fn a_range_whose_same_record_all_servers_have_lost_waits_and_ends_by_force_with_the_loss_told() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, on) = filled(&cluster, 6);
    // Of the open range. The next one is on three, so that it does not end while they are killed.
    for server in &on {
        cluster.kill(*server);
        damage(&cluster.directory_of(*server), &record(2));
    }
    damage(&cluster.directory_of(on[1]), &record(4));
    for server in &on {
        cluster.start_again(*server);
    }
    let refused = until("that it waits", || {
        let answer = end(&cluster, stream, false);
        let is_lost = answer.status.message.contains("have lost the same records");
        (is_lost && answer.status.message.contains(", ")).then_some(answer)
    });
    let message = refused.status.message;
    assert_eq!(refused.status.code, ErrorCode::PD_NO_AVAILABLE_RS);
    assert!(message.contains("(offset 2)"), "{message}");
    let what_to_do = format!("`sbp cluster force-seal {stream}/0`");
    assert!(message.contains(&what_to_do), "{message}");
    assert!(cluster.last(stream).end().is_none());
    let ended = until("an end by force", || {
        let answer = end(&cluster, stream, true);
        // Whoever is up and has not answered keeps it from being forced.
        (answer.status.code != ErrorCode::PD_NO_AVAILABLE_RS).then_some(answer)
    });
    assert_eq!(ended.status.code, ErrorCode::NONE, "{}", ended.status.message);
    assert_eq!(ended.lost_offsets, [Offset(2), Offset(3)]);
    let next = ended.range.unwrap();
    assert_eq!(
        (next.range_index.0, next.start_offset),
        (1, Offset(6)),
        "at the end that they reach"
    );
    // The stream goes on, and each server has got from the others what they have.
    cluster.append(stream, &record(6));
    for server in &on {
        until("all that is left", || {
            let mut peer = cluster.peer(*server);
            let mut is_readable = |offset| code_at(&mut peer, stream, offset) == ErrorCode::NONE;
            [0, 1, 3, 4, 5, 6].into_iter().all(&mut is_readable).then_some(())
        });
        assert_eq!(
            code_at(&mut cluster.peer(*server), stream, 2),
            ErrorCode::RS_DATA_CORRUPTED
        );
    }
    // The disk of one gives the bytes back that it had, and the others have them from there.
    cluster.kill(on[2]);
    damage(&cluster.directory_of(on[2]), b"secord 2 of many");
    cluster.start_again(on[2]);
    wait_until_whole(&cluster, on[2], stream, 7);
    cluster.kill(on[0]);
    cluster.start_again(on[0]);
    wait_until_whole(&cluster, on[0], stream, 7);
}

#[test]
fn a_copy_whose_lost_records_cannot_come_back_is_removed_and_made_anew() {
    let times = ClusterTimes {
        replace_after: Duration::from_secs(2),
        renew_after: Duration::from_secs(3_600),
        ..patient()
    };
    let mut cluster = Cluster::with_retention(3, times, Some(Duration::from_millis(200)));
    let (stream, on) = filled_with(&cluster, 2, 6);
    seal_last(&cluster, stream);
    // The log knows what it had by the checkpoint of an end in order, and nobody knows any more where that batch lay in its file. After
    // a kill nobody would know either which range it was of: then no copy leaves that disk.
    cluster.end(on[0]);
    damage_head(&cluster.directory_of(on[0]), &record(4));
    cluster.start_again(on[0]);
    let lacking = |cluster: &Cluster| cluster.status_of(on[0]).incomplete_range_cnt;
    until("that it is known", || (lacking(&cluster) == 1).then_some(()));
    until_by(2 * LIMIT, "a copy that was made anew", || {
        let whole = (0..6).all(|offset| code_at(&mut cluster.peer(on[0]), stream, offset) == ErrorCode::NONE);
        (whole && lacking(&cluster) == 0).then_some(())
    });
    assert_eq!(served(&cluster, on[0], stream, 0), expected(6));
}
