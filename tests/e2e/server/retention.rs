//! Streams that keep only so much for only so long, over a socket.
use std::path::Path;
use std::time::{Duration, Instant};

use sbp_e2e::admin::{create_kept, seal};
use sbp_e2e::batches::{raw_batch, told};
use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::config;
use sbp_e2e::wait::PATIENCE;
use sbp_messages::{ErrorCode, FetchInfo, FetchResponse, SealKind};
use sbp_server::{Server, ServerConfig};
use sbp_types::StreamId;

fn start(directory: &Path) -> Server {
    Server::start(ServerConfig {
        retention_interval: Duration::from_millis(20),
        segment_bytes: Some(1 << 20),
        ..config(Some(directory))
    })
    .unwrap()
}

/// Where a stream begins and ends.
fn bounds(peer: &mut Peer, stream: StreamId) -> (i64, i64) {
    let positions = FetchInfo {
        batch_max_bytes: FetchInfo::POSITIONS_ONLY,
        ..from(stream, -2)
    };
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[positions]), b"");
    let result = &response.fetch_responses[0];
    assert!(result.status.is_success(), "{}", result.status);
    (told(result.start_offset), told(result.high_watermark))
}

/// Looks until the stream begins where it should.
fn wait_for_start(peer: &mut Peer, stream: StreamId, expected: i64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (start, _) = bounds(peer, stream);
        if start == expected {
            return;
        }
        assert!(start < expected, "stream {stream} begins at {start}, beyond {expected}");
        assert!(Instant::now() < deadline, "stream {stream} still begins at {start}");
        std::thread::yield_now();
    }
}

fn used(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap();
    // A file may go while it is looked at.
    files
        .filter_map(|file| file.and_then(|file| file.metadata()).ok())
        .map(|file| file.len())
        .sum()
}

#[test]
fn by_size_the_last_bytes_stay_over_all_ranges() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut peer = Peer::connect(&server);
    let each = i64::try_from(raw_batch(&[0; 1_000]).len()).unwrap();
    let small = create_kept(&mut peer, 10 * each, 0);
    let whole = peer.create("whole");
    for n in 0..50 {
        peer.store(small, &[0; 1_000]);
        peer.store(whole, &[0; 1_000]);
        if n == 44 {
            seal(&mut peer, small, 0, SealKind::PLACEMENT_DRIVER);
        }
    }
    wait_for_start(&mut peer, small, 40);
    assert_eq!(bounds(&mut peer, whole), (0, 50));
    let (response, _): (FetchResponse, _) = peer.call(&fetch_request(0, 0, &[from(small, 39)]), b"");
    assert_eq!(
        response.fetch_responses[0].status.code,
        ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS
    );
    assert_eq!(peer.fetch_all(small, 40).len(), 5, "the rest of the first range");
    assert_eq!(peer.fetch_all(small, 45).len(), 5, "the second range");
    for _ in 0..10 {
        peer.store(small, &[0; 1_000]);
    }
    wait_for_start(&mut peer, small, 50);
    server.shutdown().unwrap();
    let server = start(directory.path());
    let mut peer = Peer::connect(&server);
    assert_eq!(bounds(&mut peer, small), (50, 60), "also after a restart");
    assert_eq!(bounds(&mut peer, whole), (0, 50));
}

#[test]
fn by_age_old_records_go_and_offsets_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut peer = Peer::connect(&server);
    let stream = create_kept(&mut peer, 0, 50);
    for _ in 0..5 {
        peer.store(stream, b"old soon");
    }
    seal(&mut peer, stream, 0, SealKind::PLACEMENT_DRIVER);
    peer.store(stream, b"old soon");
    wait_for_start(&mut peer, stream, 6);
    assert_eq!(peer.store(stream, b"new"), 6);
    wait_for_start(&mut peer, stream, 7);
}

#[test]
fn the_disk_gets_back_what_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut peer = Peer::connect(&server);
    let small = create_kept(&mut peer, 1_000_000, 0);
    let whole = peer.create("whole");
    for n in 0..61 {
        peer.store(small, &vec![1; 500_000]);
        if n % 10 == 0 {
            peer.store(whole, &[n; 10]);
        }
    }
    wait_for_start(&mut peer, small, 59);
    let deadline = Instant::now() + PATIENCE;
    while used(directory.path()) > 12_000_000 {
        assert!(Instant::now() < deadline, "{} bytes are left", used(directory.path()));
        std::thread::yield_now();
    }
    println!(
        "31 MB appended, 1 MB kept: {} bytes on the disk",
        used(directory.path())
    );
    let everything = |peer: &mut Peer| {
        assert_eq!(bounds(peer, small), (59, 61));
        assert_eq!(peer.fetch_all(small, 59).len(), 2);
        assert_eq!(peer.fetch_all(whole, 0).len(), 7, "its neighbours went, it did not");
    };
    everything(&mut peer);
    server.shutdown().unwrap();
    let server = start(directory.path());
    everything(&mut Peer::connect(&server));
}
