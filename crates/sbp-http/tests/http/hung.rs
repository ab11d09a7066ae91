//! A disk that does not answer: seen while it lasts, and nothing that can be told without the disk waits for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sbp_e2e::access::{Names, hello};
use sbp_e2e::batches::raw_batch;
use sbp_e2e::peer::{Peer, append_request};
use sbp_e2e::servers::config;
use sbp_http::{HttpServer, ObservedServer};
use sbp_messages::ClientRole;
use sbp_server::{AccessConfig, Monitor, ServerConfig};
use sbp_sim::{Held, Operation, SimFileSystem};
use serde_json::Value;

use super::troubles::{begin_log, kinds, logged};
use super::{anywhere, ask, ask_with, get, metric, start, status, until};

/// What is wrong, for the check of health alone: it may be something else a moment later.
fn wrong(server: &ObservedServer) -> Vec<Value> {
    let ready = ask(server, "/health/ready");
    assert_eq!(ready.code, 200, "{ready:?}");
    ready.json()["problems"].as_array().unwrap().clone()
}

/// Waits until the one problem is a disk that hangs in this operation. Another operation may have been slow before it, on
/// a machine with much to do.
fn until_hung(server: &ObservedServer, operation: &str) {
    until(operation, || {
        let wrong = wrong(server);
        kinds(&wrong) == ["disk-hung"] && wrong[0]["text"].as_str().unwrap().contains(operation)
    });
}

/// A server on this disk, which is given up on soon.
fn on(disk: &SimFileSystem) -> ServerConfig {
    ServerConfig {
        files: Some(Arc::new(disk.clone())),
        segment_bytes: Some(1 << 20),
        disk_patience: Duration::from_millis(50),
        ..config(Some(Path::new("/data")))
    }
}

/// A server whose figures wait for the disk, and what has them wait.
pub(super) fn waiting_figures() -> (ObservedServer, Held) {
    let disk = SimFileSystem::new();
    let config = ServerConfig {
        // So that figures go to the disk although it does not answer.
        disk_patience: Duration::from_secs(600),
        ..on(&disk)
    };
    let server = start(config.clone());
    let mut peer = Peer::connect(&server);
    let cursor = peer.create("_sbp/cursors/billing");
    peer.store(cursor, br#"{"positions": [{"stream": 1, "next": 0}]}"#);
    drop(server);
    // What it had in memory is on the disk alone.
    let server = start(config);
    let held = disk.hold(Operation::Read, "");
    (server, held)
}

#[test]
fn a_sync_that_hangs_is_seen_while_it_hangs() {
    begin_log();
    let disk = SimFileSystem::new();
    let server = start(on(&disk));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"sound");
    until("quiet", || wrong(&server).is_empty());
    let held = disk.hold(Operation::Sync, "segment-");
    let batch = raw_batch(b"waits");
    let append = peer.send(&append_request(&[(stream, batch.len())]), &batch);
    held.wait_until_reached();
    until_hung(&server, "to sync segment-");
    assert!(metric(&server, "sbp_disk_wait_seconds") > 0.05);
    assert!(status(&server)["disk_wait_seconds"].as_f64().unwrap() > 0.05);
    until("the log", || logged("the disk does not answer operation=\"sync\""));
    drop(held);
    peer.answer(append);
    until("its end", || wrong(&server).is_empty());
    assert!(logged("the disk answers again"));
    assert!(metric(&server, "sbp_disk_wait_seconds") < 0.05);
}

#[test]
fn room_that_is_not_given_is_seen() {
    let disk = SimFileSystem::new();
    let server = start(on(&disk));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let held = disk.hold(Operation::Preallocate, "");
    // The next segment is made beforehand: beyond it, appends wait.
    let batch = raw_batch(&[7; 400_000]);
    let appends: Vec<_> = (0..8)
        .map(|_| peer.send(&append_request(&[(stream, batch.len())]), &batch))
        .collect();
    held.wait_until_reached();
    until_hung(&server, "to reserve room for ");
    drop(held);
    for append in appends {
        peer.answer(append);
    }
    until("its end", || wrong(&server).is_empty());
}

#[test]
fn metrics_do_not_wait_for_the_room_of_a_disk_that_is_gone() {
    begin_log();
    let disk = SimFileSystem::new();
    disk.set_capacity(Some(64 << 20));
    let server = start(ServerConfig {
        disk_space_interval: Duration::from_millis(5),
        ..on(&disk)
    });
    assert!(metric(&server, "sbp_disk_free_bytes") > 1e6);
    assert!((metric(&server, "sbp_disk_size_bytes") - f64::from(64 << 20)).abs() < f64::EPSILON);
    let held = disk.hold(Operation::Space, "");
    held.wait_until_reached();
    until_hung(&server, "to tell the room of data has taken");
    until("the log", || {
        logged("the disk does not answer operation=\"tell the room of\"")
    });
    // What it told last is shown, and how old that is. Before, segments that are prepared may have taken some of it.
    let free = metric(&server, "sbp_disk_free_bytes");
    assert!(free > 1e6, "{free}");
    disk.set_capacity(Some(128 << 20));
    assert!(metric(&server, "sbp_disk_space_age_seconds") > 0.05);
    assert!((metric(&server, "sbp_disk_free_bytes") - free).abs() < f64::EPSILON);
    let gauges = status(&server)["server"]["gauges"].clone();
    assert!(gauges["disk_space_age_seconds"].as_f64().unwrap() > 0.05, "{gauges}");
    assert!(
        (gauges["disk_free_bytes"].as_f64().unwrap() - free).abs() < f64::EPSILON,
        "{gauges}"
    );
    drop(held);
    until("its end", || {
        wrong(&server).is_empty() && metric(&server, "sbp_disk_free_bytes") > free
    });
}

#[test]
fn a_server_ends_while_the_room_of_its_disk_is_asked_for() {
    let disk = SimFileSystem::new();
    let server = start(ServerConfig {
        disk_space_interval: Duration::from_millis(5),
        ..on(&disk)
    });
    let held = disk.hold(Operation::Space, "");
    held.wait_until_reached();
    server.shutdown().unwrap();
    drop(server);
    drop(held);
}

#[test]
fn a_recovery_that_hangs_is_seen() {
    let disk = SimFileSystem::new();
    let monitor = Monitor::default();
    let config = ServerConfig {
        monitor: monitor.clone(),
        ..on(&disk)
    };
    let http = HttpServer::start(&anywhere(), &config).unwrap();
    let held = disk.hold(Operation::Sync, "");
    let starting = std::thread::spawn(move || sbp_server::Server::start(config).unwrap());
    held.wait_until_reached();
    until("it", || {
        let ready = get(http.local_addr(), "/health/ready");
        assert_eq!(ready.code, 503);
        ready.json()["problems"][0]["kind"] == "disk-hung"
    });
    let metrics = get(http.local_addr(), "/metrics").body;
    assert!(metrics.contains("sbp_disk_wait_seconds 0."), "{metrics}");
    drop(held);
    let server = starting.join().unwrap();
    until("its end", || get(http.local_addr(), "/health/ready").code == 200);
    drop(server);
}

#[test]
fn health_and_metrics_are_told_while_the_figures_wait_for_the_disk() {
    let (server, held) = waiting_figures();
    let address = server.http_addr().unwrap();
    let waiting = std::thread::spawn(move || get(address, "/status.json").code);
    held.wait_until_reached();
    for _ in 0..3 {
        assert_eq!(ask(&server, "/health/ready").code, 200);
        assert_eq!(ask(&server, "/metrics").code, 200);
    }
    assert!(!waiting.is_finished());
    drop(held);
    assert_eq!(waiting.join().unwrap(), 200);
}

#[test]
fn figures_that_wait_for_the_disk_are_given_up_in_time() {
    let (server, held) = waiting_figures();
    let given_up = ask(&server, "/status.json");
    assert_eq!(given_up.code, 503);
    assert!(given_up.body.contains("/health/ready"), "{}", given_up.body);
    drop(held);
    assert_eq!(ask(&server, "/status.json").code, 200);
}

#[test]
fn what_is_wrong_is_for_those_who_may_see_it() {
    let names = Names::default();
    let admin = names.add("admin", &["admin:*", "write:*"]);
    let disk = SimFileSystem::new();
    let server = start(ServerConfig {
        access: Some(AccessConfig {
            file: names.path(),
            jwt: None,
        }),
        ..on(&disk)
    });
    let mut peer = Peer::connect(&server);
    hello(&mut peer, &admin, ClientRole::CLIENT);
    let stream = peer.create("s");
    let held = disk.hold(Operation::Sync, "segment-");
    let batch = raw_batch(b"waits");
    let append = peer.send(&append_request(&[(stream, batch.len())]), &batch);
    until("the hung sync", || {
        let told = ask_with(&server, admin.secret(), "/health/ready").json();
        told["problems"][0]["kind"] == "disk-hung"
    });
    let told = ask(&server, "/health/ready");
    assert_eq!(told.code, 200);
    assert_eq!(
        told.json(),
        serde_json::json!({"ready": true, "phase": "serving", "problems": []})
    );
    drop(held);
    peer.answer(append);
}
