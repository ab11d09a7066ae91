//! Damage that nobody reads is found all the same.
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::config;
use sbp_e2e::wait::PATIENCE;
use sbp_messages::{ErrorCode, FetchResponse};
use sbp_server::{Server, ServerConfig};

/// Turns over a byte of the first record that holds this.
fn damage(directory: &Path, content: &[u8]) {
    for file in fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = fs::read(&path) else { continue };
        let Some(at) = bytes.windows(content.len()).position(|window| window == content) else {
            continue;
        };
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[bytes[at] ^ 1], at.try_into().unwrap()).unwrap();
        return;
    }
    panic!("the record is in no file");
}

#[test]
fn damage_that_nobody_reads_is_found_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(ServerConfig {
        scrub_interval: Duration::from_millis(5),
        segment_bytes: Some(1 << 20),
        ..config(Some(directory.path()))
    })
    .unwrap();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("quiet");
    peer.store(stream, b"a record that nobody ever reads again");
    peer.store(stream, b"one behind it");
    let other = peer.create("busy");
    // Until the first segment is sealed; the log keeps what it wrote lately in memory, so reading would prove nothing.
    for _ in 0..40 {
        peer.store(other, &[7; 60_000]);
    }
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
