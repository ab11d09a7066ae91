//! Damage that nobody reads is found all the same.
use std::time::Instant;

use sbp_e2e::damage::{damage, sealed_records, watchful_config};
use sbp_e2e::peer::{Peer, fetch_request, from};
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
