//! Answers that nobody takes.

use std::time::{Duration, Instant};

use sbp_e2e::peer::{Peer, fetch_request, from};
use sbp_e2e::servers::quick_anywhere;

const PATIENCE: Duration = Duration::from_secs(40);

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn what_nobody_takes_is_bounded_however_much_is_asked_for() {
    let server = quick_anywhere();
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    // More than the log keeps in memory, so that most of it is read on other threads.
    let body = vec![5; 1 << 20];
    for _ in 0..150 {
        peer.store(stream, &body);
    }
    let before = resident();
    for _ in 0..1_000 {
        peer.send(&fetch_request(0, 0, &[from(stream, 0)]), b"");
    }
    let mut most = before;
    let deadline = Instant::now() + PATIENCE;
    // Until it is cut, which ends the connection with a reset: nothing is read here before.
    while server.stats().connections_open > 0 {
        most = most.max(resident());
        assert!(Instant::now() < deadline, "never cut");
        std::thread::sleep(Duration::from_millis(5));
    }
    let grown = (most - before) >> 20;
    assert!(grown < 200, "{grown} MiB for answers that nobody takes");
    server.shutdown().unwrap();
}
