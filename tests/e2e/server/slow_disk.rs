//! A disk that takes its time over what nobody asked for: connections notice nothing.
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sbp_e2e::admin::delete;
use sbp_e2e::batches::raw_batch;
use sbp_e2e::peer::{Peer, append_request};
use sbp_e2e::servers::config;
use sbp_frame::OpCode;
use sbp_server::{Durability, Server, ServerConfig};
use sbp_sim::{Operation, SimFileSystem};

fn start(disk: &SimFileSystem, durability: Durability) -> Server {
    Server::start(ServerConfig {
        durability,
        retention_interval: Duration::from_millis(20),
        segment_bytes: Some(1 << 20),
        files: Some(Arc::new(disk.clone())),
        ..config(Some(Path::new("/data")))
    })
    .unwrap()
}

#[test]
fn while_a_checkpoint_is_synced_appends_pings_and_reads_go_on() {
    for durability in [Durability::Fsync, Durability::None] {
        let disk = SimFileSystem::new();
        let server = start(&disk, durability);
        let mut peer = Peer::connect(&server);
        let (gone, kept) = (peer.create("gone"), peer.create("kept"));
        for _ in 0..4 {
            peer.store(gone, &[1; 400_000]);
        }
        peer.store(kept, b"first");
        // What a deletion leaves over goes with a checkpoint.
        let held = disk.hold(Operation::Sync, "checkpoint");
        delete(&mut peer, gone);
        held.wait_until_reached();
        for n in 1..20 {
            assert_eq!(peer.store(kept, b"more"), n);
            let ping = peer.send_raw(OpCode::PING, b"", b"there?");
            assert_eq!(peer.recv().call_id, ping);
            assert_eq!(peer.fetch_all(kept, n).len(), 1);
        }
        assert_eq!(server.stats().appends, 24);
        let another = Peer::connect(&server).create("another");
        assert_eq!(peer.store(another, b"first"), 0);
        drop(held);
        server.shutdown().unwrap();
        let server = start(&disk, durability);
        assert_eq!(Peer::connect(&server).fetch_all(kept, 0).len(), 20);
    }
}

#[test]
fn a_thread_that_is_stopped_while_the_server_closes_is_waited_for() {
    let disk = SimFileSystem::new();
    let server = start(&disk, Durability::None);
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    // Until the connection's own thread writes what it appends: then it is that thread that stands still.
    for n in 0..50 {
        assert_eq!(peer.store(stream, b"before"), n);
    }
    let held = disk.hold(Operation::Write, "segment-");
    let batch = raw_batch(b"last");
    peer.send(&append_request(&[(stream, batch.len())]), &batch);
    held.wait_until_reached();
    let closing = std::thread::spawn(move || server.shutdown());
    // Longer than connections and threads have together.
    std::thread::sleep(Duration::from_secs(8));
    assert!(!closing.is_finished(), "the append is under way");
    drop(held);
    closing.join().unwrap().unwrap();
    let server = start(&disk, Durability::None);
    assert_eq!(
        Peer::connect(&server).fetch_all(stream, 0).len(),
        51,
        "what was begun is there"
    );
}
