//! Damage that nobody reads is found all the same.
use std::time::Instant;

use rustix::process::Signal;
use sbp_e2e::damage::{damage, damage_head, sealed_records, watchful_config};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::process::Setup;
use sbp_e2e::servers::start;
use sbp_e2e::wait::PATIENCE;
use sbp_messages::{ErrorCode, FetchResponse};
use sbp_server::Server;

#[test]
fn damage_that_nobody_reads_is_found_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(watchful_config(directory.path())).unwrap();
    let mut peer = Peer::connect(&server);
    let stream = sealed_records(&mut peer, &[b"a record that nobody ever reads again", b"one behind it"]);
    assert_eq!(server.stats().damaged_ranges, 0);
    damage(directory.path(), b"a record that nobody");
    let deadline = Instant::now() + PATIENCE;
    while server.stats().damaged_ranges == 0 {
        assert!(Instant::now() < deadline, "the damage is not found");
        std::thread::yield_now();
    }
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    assert_eq!(response.fetch_responses[0].status.code, ErrorCode::RS_DATA_CORRUPTED);
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 1)]), b"");
    assert_eq!(response.fetch_responses[0].record_count, 1, "what is sound is served");
    server.shutdown().unwrap();
}

/// The log of a server that was killed does not know where a range began; the metadata do.
#[test]
fn what_a_range_lost_at_its_beginning_is_told_from_the_start_on() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Setup::new(directory.path()).start();
    let mut peer = Peer::dial(&serving.address);
    let stream = peer.create("orders");
    for body in ["the first record", "the second record", "the third record"] {
        peer.store(stream, body.as_bytes());
    }
    serving.end(Signal::KILL);
    damage_head(directory.path(), b"the first record");
    for _restart in 0..2 {
        let server = start(Some(directory.path()));
        assert_eq!(server.stats().damaged_ranges, 1);
        let mut peer = Peer::connect(&server);
        let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(stream, 0)]), b"");
        assert_eq!(response.fetch_responses[0].status.code, ErrorCode::RS_DATA_CORRUPTED);
        assert_eq!(peer.fetch_all(stream, 1).len(), 2, "what is sound is served");
        server.shutdown().unwrap();
    }
}
