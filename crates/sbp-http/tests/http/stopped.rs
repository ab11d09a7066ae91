//! A server whose process is stopped: what passes meanwhile is not its disk's.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sbp_e2e::batches::raw_batch;
use sbp_e2e::peer::{Peer, append_request};
use sbp_e2e::process::{again, pause};
use sbp_e2e::servers::config;
use sbp_server::ServerConfig;
use sbp_sim::{Operation, SimFileSystem};

use super::troubles::{begin_log, kinds, logged};
use super::{ask, start, until};

const CHILD: &str = "SBP_CHILD_STOPPED";
const PATIENCE: Duration = Duration::from_secs(4);
const STOPPED: Duration = Duration::from_secs(6);

/// A child that does not outlive its owner.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn seconds_in_which_a_server_is_stopped_are_not_those_of_its_disk() {
    stop_amid_a_sync("hangs");
}

#[test]
fn a_sync_during_which_the_server_was_stopped_is_no_slow_one() {
    stop_amid_a_sync("ends");
}

/// Starts a server that is stopped while a sync is under way, which hangs or ends when the server goes on.
fn stop_amid_a_sync(what_it_does: &str) {
    let mut command = again("stopped::serve_while_stopped");
    let command = command.env(CHILD, what_it_does).stdout(Stdio::piped());
    let mut child = Owned(command.spawn().unwrap());
    let output = BufReader::new(child.0.stdout.take().unwrap());
    // Kept until the child has ended: a closed pipe would end it.
    let mut lines = output.lines().map_while(Result::ok);
    lines.find(|line| line.ends_with("held")).unwrap();
    let pid = Pid::from_child(&child.0);
    pause(&child.0);
    // This is no waiting for something: it is what the test is about.
    std::thread::sleep(STOPPED);
    child.0.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    let outcome = child.0.wait().unwrap();
    drop(lines);
    assert!(outcome.success(), "what the child says stands above");
}

/// The process that is stopped, with a sync under way.
#[test]
#[ignore = "another test starts it, in a process of its own"]
fn serve_while_stopped() {
    let Ok(what_it_does) = std::env::var(CHILD) else {
        return;
    };
    begin_log();
    let disk = SimFileSystem::new();
    let server = start(ServerConfig {
        files: Some(Arc::new(disk.clone())),
        segment_bytes: Some(1 << 20),
        disk_patience: PATIENCE,
        ..config(Some(std::path::Path::new("/data")))
    });
    let wrong = || {
        ask(&server, "/health/ready").json()["problems"]
            .as_array()
            .unwrap()
            .clone()
    };
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    let held = disk.hold(Operation::Sync, "segment-");
    let batch = raw_batch(b"waits");
    let append = peer.send(&append_request(&[(stream, batch.len())]), &batch);
    held.wait_until_reached();
    let before = Instant::now();
    #[allow(clippy::print_stdout, reason = "the process that started this one reads it")]
    {
        println!("held");
    }
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    assert!(before.elapsed() > PATIENCE, "it was stopped");
    if what_it_does == "ends" {
        drop(held);
        peer.answer(append);
        let times = server.stats().sync_times;
        let slow: u64 = times
            .buckets()
            .filter(|(most, _)| *most > 1.0)
            .map(|(_, count)| count)
            .sum();
        assert_eq!(slow, 0, "{times:?}");
        assert!(times.count() >= 1, "{times:?}");
        assert!(!logged("a sync of the log was slow"));
        return;
    }
    // The watch looks at least ten times in its patience.
    let went_on = Instant::now();
    while went_on.elapsed() < PATIENCE / 4 {
        assert!(wrong().is_empty(), "{:?}", wrong());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!logged("the disk does not answer"));
    // It is seen all the same, if the disk goes on not answering.
    until("the hung sync", || kinds(&wrong()) == ["disk-hung"]);
    until("the log", || logged("the disk does not answer operation=\"sync\""));
    drop(held);
    peer.answer(append);
}
