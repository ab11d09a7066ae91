//! Ranges that are to be on several servers: where the placement driver puts them, what it tells of them, and what a range
//! server keeps.

use std::time::Instant;

use sbp_e2e::admin::{Admin, created};
use sbp_e2e::peer::Peer;
use sbp_e2e::wait::{PATIENCE, until};
use sbp_frame::OpCode;
use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, ErrorCode, Range, RangeServer,
    RangeServerStatus, ReplicaServer, ReportMetricsRequest, ReportMetricsResponse, ServerState, Stream, features,
};
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId};

use super::peers::{GIVEN, Scripted, placement_driver, range_server, register, register_with};

fn create(peer: &mut Peer, replicas: i8, acks: i8) -> Result<Range, ErrorCode> {
    let stream = Stream {
        replica_nums: replicas,
        ack_count: acks,
        ..Stream::default()
    };
    match created(peer, vec![stream]).remove(0) {
        (_, Some(range), ErrorCode::NONE) => Ok(range),
        (.., code) => Err(code),
    }
}

/// The servers of a range as it is told: number, address, whether it is the primary.
fn servers(range: &Range) -> Vec<(i32, String, bool)> {
    let told = |replica: &ReplicaServer| {
        let server = replica.range_server.clone().unwrap();
        (server.server_id.0, server.advertise_addr, replica.is_primary)
    };
    range.servers.iter().map(told).collect()
}

pub(crate) fn range_servers(peer: &mut Peer) -> Vec<RangeServerStatus> {
    let request = DescribePlacementDriverClusterRequest::default();
    let (answer, _): (DescribePlacementDriverClusterResponse, _) = peer.call(&request, b"");
    answer.cluster.unwrap().range_servers.unwrap()
}

#[test]
fn each_server_of_a_range_is_told_of_the_others_and_where_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let driver = placement_driver(directory.path());
    let mut client = Peer::connect(&driver);
    let scripted = [(); 4].map(|()| Scripted::start());
    let (_old, _) = register(&driver, &scripted[0]);
    assert_eq!(
        create(&mut client, 1, 0).unwrap().servers.len(),
        1,
        "one copy needs no server that replicates"
    );
    assert_eq!(create(&mut client, 2, 1), Err(ErrorCode::UNSUPPORTED_OPERATION));
    let can = [features::REPLICATION];
    let (first, _) = register_with(&driver, &scripted[1], &can);
    let (second, _) = register_with(&driver, &scripted[2], &can);
    let (third, _) = register_with(&driver, &scripted[3], &can);

    let range = create(&mut client, 3, 0).unwrap();
    let told = [(2, true), (3, false), (4, false)].map(|(number, primary): (i32, bool)| {
        let place = usize::try_from(number).unwrap() - 1;
        (number, scripted[place].address.clone(), primary)
    });
    assert_eq!(servers(&range), told);
    assert_eq!((range.replica_count, range.ack_count), (Some(3), Some(2)));
    assert_eq!(
        servers(&client.ranges(range.stream_id)[0]),
        told,
        "LIST_RANGES tells the same"
    );
    for replica in &scripted[1..] {
        let synced = replica.wait("the range", |known| known.synced.last().cloned());
        assert_eq!(servers(&synced.ranges[0]), told, "SYNC_RANGES tells the same");
        assert_eq!(synced.ranges[0].ack_count, Some(2));
    }

    scripted[3].end();
    drop(third);
    let fewer = until("the third to be missed", || {
        let range = create(&mut client, 3, 2).unwrap();
        (range.servers.len() == 2).then_some(range)
    });
    assert_eq!((fewer.replica_count, fewer.ack_count), (Some(3), Some(2)));
    let status = range_servers(&mut client);
    let up: Vec<_> = status.iter().map(|server| server.is_up).collect();
    assert_eq!(up, [true, true, true, false], "{status:?}");
    assert_eq!(status.iter().map(|server| server.missing_replica_cnt).sum::<i32>(), 1);
    assert!(status.iter().all(|server| server.silent_ms >= 0), "{status:?}");
    assert_eq!(
        status[1].range_server.as_ref().unwrap().advertise_addr,
        scripted[1].address
    );
    scripted[2].end();
    drop(second);
    let deadline = Instant::now() + PATIENCE;
    while create(&mut client, 3, 2).is_ok() {
        assert!(Instant::now() < deadline, "one server acknowledges for two");
    }
    assert_eq!(
        create(&mut client, 3, 2),
        Err(ErrorCode::UNSUPPORTED_OPERATION),
        "the other one that is up does not replicate"
    );
    assert_eq!(create(&mut client, 3, 1).unwrap().servers.len(), 1);
    scripted[1].end();
    scripted[0].end();
    drop((first, _old));
    until("nobody", || {
        (create(&mut client, 3, 2) == Err(ErrorCode::PD_NO_AVAILABLE_RS)).then_some(())
    });
}

#[test]
fn a_range_server_in_the_process_of_its_placement_driver_is_not_emptied() {
    let server = sbp_e2e::servers::start(None);
    let mut peer = Peer::connect(&server);
    let mut want = |server_id, wanted| {
        let request = ReportMetricsRequest {
            range_server: Some(RangeServer {
                server_id,
                ..RangeServer::default()
            }),
            wanted,
            ..ReportMetricsRequest::default()
        };
        let (answer, _): (ReportMetricsResponse, _) = peer.call(&request, b"");
        answer.status
    };
    let refused = want(ServerId(1), ServerState::DRAINING);
    assert_eq!(refused.code, ErrorCode::UNSUPPORTED_OPERATION);
    assert!(
        refused.message.contains("in the process of its placement driver"),
        "{refused}"
    );
    assert_eq!(want(ServerId(2), ServerState::DRAINING).code, ErrorCode::NOT_FOUND);
    assert_eq!(want(ServerId(2), ServerState(9)).code, ErrorCode::INVALID_REQUEST);
}

#[test]
fn a_range_server_keeps_the_servers_of_its_ranges_and_where_they_are() {
    const STREAM: StreamId = StreamId(3);
    let directory = tempfile::tempdir().unwrap();
    let scripted = Scripted::start();
    let replica = |(server_id, address, is_primary): (ServerId, &str, bool)| ReplicaServer {
        range_server: Some(RangeServer {
            server_id,
            advertise_addr: address.to_owned(),
            ..RangeServer::default()
        }),
        is_primary,
        ..ReplicaServer::default()
    };
    let set = [
        (ServerId(8), "127.0.0.1:9", true),
        (GIVEN, "", false),
        (ServerId(9), "127.0.0.1:10", false),
    ];
    let range = Range {
        stream_id: STREAM,
        range_index: RangeIndex(0),
        start_offset: Offset(0),
        epoch: Some(Epoch(0)),
        ack_count: Some(3),
        servers: set.map(replica).into(),
        ..Range::default()
    };
    scripted.change(|known| known.streams = [(STREAM, vec![range])].into());
    let mut answers = Vec::new();
    for start in 0..2 {
        let server = range_server(directory.path(), &scripted);
        let mut peer = Peer::connect(&server);
        let held = until("the range", || peer.describe_range(STREAM, 0).ok());
        let told = servers(&held);
        let own = (GIVEN.0, server.address().to_owned(), false);
        assert_eq!(
            told,
            [
                (8, "127.0.0.1:9".to_owned(), true),
                own,
                (9, "127.0.0.1:10".to_owned(), false)
            ],
            "start {start}"
        );
        answers.push(held.ack_count);
        // The second time it hears nothing, and goes by what it kept.
        scripted.change(|known| known.silent = true);
    }
    assert_eq!(answers, [Some(3); 2]);
    scripted.wait("the list", |known| {
        known.calls.contains(&OpCode::LIST_RANGES).then_some(())
    });
}
