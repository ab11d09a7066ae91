//! Damage, a full disk, a failed sync, a lost peer: each is made to happen, and seen in the log, in metrics, by the check of
//! health and in the figures of the page.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use sbp_e2e::damage::{damage, sealed_records, watchful_config};
use sbp_e2e::peer::Peer;
use sbp_e2e::servers::{config, quick_config};
use sbp_messages::ErrorCode;
use sbp_server::{Roles, ServerConfig};
use sbp_sim::{Operation, SimFileSystem};
use serde_json::Value;

use super::{ask, metric, start, status, until};

/// What the servers of these tests have logged.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static LOGGING: Once = Once::new();

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn begin_log() {
    LOGGING.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
}

pub(super) fn logged(line: &str) -> bool {
    String::from_utf8_lossy(&LOG.lock().unwrap()).contains(line)
}

/// The problems of the check of health, which answers with this code, are those of the page.
pub(super) fn problems(server: &sbp_http::ObservedServer, code: u16) -> Vec<Value> {
    let ready = ask(server, "/health/ready");
    assert_eq!(ready.code, code, "{ready:?}");
    let problems = ready.json()["problems"].as_array().unwrap().clone();
    // By kind: asked a moment later, an attempt to connect may have failed for another reason.
    let on_the_page = status(server)["problems"].as_array().unwrap().clone();
    assert_eq!(kinds(&on_the_page), kinds(&problems));
    problems
}

pub(super) fn kinds(problems: &[Value]) -> Vec<&str> {
    problems
        .iter()
        .map(|problem| problem["kind"].as_str().unwrap())
        .collect()
}

fn is(server: &sbp_http::ObservedServer, name: &str, value: f64) -> bool {
    (metric(server, name) - value).abs() < f64::EPSILON
}

#[test]
fn damage_is_seen() {
    begin_log();
    let directory = tempfile::tempdir().unwrap();
    let server = start(watchful_config(directory.path()));
    let mut peer = Peer::connect(&server);
    let stream = sealed_records(&mut peer, &[b"before", b"a record that will be damaged"]);
    assert!(is(&server, "sbp_damaged_ranges", 0.0));
    assert!(problems(&server, 200).is_empty());
    damage(directory.path(), b"a record that will");
    until("damage", || is(&server, "sbp_damaged_ranges", 1.0));
    let found = problems(&server, 200);
    assert_eq!(kinds(&found), ["damage"]);
    assert!(found[0]["text"].as_str().unwrap().contains("offset 1"), "{found:?}");
    let now = status(&server);
    let damaged = &now["server"]["damage"][0];
    assert_eq!(
        (&damaged["stream"], &damaged["from"], &damaged["to"]),
        (&stream.0.into(), &1.into(), &2.into())
    );
    let detail = ask(&server, &format!("/status.json?stream={stream}")).json();
    assert_eq!(
        detail["server"]["stream"]["range_list"][0]["damage"][0],
        serde_json::json!([1, 2])
    );
    until("the log", || logged("records are damaged on the disk"));
}

#[test]
fn a_full_disk_is_seen_and_so_is_its_end() {
    begin_log();
    let disk = SimFileSystem::new();
    let server = start(ServerConfig {
        files: Some(Arc::new(disk.clone())),
        segment_bytes: Some(1 << 20),
        retention_interval: Duration::from_millis(20),
        ..config(Some(Path::new("/data")))
    });
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    disk.set_capacity(Some(disk.used() + (1 << 20)));
    let mut refused = None;
    for _ in 0..100 {
        let result = peer.append(stream, &[7; 200_000]);
        if !result.status.is_success() {
            refused = Some(result.status.code);
            break;
        }
    }
    assert_eq!(refused, Some(ErrorCode::INSUFFICIENT_STORAGE));
    until("the full disk", || is(&server, "sbp_disk_full", 1.0));
    let refusals = "sbp_refusals_total{code=\"2507\",name=\"insufficient_storage\"}";
    assert!(is(&server, refusals, 1.0));
    assert_eq!(kinds(&problems(&server, 200)), ["disk-full"], "it serves reads");
    assert_eq!(status(&server)["server"]["gauges"]["disk_full"], true);
    assert!(logged(
        "the disk is full: appends that need another segment are refused"
    ));
    assert!(logged("code=INSUFFICIENT_STORAGE (2507)"));
    disk.set_capacity(None);
    until("the end of it", || {
        is(&server, "sbp_disk_full", 0.0) && problems(&server, 200).is_empty()
    });
    assert!(peer.append(stream, &[7; 200_000]).status.is_success());
}

#[test]
fn a_disk_with_room_for_small_appends_alone_is_seen_and_so_is_its_end() {
    begin_log();
    let disk = SimFileSystem::new();
    let server = start(ServerConfig {
        files: Some(Arc::new(disk.clone())),
        retention_interval: Duration::from_millis(20),
        ..config(Some(Path::new("/data")))
    });
    let mut peer = Peer::connect(&server);
    let [small, large] = ["small", "large"].map(|name| peer.create(name));
    peer.store(small, b"the first segment");
    // The segments begin small: the next one is there when this one has its second group.
    peer.store(small, b"the second group");
    until("the next segment", || {
        disk.contents(Path::new("/data/segment-0000000000000002")).is_ok()
    });
    disk.set_capacity(Some(disk.used() + (100 << 10)));
    let refused = peer.append(large, &[7; 8 << 20]);
    assert_eq!(refused.status.code, ErrorCode::INSUFFICIENT_STORAGE);
    assert_eq!(peer.store(small, b"goes on"), 2);
    until("the nearly full disk", || is(&server, "sbp_disk_nearly_full", 1.0));
    assert!(is(&server, "sbp_disk_full", 0.0));
    let found = problems(&server, 200);
    assert_eq!(kinds(&found), ["disk-nearly-full"]);
    assert!(
        found[0]["text"]
            .as_str()
            .unwrap()
            .contains("too large for what is left"),
        "{found:?}"
    );
    assert!(logged("it is refused, smaller ones are stored"));
    disk.set_capacity(None);
    until("the end of it", || {
        is(&server, "sbp_disk_nearly_full", 0.0) && problems(&server, 200).is_empty()
    });
    assert_eq!(peer.store(large, &[7; 8 << 20]), 0);
}

#[test]
fn a_failed_sync_is_seen() {
    begin_log();
    let disk = SimFileSystem::new();
    let server = start(ServerConfig {
        files: Some(Arc::new(disk.clone())),
        segment_bytes: Some(1 << 20),
        ..config(Some(Path::new("/data")))
    });
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"sound");
    // Named, because the next sync may be that of the second segment, which is being prepared.
    disk.fail_on(Operation::Sync, "segment-0000000000000001", ErrorKind::TimedOut);
    assert!(!peer.append(stream, b"lost").status.is_success());
    let found = problems(&server, 503);
    assert_eq!(kinds(&found), ["failed"]);
    assert!(
        found[0]["text"].as_str().unwrap().contains("restart the server"),
        "{found:?}"
    );
    assert!(is(&server, "sbp_failed", 1.0) && is(&server, "sbp_ready", 0.0));
    assert_eq!(status(&server)["ready"], false);
    assert!(logged("the server has failed"));
    assert_eq!(peer.fetch_all(stream, 0).len(), 1, "what is synced is served");
}

#[test]
fn a_lost_peer_is_seen_from_both_sides() {
    begin_log();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let driver = |listen: &str| {
        start(ServerConfig {
            roles: Roles::PlacementDriver,
            ..quick_config(Some(directories[0].path()), listen)
        })
    };
    let placement = driver("127.0.0.1:0");
    let address = placement.address().to_owned();
    let ranges = |listen: &str| {
        start(ServerConfig {
            roles: Roles::RangeServer {
                placement_driver: vec![address.clone()],
            },
            report_interval: Duration::from_millis(50),
            ..quick_config(Some(directories[1].path()), listen)
        })
    };
    let range_server = ranges("127.0.0.1:0");
    let at = range_server.address().to_owned();
    let up = "sbp_range_servers{state=\"up\"}";
    until("a range server", || is(&placement, up, 1.0));
    Peer::connect(&placement).create("s");
    assert!(problems(&placement, 200).is_empty() && problems(&range_server, 200).is_empty());
    assert!(is(&range_server, "sbp_placement_driver_connected", 1.0));

    drop(range_server);
    until("its end", || is(&placement, "sbp_range_servers{state=\"down\"}", 1.0));
    assert!(is(&placement, "sbp_replicas_missing", 1.0) && is(&placement, up, 0.0));
    let found = problems(&placement, 200);
    assert_eq!(kinds(&found), ["peer-lost"]);
    assert!(found[0]["text"].as_str().unwrap().contains(&at), "{found:?}");
    assert_eq!(status(&placement)["server"]["cluster"]["servers"][0]["up"], false);
    assert!(logged("a range server is gone"));

    let range_server = ranges(&at);
    until("it is back", || is(&placement, up, 1.0));
    assert!(problems(&placement, 200).is_empty());
    drop(placement);
    until("the loss", || is(&range_server, "sbp_placement_driver_connected", 0.0));
    assert_eq!(kinds(&problems(&range_server, 200)), ["peer-lost"]);
    assert!(status(&range_server)["server"]["cluster"]["placement_driver_failure"].is_string());
    assert!(logged("lost the connection to a server"));
    let placement = driver(&address);
    until("it is there again", || {
        is(&range_server, "sbp_placement_driver_connected", 1.0)
    });
    assert!(problems(&range_server, 200).is_empty());
    drop((range_server, placement));
}
