//! The `sbp` binary as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A server process that does not outlive the test.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(dir: &Path, listen: &str) -> Self {
        let mut child = sbp(&["serve", "--listen", listen, "--data-dir"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line:?}"))
            .to_owned();
        Self { child, address }
    }

    /// Sends a signal to the process that this test started, and waits for its end.
    fn end(mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sbp(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sbp"));
    command.args(arguments).env_remove("SBP_SERVERS").env_remove("SBP_LOG");
    command
}

/// Runs a command against the server, with `input` on its standard input.
fn run(server: &Serving, arguments: &[&str], input: &str) -> Output {
    let mut child = sbp(arguments)
        .args(["--timeout", "20s"])
        .env("SBP_SERVERS", &server.address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn records_go_in_and_come_out_and_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serving::start(dir.path(), "127.0.0.1:0");
    assert_eq!(text(&run(&server, &["stream", "create", "orders"], "")), "1 orders\n");
    let stored = text(&run(&server, &["append", "orders"], "first\nsecond\n"));
    assert_eq!(stored, "stored at 0 to 1, durability fsync\n");
    text(&run(&server, &["append", "1", "--data", "third", "--key", "k"], ""));
    let address = server.address.clone();
    assert!(!server.end(rustix::process::Signal::KILL).success());

    let server = Serving::start(dir.path(), &address);
    let read = text(&run(&server, &["fetch", "orders", "--json"], ""));
    let read: Vec<serde_json::Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let values: Vec<_> = read.iter().map(|record| record["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["first", "second", "third"]);
    assert_eq!((&read[2]["offset"], &read[2]["key"]), (&2.into(), &"k".into()));
    let part = text(&run(&server, &["fetch", "orders", "--from", "1", "--to", "2"], ""));
    assert!(part.starts_with("1 ") && part.ends_with(" second\n"), "{part}");
    let listed = text(&run(&server, &["stream", "list", "--json"], ""));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed["name"], &listed["latest"]), (&"orders".into(), &3.into()));
    let described = text(&run(&server, &["stream", "describe", "orders"], ""));
    assert!(
        described.contains("orders") && described.contains(&address),
        "{described}"
    );
    assert!(text(&run(&server, &["ping", "-n", "1"], "")).contains("durability fsync"));
    assert!(
        server.end(rustix::process::Signal::TERM).success(),
        "SIGTERM ends a server cleanly"
    );
}

#[test]
fn failures_name_the_thing_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serving::start(dir.path(), "127.0.0.1:0");
    let missing = run(&server, &["fetch", "nope"], "");
    assert_eq!(missing.status.code(), Some(1));
    let words = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(words.contains("nope") && words.contains("1404"), "{words}");

    // A second server on the same directory, and on the same port.
    let other = tempfile::tempdir().unwrap();
    for (dir, listen) in [(dir.path(), "127.0.0.1:0"), (other.path(), server.address.as_str())] {
        let refused = sbp(&["serve", "--listen", listen, "--data-dir"])
            .arg(dir)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.starts_with("error: ") && words.len() > 30, "{words}");
    }
    let address = server.address.clone();
    assert!(server.end(rustix::process::Signal::INT).success());
    let unreachable = sbp(&["ping", "--servers", &address]).output().unwrap();
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unreachable.stderr).contains(&address));
    assert_eq!(sbp(&["fetch"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn following_prints_what_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serving::start(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "s"], ""));
    let mut follower = sbp(&["fetch", "s", "--follow", "--max", "2", "--servers", &server.address])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    text(&run(&server, &["append", "s", "--data", "one"], ""));
    text(&run(&server, &["append", "s", "--data", "two"], ""));
    let mut printed = String::new();
    follower.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(follower.wait().unwrap().success());
    let values: Vec<_> = printed.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(values, ["one", "two"]);
}

#[test]
fn benchmarks_report_what_they_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serving::start(dir.path(), "127.0.0.1:0");
    let append = [
        "bench",
        "append",
        "--records",
        "2000",
        "--batch",
        "10",
        "--streams",
        "2",
        "--json",
    ];
    let report: serde_json::Value = serde_json::from_str(&text(&run(&server, &append, ""))).unwrap();
    assert_eq!(report["records"], 2_000);
    assert!(report["records_per_s"].as_f64().unwrap() > 0.0 && report["p50_us"].as_u64().unwrap() > 0);
    let fetch = run(&server, &["bench", "fetch", "--decode", "--json"], "");
    let report: serde_json::Value = serde_json::from_str(&text(&fetch)).unwrap();
    assert_eq!(
        (&report["records"], &report["rows_decoded"]),
        (&2_000.into(), &2_000.into())
    );
}

#[test]
fn help_teaches() {
    let help = text(&sbp(&["--help"]).output().unwrap());
    assert!(
        help.contains("Examples:") && help.contains("sbp serve --data-dir"),
        "{help}"
    );
}
