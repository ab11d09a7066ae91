//! A placement driver whose metadata were put back from an older copy.

use std::fs;

use sbp_e2e::admin::{created, range_id, stream_named};
use sbp_e2e::peer::Peer;
use sbp_e2e::servers::{config, copy_all};
use sbp_e2e::wait::until;
use sbp_frame::Flags;
use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, ErrorCode, Message,
    RangeServerStatus, SealKind, SealRangesRequest, SealRangesResponse, Status, Stream, SystemErrorResponse,
};
use sbp_server::{Roles, Server, ServerConfig};
use sbp_types::StreamId;

use super::roles::placement_driver;

/// Makes a stream, once a range server is there for it.
fn create(placement: &Server, stream: &Stream) -> StreamId {
    let mut driver = Peer::connect(placement);
    until("a range server", || {
        let (made, _, code) = created(&mut driver, vec![stream.clone()]).remove(0);
        (code == ErrorCode::NONE).then_some(made.stream_id)
    })
}

/// What becomes of a seal of the stream's first range: of the request as a whole, or of its entry.
fn asked_to_seal(driver: &mut Peer, stream: StreamId) -> Status {
    let request = SealRangesRequest {
        ranges: vec![range_id(stream, 0)],
        kind: SealKind::PLACEMENT_DRIVER,
        ..SealRangesRequest::default()
    };
    let call = driver.send(&request, b"");
    let frame = driver.recv();
    assert_eq!(frame.call_id, call);
    if frame.flags.contains(Flags::SYSTEM_ERROR) {
        return SystemErrorResponse::decode(&frame.header).unwrap().status;
    }
    let mut answer = SealRangesResponse::decode(&frame.header).unwrap();
    answer.seal_responses.remove(0).status
}

#[test]
fn a_placement_driver_with_an_older_copy_of_its_metadata_is_refused_by_name_until_it_has_the_newest_ones() {
    let directory = tempfile::tempdir().unwrap();
    let [of_driver, older, newest] = ["pd", "older", "newest"].map(|name| directory.path().join(name));
    let mut placement = placement_driver(&of_driver, "127.0.0.1:0");
    let address = placement.address().to_owned();
    let ranges = Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![address.clone()],
        },
        listen: "127.0.0.1:0".to_owned(),
        ..config(Some(&directory.path().join("rs")))
    })
    .unwrap();
    let mut here = Peer::connect(&ranges);
    let early = create(&placement, &stream_named("early"));
    assert_eq!(here.store(early, b"x"), 0);
    drop(placement);
    copy_all(&of_driver, &older);
    // What is decided from here on is not in the copy.
    let mut late = StreamId(0);
    for name in ["late", "later"] {
        placement = placement_driver(&of_driver, &address);
        late = create(&placement, &stream_named(name));
        assert_eq!(here.store(late, b"y"), 0);
        drop(placement);
    }
    fs::rename(&of_driver, &newest).unwrap();
    fs::rename(&older, &of_driver).unwrap();
    placement = placement_driver(&of_driver, &address);
    let mut driver = Peer::connect(&placement);
    let refused = until("the range server is asked", || {
        let status = asked_to_seal(&mut driver, early);
        assert!(!status.is_success());
        (status.code == ErrorCode::PD_NOT_LEADER).then_some(status)
    });
    assert!(refused.message.contains("older copy"), "{refused}");
    for stream in [early, late] {
        assert_eq!(here.fetch_all(stream, 0).len(), 1, "stream {stream}");
        here.store(stream, b"goes on");
    }
    drop((driver, placement));
    fs::rename(&of_driver, &older).unwrap();
    fs::rename(&newest, &of_driver).unwrap();
    placement = placement_driver(&of_driver, &address);
    let mut driver = Peer::connect(&placement);
    until("the range server is there", || {
        asked_to_seal(&mut driver, early).is_success().then_some(())
    });
    assert_eq!(here.fetch_all(late, 0).len(), 2);
}

/// The only range server, as the placement driver tells of it.
fn status(driver: &mut Peer) -> RangeServerStatus {
    let request = DescribePlacementDriverClusterRequest::default();
    let (answer, _): (DescribePlacementDriverClusterResponse, _) = driver.call(&request, b"");
    let mut servers = answer.cluster.unwrap().range_servers.unwrap();
    assert_eq!(servers.len(), 1);
    servers.remove(0)
}

#[test]
fn what_a_range_server_keeps_and_the_placement_driver_does_not_know_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let [of_driver, older] = ["pd", "older"].map(|name| directory.path().join(name));
    let mut placement = placement_driver(&of_driver, "127.0.0.1:0");
    let address = placement.address().to_owned();
    let ranges = Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![address.clone()],
        },
        listen: "127.0.0.1:0".to_owned(),
        ..config(Some(&directory.path().join("rs")))
    })
    .unwrap();
    let mut here = Peer::connect(&ranges);
    let early = create(&placement, &stream_named("early"));
    here.store(early, b"x");
    drop(placement);
    copy_all(&of_driver, &older);
    placement = placement_driver(&of_driver, &address);
    let late = create(&placement, &stream_named("late"));
    here.store(late, &[7; 1_000]);
    let mut driver = Peer::connect(&placement);
    let found = until("a report", || {
        Some(status(&mut driver)).filter(|found| found.disk_free_space >= 0)
    });
    assert_eq!((found.withheld_range_cnt, found.withheld_bytes), (0, 0));
    drop((driver, placement));
    fs::remove_dir_all(&of_driver).unwrap();
    fs::rename(&older, &of_driver).unwrap();
    // Started more often than the newest one was, it is followed.
    for _start in 0..3 {
        drop(placement_driver(&of_driver, &address));
    }
    placement = placement_driver(&of_driver, &address);
    let mut driver = Peer::connect(&placement);
    let found = until("what is kept", || {
        Some(status(&mut driver)).filter(|found| found.withheld_range_cnt > 0)
    });
    assert_eq!(found.withheld_range_cnt, 1, "the other one is known");
    assert!((1_000..2_000).contains(&found.withheld_bytes), "{found:?}");
    assert_eq!(here.append(late, b"y").status.code, ErrorCode::NOT_FOUND);
    here.store(early, b"goes on");
}
