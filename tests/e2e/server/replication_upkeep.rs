//! What a placement driver does of itself about streams with several copies: range servers in processes of their own that
//! are stopped, killed, away and added.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use sbp_e2e::admin::{Admin, numbered};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::wait::until;
use sbp_messages::{ErrorCode, FetchResponse, Message, Stream, UpdateStreamsRequest, UpdateStreamsResponse};
use sbp_server::ClusterTimes;
use sbp_types::Offset;

use super::cluster::{Cluster, eager, patient, servers};
use super::replication_copies::incomplete;

#[test]
fn a_primary_that_is_stopped_is_done_without_after_seconds_although_its_connections_stand() {
    let cluster = Cluster::start(3, ClusterTimes::default());
    let (stream, first) = cluster.create(3, 2, 3);
    cluster.append(stream, b"before");
    let stopped = cluster.process(first[0]);
    let begun = Instant::now();
    stopped.pause();
    let next = until("the next range", || {
        let last = servers(&cluster.last(stream));
        (last[0] != first[0]).then_some(last)
    });
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(1), "{took:?}: it might have been busy");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(!next.contains(&first[0]));
    cluster.append(stream, b"after");
    stopped.signal(Signal::CONT);
    // It is told that its range has ended, and takes nothing more.
    let refused = cluster.peer(first[0]).append(stream, b"elsewhere").status.code;
    assert!(
        [ErrorCode::RANGE_NOT_FOUND, ErrorCode::RANGE_ALREADY_SEALED].contains(&refused),
        "{refused}"
    );
    until("everybody", || {
        cluster.status().iter().all(|server| server.is_up).then_some(())
    });
    let mut primary = cluster.peer(next[0]);
    let found: Vec<_> = (0..2).flat_map(|from| primary.fetch_all(stream, from)).collect();
    assert_eq!(found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn where_a_range_is_is_told_while_its_primary_does_not_answer() {
    let cluster = Cluster::start(3, ClusterTimes::default());
    let (stream, first) = cluster.create(3, 2, 3);
    cluster.append(stream, b"before");
    let stopped = cluster.process(first[0]);
    stopped.pause();
    // The placement driver misses it after 3 s. Until then it names it, and does not wait for it to do so.
    let told = servers(&cluster.last(stream));
    let counts = cluster.status_of(first[0]).is_up;
    stopped.signal(Signal::CONT);
    assert_eq!(told, first);
    assert!(counts, "the answer came when the server was done without");
}

#[test]
fn a_primary_that_is_killed_is_done_without_as_soon_as_nobody_listens_at_its_address() {
    let mut cluster = Cluster::start(3, patient());
    let (stream, first) = cluster.create(3, 2, 3);
    cluster.append(stream, b"before");
    cluster.kill(first[0]);
    let next = cluster.wait_for_set(stream, 2);
    assert!(!next.contains(&first[0]));
    cluster.append(stream, b"after");
    let down: Vec<_> = cluster.status().iter().map(|server| !server.is_up).collect();
    assert_eq!(down.iter().filter(|down| **down).count(), 1);
}

#[test]
fn a_range_on_fewer_servers_than_wanted_goes_on_on_more_when_one_is_there() {
    let mut cluster = Cluster::start(2, eager());
    let (stream, first) = cluster.create(3, 2, 2);
    cluster.append(stream, b"before");
    let missing = |cluster: &Cluster| {
        let status = cluster.status();
        status.iter().map(|server| server.missing_replica_cnt).sum::<i32>()
    };
    assert!(missing(&cluster) > 0, "it is shown");
    let added = cluster.add();
    let next = cluster.wait_for_set(stream, 3);
    assert_eq!(next[0], first[0], "its primary has everything, and goes on");
    assert!(next.contains(&added));
    cluster.append(stream, b"after");
    until("all ranges", || (missing(&cluster) == 0).then_some(()));
    // The new one has what was appended since, and counts.
    cluster.kill(first[1]);
    cluster.append(stream, b"with the new one");
}

#[test]
fn a_stream_gets_other_numbers_of_replicas_with_the_next_range_at_once() {
    let cluster = Cluster::start(3, patient());
    let (stream, alone) = cluster.create(1, 1, 1);
    until("three range servers", || {
        (cluster.status().iter().filter(|server| server.is_up).count() == 3).then_some(())
    });
    cluster.append(stream, b"one copy");
    let update = |replicas, acks| {
        let request = UpdateStreamsRequest {
            streams: vec![Stream {
                replica_nums: replicas,
                ack_count: acks,
                ..numbered(stream)
            }],
            ..Default::default()
        };
        let (answer, _): (UpdateStreamsResponse, _) = cluster.admin().call(&request, b"");
        let result = answer.update_responses.into_iter().next().unwrap();
        (
            result.status.code,
            result.stream.map(|stream| (stream.replica_nums, stream.ack_count)),
        )
    };
    assert_eq!(update(3, 0), (ErrorCode::NONE, Some((3, 2))));
    let three = servers(&cluster.last(stream));
    assert_eq!((three.len(), three[0]), (3, alone[0]));
    cluster.append(stream, b"three copies");
    for server in &three[1..] {
        let mut follower = cluster.peer(*server);
        until("its copy", || (follower.fetch_all(stream, 1).len() == 1).then_some(()));
    }
    assert_eq!(update(0, 3), (ErrorCode::NONE, Some((3, 3))));
    assert_eq!(cluster.last(stream).ack_count, Some(3));
    assert_eq!(update(1, 0), (ErrorCode::NONE, Some((1, 1))));
    assert_eq!(servers(&cluster.last(stream)).len(), 1);
    cluster.append(stream, b"one copy again");
    assert_eq!(
        update(1, 0),
        (ErrorCode::NONE, Some((1, 1))),
        "the second time nothing changes"
    );
    assert_eq!(cluster.admin().ranges(stream).len(), 4);
    assert_eq!(update(5, 4).0, ErrorCode::PD_NO_AVAILABLE_RS);
}

#[test]
fn what_a_stream_had_with_one_copy_is_copied_when_it_is_to_have_three() {
    let mut cluster = Cluster::start(3, eager());
    let (stream, alone) = cluster.create(1, 1, 1);
    for body in [b"one".as_slice(), b"copy"] {
        cluster.append(stream, body);
    }
    let request = UpdateStreamsRequest {
        streams: vec![Stream {
            replica_nums: 3,
            ack_count: 2,
            ..numbered(stream)
        }],
        ..Default::default()
    };
    let update = || {
        let (answer, _): (UpdateStreamsResponse, _) = cluster.admin().call(&request, b"");
        answer.update_responses[0].status.code
    };
    until("three range servers", || (update() == ErrorCode::NONE).then_some(()));
    cluster.append(stream, b"three copies");
    let is_everywhere = |cluster: &Cluster| {
        let ranges = cluster.admin().ranges(stream);
        let is_whole = |range| servers(range).len() == 3 && incomplete(range).is_empty();
        ranges.iter().all(is_whole).then_some(())
    };
    until("the first range on three servers", || is_everywhere(&cluster));
    // Whoever had it alone is not needed any more, and knows after a start that others have it.
    cluster.kill(alone[0]);
    let others: Vec<_> = servers(&cluster.last(stream))
        .into_iter()
        .filter(|it| *it != alone[0])
        .collect();
    for server in others {
        let mut other = cluster.peer(server);
        assert_eq!(other.fetch_all(stream, 0)[..2], [(0, "one".into()), (1, "copy".into())]);
    }
    cluster.start_again(alone[0]);
    cluster.append(stream, b"after");
    until("all of it on three servers", || is_everywhere(&cluster));
    let mut first = cluster.peer(alone[0]);
    assert_eq!(first.fetch_all(stream, 0)[..2], [(0, "one".into()), (1, "copy".into())]);
}

#[test]
fn a_primary_that_was_stopped_does_not_tell_an_old_end() {
    let cluster = Cluster::start(3, ClusterTimes::default());
    let (stream, set) = cluster.create(3, 2, 3);
    let first = set[0];
    assert_eq!(cluster.peer(first).store(stream, b"before"), 0);
    let end_of = |peer: &mut Peer| peer.send(&fetch_request(0, 0, &[from(stream, Offset::LATEST.0)]), b"");
    let told = |peer: &mut Peer, call| {
        let response = FetchResponse::decode(&peer.answer(call).header).unwrap();
        let result = response.fetch_responses.into_iter().next().unwrap();
        (result.status.code, result.base_offset)
    };
    let mut readers: Vec<_> = (0..4).map(|_| cluster.peer(first)).collect();
    let call = end_of(&mut readers[0]);
    assert_eq!(told(&mut readers[0], call), (ErrorCode::NONE, Some(Offset(1))));
    cluster.process(first).signal(Signal::STOP);
    // The others go on without it.
    until("the next range", || {
        let last = cluster.last(stream);
        (last.range_index.0 > 0 && servers(&last)[0] != first).then_some(())
    });
    cluster.append(stream, b"after");
    // Asked while it is stopped, it sees the questions before anything else when it goes on.
    let calls: Vec<_> = readers.iter_mut().map(end_of).collect();
    cluster.process(first).signal(Signal::CONT);
    for (reader, call) in readers.iter_mut().zip(calls) {
        let (code, end) = told(reader, call);
        assert_eq!((code, end), (ErrorCode::RANGE_NOT_FOUND, None));
    }
    let last = servers(&cluster.last(stream))[0];
    let mut reader = cluster.peer(last);
    let call = end_of(&mut reader);
    assert_eq!(told(&mut reader, call), (ErrorCode::NONE, Some(Offset(2))));
}

/// A restarted server has another address here. What waits for an answer at the old one, for 10 s, is sent to the new one.
#[test]
fn a_follower_that_is_back_at_another_address_is_sent_what_it_lacks_there() {
    let mut cluster = Cluster::start(3, eager());
    let (stream, _) = cluster.create(3, 2, 3);
    cluster.append(stream, b"on three");
    let set = cluster.wait_for_set(stream, 3);
    let (first, second) = (set[1], set[2]);
    let old = cluster.process(first).address.clone();
    cluster.kill(first);
    // It is on its way to the one that is gone, for as long as that may take to answer.
    cluster.append(stream, b"on two");
    let begun = Instant::now();
    cluster.start_again(first);
    assert_ne!(cluster.process(first).address, old);
    cluster.wait_for_set(stream, 3);
    cluster.kill(second);
    cluster.append(stream, b"on two others");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// How long appends stand still when the primary is killed, from the kill to the next acknowledgement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: SBP_TAKEOVERS says how many"]
#[allow(clippy::print_stdout, reason = "the figures of a measurement")]
async fn takeovers_take_how_long() {
    let count: usize = std::env::var("SBP_TAKEOVERS").map_or(10, |count| count.parse().unwrap());
    let mut cluster = tokio::task::spawn_blocking(|| Cluster::start(3, eager()))
        .await
        .unwrap();
    let (stream, _) = tokio::task::block_in_place(|| cluster.create(3, 2, 3));
    let client = sbp_e2e::clients::client(cluster.placement_address());
    let writer = client.writer(stream, sbp_client::WriterOptions::default());
    let mut taken = Vec::new();
    for number in 0..count {
        let record = || {
            let mut records = sbp_record::RecordsBuilder::new();
            records.push(Some(b"a record"), None, None, &[]).unwrap();
            records
        };
        for _ in 0..20 {
            writer.append(record()).await.unwrap();
        }
        let primary = tokio::task::block_in_place(|| cluster.wait_for_set(stream, 3))[0];
        let began = Instant::now();
        tokio::task::block_in_place(|| cluster.kill(primary));
        writer.append(record()).await.unwrap();
        taken.push(began.elapsed());
        println!("takeover {number}: {} ms", taken[number].as_millis());
        tokio::task::block_in_place(|| cluster.start_again(primary));
    }
    taken.sort_unstable();
    println!(
        "{count} takeovers: median {} ms, worst {} ms",
        taken[count / 2].as_millis(),
        taken[count - 1].as_millis()
    );
    writer.close().await.unwrap();
    drop(client);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}
