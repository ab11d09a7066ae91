//! A placement driver and range servers apart, which speak the protocol with each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sbp_e2e::admin::{Admin, bounds, created, stream_named, try_seal};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::config;
use sbp_e2e::wait::until;
use sbp_frame::OpCode;
use sbp_messages::{
    ClientRole, CreateRangeRequest, CreateRangeResponse, CreateStreamsRequest, DeleteStreamsRequest,
    DeleteStreamsResponse, DescribeRangesRequest, DescribeRangesResponse, ErrorCode, FetchResponse, HeartbeatRequest,
    HeartbeatResponse, Range, RangeId, ReplicaServer, SealKind, SealRangesRequest, Stream, StreamRanges,
    SyncRangesRequest, SyncRangesResponse, TrimStreamsRequest, TrimStreamsResponse, TrimmedStream,
    UpdateStreamsRequest, UpdateStreamsResponse,
};
use sbp_server::{Roles, Server, ServerConfig, StartError};
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId};

use super::replicas::range_servers;

pub(crate) fn placement_driver(directory: &Path, listen: &str) -> Server {
    Server::start(ServerConfig {
        roles: Roles::PlacementDriver,
        listen: listen.to_owned(),
        ..config(Some(directory))
    })
    .unwrap()
}

fn range_server_config(directory: &Path, listen: &str, placement_driver: &str) -> ServerConfig {
    ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![placement_driver.to_owned()],
        },
        listen: listen.to_owned(),
        report_interval: Duration::from_millis(100),
        retention_interval: Duration::from_millis(100),
        ..config(Some(directory))
    }
}

fn range_server(directory: &Path, placement_driver: &Server) -> Server {
    let config = range_server_config(directory, "127.0.0.1:0", placement_driver.address());
    Server::start(config).unwrap()
}

fn try_create(peer: &mut Peer, stream: Stream) -> Result<(StreamId, Range), ErrorCode> {
    match created(peer, vec![stream]).remove(0) {
        (stream, Some(range), ErrorCode::NONE) => Ok((stream.stream_id, range)),
        (.., code) => Err(code),
    }
}

/// Makes a stream, on whichever server; waits for one.
fn create(peer: &mut Peer, name: &str) -> (StreamId, Range) {
    until("a range server", || match try_create(peer, stream_named(name)) {
        Ok(created) => Some(created),
        Err(code) => {
            assert_eq!(code, ErrorCode::PD_NO_AVAILABLE_RS);
            None
        }
    })
}

fn holder(range: &Range) -> ServerId {
    range.primary().unwrap().server_id
}

fn greet(peer: &mut Peer, role: ClientRole) -> HeartbeatResponse {
    let request = HeartbeatRequest {
        client_role: role,
        protocol_revision: 1,
        ..Default::default()
    };
    peer.call(&request, b"").0
}

/// A placement driver with two range servers.
struct Three {
    directory: tempfile::TempDir,
    placement: Server,
    ranges: BTreeMap<ServerId, Server>,
}

impl Three {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let placement = placement_driver(&directory.path().join("pd"), "127.0.0.1:0");
        let ranges = ["a", "b"].map(|name| {
            let server = range_server(&directory.path().join(name), &placement);
            (id_of(&server), server)
        });
        Self {
            directory,
            placement,
            ranges: BTreeMap::from(ranges),
        }
    }

    fn peer(&self) -> Peer {
        Peer::connect(&self.placement)
    }

    fn at(&self, range: &Range) -> Peer {
        Peer::connect(&self.ranges[&holder(range)])
    }

    /// A range server that was taken down, back at the same address.
    fn start_again(&self, id: ServerId, address: &str) -> Server {
        let names = ["a", "b"].map(|name| self.directory.path().join(name));
        let directory = &names[usize::try_from(id.0 - 1).unwrap()];
        Server::start(range_server_config(directory, address, self.placement.address())).unwrap()
    }
}

fn id_of(server: &Server) -> ServerId {
    let answer = greet(&mut Peer::connect(server), ClientRole::CLIENT);
    answer.range_server.unwrap().server_id
}

#[test]
fn two_range_servers_share_the_streams_and_each_serves_its_own() {
    let three = Three::start();
    assert_eq!(
        three.ranges.keys().copied().collect::<Vec<_>>(),
        [ServerId(1), ServerId(2)]
    );
    let mut driver = three.peer();
    let mut streams = Vec::new();
    until("the second server", || {
        let name = format!("s{}", streams.len());
        streams.push(create(&mut driver, &name));
        let on = |id| {
            streams
                .iter()
                .filter(|(_, range)| holder(range) == ServerId(id))
                .count()
        };
        (on(1) >= 3 && on(2) >= 3).then_some(())
    });
    for (stream, range) in &streams {
        assert_eq!(
            range.primary().unwrap().advertise_addr,
            three.ranges[&holder(range)].address()
        );
        let mut here = three.at(range);
        assert_eq!(here.store(*stream, b"hello"), 0);
        assert_eq!(here.fetch_all(*stream, 0).len(), 1);
        assert!(three.ranges[&holder(range)].stats().streams >= 3);
        let (_, elsewhere) = three.ranges.iter().find(|(id, _)| **id != holder(range)).unwrap();
        let refused = Peer::connect(elsewhere).append(*stream, b"lost");
        assert_eq!(refused.status.code, ErrorCode::RANGE_NOT_FOUND);
    }
    let answer: DescribeRangesResponse = driver
        .call(
            &DescribeRangesRequest {
                ranges: streams
                    .iter()
                    .map(|(stream_id, _)| RangeId {
                        stream_id: *stream_id,
                        ..RangeId::default()
                    })
                    .collect(),
                ..Default::default()
            },
            b"",
        )
        .0;
    for result in answer.describe_responses {
        let described = result.range.unwrap_or_else(|| panic!("{}", result.status));
        assert_eq!(described.next_offset, Offset(1), "the holder was asked");
    }
}

#[test]
fn a_seal_goes_through_the_placement_driver_to_the_server_that_holds_the_range() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let mut here = three.at(&range);
    for offset in 0..3 {
        assert_eq!(here.store(stream, b"x"), offset);
    }
    let next = try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!(
        (next.range_index, next.start_offset, next.epoch),
        (RangeIndex(1), Offset(3), Some(Epoch(1)))
    );
    assert_eq!(
        holder(&next),
        holder(&range),
        "the next range stays where the last one is"
    );
    let again = try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!((again.range_index, again.end_offset), (RangeIndex(1), None));
    assert_eq!(
        here.store(stream, b"y"),
        3,
        "it was installed before the seal was answered"
    );
    assert_eq!(here.fetch_all(stream, 3).len(), 1);
    let ranges = driver.ranges(stream);
    let ends: Vec<_> = ranges.iter().map(|range| range.end_offset).collect();
    assert_eq!(ends, [Some(Offset(3)), None]);
    // A range server alone seals for range servers only, and answers with the sealed range.
    let sealed = try_seal(&mut here, stream, 1, SealKind::RANGE_SERVER).unwrap();
    assert_eq!(
        (sealed.range_index, sealed.end_offset),
        (RangeIndex(1), Some(Offset(4)))
    );
    assert_eq!(here.append(stream, b"z").status.code, ErrorCode::RANGE_ALREADY_SEALED);
    let next = try_seal(&mut driver, stream, 1, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!((next.range_index, next.start_offset), (RangeIndex(2), Offset(4)));
    assert_eq!(here.store(stream, b"z"), 4);
    let refused = here.refused(
        &SealRangesRequest {
            ranges: vec![RangeId::default()],
            kind: SealKind::PLACEMENT_DRIVER,
            ..Default::default()
        },
        b"",
    );
    assert_eq!(refused, ErrorCode::UNSUPPORTED_OPERATION);
}

#[test]
fn each_role_refuses_what_the_other_one_serves() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let append = sbp_e2e::peer::append_request(&[(stream, 0)]);
    assert_eq!(driver.refused(&append, b""), ErrorCode::UNSUPPORTED_OPERATION);
    let fetch = fetch_request(0, 0, &[from(stream, 0)]);
    assert_eq!(driver.refused(&fetch, b""), ErrorCode::UNSUPPORTED_OPERATION);
    let mut here = three.at(&range);
    let create = CreateStreamsRequest {
        streams: vec![stream_named("t")],
        ..Default::default()
    };
    assert_eq!(here.refused(&create, b""), ErrorCode::UNSUPPORTED_OPERATION);
    let delete = DeleteStreamsRequest {
        streams: vec![Stream {
            stream_id: stream,
            ..Stream::default()
        }],
        ..Default::default()
    };
    assert_eq!(here.refused(&delete, b""), ErrorCode::UNSUPPORTED_OPERATION);
    let call = here.send_raw(OpCode::LIST_RANGES, b"", b"");
    assert_eq!(here.expect_system_error(call), ErrorCode::INVALID_REQUEST);
    assert_eq!(here.store(stream, b"still here"), 0);
    let offered = |peer: &mut Peer| {
        let request = HeartbeatRequest {
            protocol_revision: 1,
            features: ["names", "bounded-fetch", "server-id"]
                .map(|name| sbp_messages::Feature::new(name, "1"))
                .to_vec(),
            ..Default::default()
        };
        let (answer, _): (HeartbeatResponse, _) = peer.call(&request, b"");
        let names = answer.features.into_iter().map(|feature| feature.name);
        names.filter(|name| !name.starts_with("max-")).collect::<Vec<_>>()
    };
    assert_eq!(offered(&mut driver), ["names", "bounded-fetch"], "it has no number");
    assert_eq!(offered(&mut here), ["names", "bounded-fetch", "server-id"]);
}

#[test]
fn sync_changes_something_only_for_a_placement_driver() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let me = range.primary().unwrap().clone();
    let told = |index: i32, epoch: i64| SyncRangesRequest {
        stream_ranges: vec![StreamRanges {
            stream_id: stream,
            ranges: vec![Range {
                stream_id: stream,
                range_index: RangeIndex(index),
                epoch: Some(Epoch(epoch)),
                servers: vec![ReplicaServer {
                    range_server: Some(me.clone()),
                    is_primary: true,
                    ..ReplicaServer::default()
                }],
                ..Range::default()
            }],
        }],
        ..Default::default()
    };
    let mut client = three.at(&range);
    greet(&mut client, ClientRole::CLIENT);
    let (answer, _): (SyncRangesResponse, _) = client.call(&told(7, 0), b"");
    let held: Vec<_> = answer.sync_responses[0]
        .ranges
        .iter()
        .map(|range| range.range_index)
        .collect();
    assert_eq!(held, [RangeIndex(0)], "it is told what is here, and nothing is changed");
    let mut other_driver = three.at(&range);
    greet(&mut other_driver, ClientRole::PLACEMENT_DRIVER);
    let (answer, _): (SyncRangesResponse, _) = other_driver.call(&told(0, -1), b"");
    assert_eq!(answer.sync_responses[0].status.code, ErrorCode::EXPIRED_RANGE_EPOCH);
    let (answer, _): (SyncRangesResponse, _) = other_driver.call(&told(0, 0), b"");
    assert_eq!(answer.sync_responses[0].status.code, ErrorCode::NONE);
    let (answer, _): (SyncRangesResponse, _) = driver.call(&told(7, 0), b"");
    assert!(
        answer.sync_responses[0].status.is_success(),
        "a placement driver answers with what is stored"
    );
    assert!(driver.ranges(stream).len() == 1);
}

#[test]
fn a_trim_and_a_deletion_reach_the_server_that_holds_the_stream() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let mut here = three.at(&range);
    for offset in 0..4 {
        assert_eq!(here.store(stream, b"x"), offset);
    }
    try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!(here.store(stream, b"y"), 4);
    let trim = |offset| TrimStreamsRequest {
        trimmed_streams: vec![TrimmedStream {
            stream_id: stream,
            trim_offset: Offset(offset),
        }],
        ..Default::default()
    };
    let (answer, _): (TrimStreamsResponse, _) = driver.call(&trim(4), b"");
    assert!(answer.trim_responses[0].status.is_success(), "{answer:?}");
    assert_eq!(
        answer.trim_responses[0].range.as_ref().unwrap().range_index,
        RangeIndex(1)
    );
    let (answer, _): (FetchResponse, _) = here.call(&fetch_request(0, 0, &[from(stream, 3)]), b"");
    let result = &answer.fetch_responses[0];
    assert_eq!(result.status.code, ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS);
    assert_eq!(result.start_offset, Some(Offset(4)));
    assert_eq!(here.fetch_all(stream, 4).len(), 1);
    let delete = DeleteStreamsRequest {
        streams: vec![Stream {
            stream_id: stream,
            ..Stream::default()
        }],
        ..Default::default()
    };
    let (answer, _): (DeleteStreamsResponse, _) = driver.call(&delete, b"");
    assert!(answer.delete_responses[0].status.is_success());
    assert_eq!(here.append(stream, b"z").status.code, ErrorCode::NOT_FOUND);
    let (answer, _): (DeleteStreamsResponse, _) = driver.call(&delete, b"");
    assert_eq!(answer.delete_responses[0].status.code, ErrorCode::NOT_FOUND);
}

#[test]
fn a_range_server_that_is_back_knows_where_a_trimmed_stream_begins() {
    let mut three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let mut here = three.at(&range);
    for offset in 0..2 {
        assert_eq!(here.store(stream, b"x"), offset);
    }
    try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!(here.store(stream, b"y"), 2);
    sbp_e2e::admin::trim(&mut driver, stream, 2);
    assert_eq!(driver.ranges(stream).len(), 1, "the first range is gone");
    drop(here);
    let down = three.ranges.remove(&holder(&range)).unwrap();
    let address = down.address().to_owned();
    drop(down);
    let back = three.start_again(holder(&range), &address);
    let mut here = Peer::connect(&back);
    let mut fetch = |offset| {
        let (mut answer, _): (FetchResponse, _) = here.call(&fetch_request(0, 0, &[from(stream, offset)]), b"");
        answer.fetch_responses.remove(0)
    };
    let earliest = until("the beginning", || {
        let result = fetch(-2);
        assert!(
            [ErrorCode::NONE, ErrorCode::RANGE_NOT_FOUND].contains(&result.status.code),
            "{result:?}"
        );
        result.status.is_success().then_some(result)
    });
    assert_eq!(
        (earliest.base_offset, earliest.start_offset),
        (Some(Offset(2)), Some(Offset(2)))
    );
    let below = fetch(1);
    assert_eq!(
        (below.status.code, below.start_offset),
        (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, Some(Offset(2)))
    );
}

#[test]
fn what_a_range_server_missed_while_it_was_down_it_learns_when_it_is_back() {
    let mut three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let (doomed, doomed_range) = until("a second stream there", || {
        let created = create(&mut driver, "");
        (holder(&created.1) == holder(&range)).then_some(created)
    });
    assert_eq!(three.at(&range).store(stream, b"x"), 0);
    assert_eq!(three.at(&doomed_range).store(doomed, b"x"), 0);
    let id = holder(&range);
    let down = three.ranges.remove(&id).unwrap();
    let address = down.address().to_owned();
    drop(down);
    // Before, a seal would be on its way to the server, and could be carried out when that is back.
    until("the end of the server is known", || {
        let servers = range_servers(&mut driver);
        servers.iter().any(|server| !server.is_up).then_some(())
    });
    assert_eq!(
        try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER),
        Err(ErrorCode::PD_NO_AVAILABLE_RS)
    );
    let delete = DeleteStreamsRequest {
        streams: vec![Stream {
            stream_id: doomed,
            ..Stream::default()
        }],
        ..Default::default()
    };
    let (answer, _): (DeleteStreamsResponse, _) = driver.call(&delete, b"");
    assert!(answer.delete_responses[0].status.is_success(), "{answer:?}");
    let back = three.start_again(id, &address);
    assert_eq!(id_of(&back), id, "it keeps its number");
    until("the deletion", || {
        let refused = Peer::connect(&back).append(doomed, b"z").status.code;
        (refused == ErrorCode::NOT_FOUND).then_some(())
    });
    assert_eq!(Peer::connect(&back).store(stream, b"y"), 1);
    let next = until("the seal", || {
        try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).ok()
    });
    assert_eq!((next.range_index, next.start_offset), (RangeIndex(1), Offset(2)));
    assert_eq!(Peer::connect(&back).store(stream, b"z"), 2);
    drop(back);
}

#[test]
fn range_servers_serve_on_while_the_placement_driver_is_down_and_find_it_again() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let mut here = three.at(&range);
    assert_eq!(here.store(stream, b"x"), 0);
    let Three {
        directory,
        placement,
        ranges,
    } = three;
    let address = placement.address().to_owned();
    drop((driver, placement));
    assert_eq!(here.store(stream, b"y"), 1);
    let placement = placement_driver(&directory.path().join("pd"), &address);
    let mut driver = Peer::connect(&placement);
    assert_eq!(driver.ranges(stream).len(), 1);
    let next = until("the seal", || {
        try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).ok()
    });
    assert_eq!(next.start_offset, Offset(2));
    let (_, new) = create(&mut driver, "t");
    assert!(ranges.contains_key(&holder(&new)));
}

#[test]
fn retention_of_a_range_server_goes_through_its_placement_driver() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let mut here = three.at(&range);
    for offset in 0..4 {
        assert_eq!(here.store(stream, &[7; 1000]), offset);
    }
    let update = UpdateStreamsRequest {
        streams: vec![Stream {
            stream_id: stream,
            retention_bytes: 1,
            ..Stream::default()
        }],
        ..Default::default()
    };
    let (answer, _): (UpdateStreamsResponse, _) = driver.call(&update, b"");
    assert!(answer.update_responses[0].status.is_success(), "{answer:?}");
    let start = until("retention", || {
        let start = driver.ranges(stream)[0].start_offset;
        (start > Offset(0)).then_some(start)
    });
    assert_eq!(start, Offset(3), "the last record is what a limit of one byte keeps");
    until("the server", || {
        let (answer, _): (FetchResponse, _) = here.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
        (answer.fetch_responses[0].start_offset == Some(start)).then_some(())
    });
}

#[test]
fn a_directory_is_started_in_its_own_role_only() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    assert_eq!(three.at(&range).store(stream, b"x"), 0);
    let Three {
        directory,
        placement,
        ranges,
    } = three;
    drop((driver, placement, ranges));
    let refused = |roles: Roles, name: &str| {
        let config = ServerConfig {
            roles,
            ..config(Some(&directory.path().join(name)))
        };
        match Server::start(config) {
            Err(StartError::OtherRole { path, .. }) => assert!(path.ends_with(name)),
            other => panic!("{other:?}"),
        }
    };
    let range_server = || Roles::RangeServer {
        placement_driver: vec!["127.0.0.1:1".to_owned()],
    };
    refused(range_server(), "pd");
    let name = if holder(&range) == ServerId(1) { "a" } else { "b" };
    refused(Roles::PlacementDriver, name);
    refused(Roles::Both, name);
}

#[test]
fn a_range_server_without_a_number_says_whom_it_asked() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        default_timeout: Duration::from_millis(200),
        ..range_server_config(directory.path(), "127.0.0.1:0", "127.0.0.1:1")
    };
    match Server::start(config) {
        Err(error @ StartError::PlacementDriver { .. }) => {
            assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_with_both_roles_takes_other_range_servers_in() {
    let directory = tempfile::tempdir().unwrap();
    let both = Server::start(config(Some(&directory.path().join("both")))).unwrap();
    let mut driver = Peer::connect(&both);
    assert_eq!(id_of(&both), ServerId(1), "it has taken a number of its own");
    let (own, range) = create(&mut driver, "own");
    assert_eq!(holder(&range), ServerId(1));
    let other = range_server(&directory.path().join("other"), &both);
    assert_eq!(id_of(&other), ServerId(2));
    let mut count = 0;
    let (away, range) = until("a stream on the other server", || {
        count += 1;
        let created = create(&mut driver, &format!("s{count}"));
        (holder(&created.1) == ServerId(2)).then_some(created)
    });
    assert_eq!(range.primary().unwrap().advertise_addr, other.address());
    let mut there = Peer::connect(&other);
    assert_eq!(there.store(away, b"x"), 0);
    assert_eq!(driver.store(own, b"x"), 0);
    assert_eq!(driver.append(away, b"x").status.code, ErrorCode::RANGE_NOT_FOUND);
    let next = try_seal(&mut driver, away, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!((next.start_offset, holder(&next)), (Offset(1), ServerId(2)));
    assert_eq!(there.store(away, b"y"), 1);
    let next = try_seal(&mut driver, own, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!((next.start_offset, holder(&next)), (Offset(1), ServerId(1)));
}

#[test]
fn a_stream_can_be_made_as_soon_as_a_range_server_has_started() {
    let directory = tempfile::tempdir().unwrap();
    let placement = placement_driver(&directory.path().join("pd"), "127.0.0.1:0");
    let mut driver = Peer::connect(&placement);
    for life in 0..10 {
        let ranges = range_server(&directory.path().join("rs"), &placement);
        let (stream, _) = try_create(&mut driver, stream_named(&format!("s{life}"))).unwrap();
        assert_eq!(Peer::connect(&ranges).store(stream, b"x"), 0);
        drop(ranges);
        let mut tries = 0;
        until("its end", || {
            // Another name each time: one that was made while the server counted as up would be found again.
            tries += 1;
            let refused = try_create(&mut driver, stream_named(&format!("t{life}-{tries}"))).err();
            refused.map(|code| assert_eq!(code, ErrorCode::PD_NO_AVAILABLE_RS))
        });
    }
}

#[test]
fn a_start_waits_for_the_placement_driver_no_longer_than_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let placement = placement_driver(&directory.path().join("pd"), "127.0.0.1:0");
    let address = placement.address().to_owned();
    drop((range_server(&directory.path().join("rs"), &placement), placement));
    let start = |patience| {
        let config = ServerConfig {
            registration_timeout: patience,
            ..range_server_config(&directory.path().join("rs"), "127.0.0.1:0", &address)
        };
        let began = Instant::now();
        drop(Server::start(config).unwrap());
        began.elapsed()
    };
    assert!(start(Duration::from_millis(300)) > Duration::from_millis(300));
    // One that comes while the start waits is enough.
    let (_placement, waited) = std::thread::scope(|scope| {
        let starting = scope.spawn(|| start(Duration::from_secs(600)));
        let placement = placement_driver(&directory.path().join("pd"), &address);
        (placement, starting.join().unwrap())
    });
    assert!(waited < Duration::from_secs(60), "{waited:?}");
}

#[test]
fn a_range_server_starts_and_serves_without_its_placement_driver() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    assert_eq!(three.at(&range).store(stream, b"x"), 0);
    let Three {
        directory,
        placement,
        mut ranges,
    } = three;
    let address = placement.address().to_owned();
    let id = holder(&range);
    drop((driver, placement, ranges.remove(&id)));
    let name = if id == ServerId(1) { "a" } else { "b" };
    let config = ServerConfig {
        registration_timeout: Duration::from_millis(10),
        ..range_server_config(&directory.path().join(name), "127.0.0.1:0", &address)
    };
    let back = Server::start(config).unwrap();
    assert_eq!(id_of(&back), id);
    let mut here = Peer::connect(&back);
    assert_eq!(here.fetch_all(stream, 0).len(), 1);
    assert_eq!(here.store(stream, b"y"), 1);
    let unknown = here.append(StreamId(99), b"z").status.code;
    assert_eq!(unknown, ErrorCode::RANGE_NOT_FOUND, "nobody can be asked");
    let placement = placement_driver(&directory.path().join("pd"), &address);
    let mut driver = Peer::connect(&placement);
    let moved = until("its new address", || {
        let range = driver.ranges(stream).remove(0);
        (range.primary().unwrap().advertise_addr == back.address()).then_some(range)
    });
    assert_eq!(holder(&moved), id);
}

#[test]
fn a_sync_is_judged_by_what_is_stored_whatever_the_placement_driver_says() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let mut holder = three.at(&range);
    for n in 0..3 {
        assert_eq!(holder.store(stream, b"first range"), n);
    }
    let open = try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!(
        (open.range_index, open.epoch, open.start_offset),
        (RangeIndex(1), Some(Epoch(1)), Offset(3))
    );
    for n in 3..6 {
        assert_eq!(holder.store(stream, b"second range"), n);
    }
    let mut teller = three.at(&range);
    greet(&mut teller, ClientRole::PLACEMENT_DRIVER);
    let mut sync = |epoch, start| {
        let told = Range {
            epoch: Some(Epoch(epoch)),
            start_offset: Offset(start),
            ..open.clone()
        };
        let request = SyncRangesRequest {
            stream_ranges: vec![StreamRanges {
                stream_id: stream,
                ranges: vec![told],
            }],
            ..Default::default()
        };
        let (mut answer, _): (SyncRangesResponse, _) = teller.call(&request, b"");
        let result = answer.sync_responses.remove(0);
        let starts: Vec<_> = result.ranges.iter().map(|range| range.start_offset.0).collect();
        (result.status.code, starts)
    };
    assert_eq!(sync(0, 3), (ErrorCode::EXPIRED_RANGE_EPOCH, vec![]), "an older epoch");
    assert_eq!(
        sync(1, 7),
        (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, vec![]),
        "behind the end"
    );
    assert_eq!(sync(1, 3), (ErrorCode::NONE, vec![0, 3]), "nothing new");
    assert_eq!(sync(1, 5), (ErrorCode::NONE, vec![0, 5]), "a raised start");
    assert_eq!(sync(1, 4), (ErrorCode::NONE, vec![0, 5]), "which stays raised");
}

#[test]
fn where_an_open_range_ends_is_told_when_it_is_described_and_lists_say_where_it_begins() {
    let three = Three::start();
    let mut driver = three.peer();
    let (stream, range) = create(&mut driver, "s");
    let mut holder = three.at(&range);
    for n in 0..5 {
        assert_eq!(holder.store(stream, b"x"), n);
    }
    let (again, range) = try_create(&mut driver, stream_named("s")).unwrap();
    assert_eq!(
        (again, range.next_offset),
        (stream, Offset(0)),
        "CREATE_STREAMS, repeated"
    );
    let request = TrimStreamsRequest {
        trimmed_streams: vec![TrimmedStream {
            stream_id: stream,
            trim_offset: Offset(2),
        }],
        ..Default::default()
    };
    for _ in 0..2 {
        let (answer, _): (TrimStreamsResponse, _) = driver.call(&request, b"");
        let range = answer.trim_responses[0].range.as_ref().unwrap();
        assert_eq!(
            (range.start_offset, range.next_offset),
            (Offset(2), Offset(2)),
            "TRIM_STREAMS"
        );
    }
    let request = SyncRangesRequest {
        stream_ranges: vec![StreamRanges {
            stream_id: stream,
            ranges: Vec::new(),
        }],
        ..Default::default()
    };
    let (answer, _): (SyncRangesResponse, _) = driver.call(&request, b"");
    assert_eq!(answer.sync_responses[0].ranges[0].next_offset, Offset(2), "SYNC_RANGES");
    assert_eq!(driver.ranges(stream)[0].next_offset, Offset(2), "LIST_RANGES");
    let described = |driver: &mut Peer, index| bounds(&driver.describe_range(stream, index).unwrap());
    assert_eq!(described(&mut driver, -1), (0, 2, -1, 5), "DESCRIBE_RANGES");
    let open = try_seal(&mut driver, stream, 0, SealKind::PLACEMENT_DRIVER).unwrap();
    assert_eq!((open.range_index, open.next_offset), (RangeIndex(1), Offset(5)));
    for n in 5..8 {
        assert_eq!(holder.store(stream, b"y"), n);
    }
    let range = Range {
        stream_id: stream,
        range_index: RangeIndex(1),
        start_offset: Offset(5),
        epoch: Some(Epoch(1)),
        ..Range::default()
    };
    let request = CreateRangeRequest {
        range: Some(range),
        ..Default::default()
    };
    let (answer, _): (CreateRangeResponse, _) = driver.call(&request, b"");
    assert!(answer.status.is_success(), "{}", answer.status);
    assert_eq!(answer.range.unwrap().next_offset, Offset(5), "CREATE_RANGE, repeated");
    assert_eq!(described(&mut driver, 1), (1, 5, -1, 8), "DESCRIBE_RANGES");
    assert_eq!(
        driver.ranges(stream).iter().map(bounds).collect::<Vec<_>>(),
        [(0, 2, 5, 5), (1, 5, -1, 5)]
    );
}
