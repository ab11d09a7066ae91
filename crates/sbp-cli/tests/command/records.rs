//! The `sbp` binary as a user runs it.

use std::io::Read;
use std::process::Stdio;

use super::{run, sbp, serve, text};

#[test]
fn records_go_in_and_come_out_and_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    assert_eq!(text(&run(&server, &["stream", "create", "orders"], "")), "1 orders\n");
    let stored = text(&run(&server, &["append", "orders"], "first\nsecond\n"));
    assert_eq!(stored, "stored at 0 to 1, durability fsync\n");
    text(&run(&server, &["append", "1", "--data", "third", "--key", "k"], ""));
    let address = server.address.clone();
    assert!(!server.end(rustix::process::Signal::KILL).success());

    let server = serve(dir.path(), &address);
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
    let server = serve(dir.path(), "127.0.0.1:0");
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
    let server = serve(dir.path(), "127.0.0.1:0");
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
    let server = serve(dir.path(), "127.0.0.1:0");
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
    for api in ["await", "writer"] {
        let append = [
            "bench",
            "append",
            "--records",
            "1000",
            "--batch",
            "5",
            "--api",
            api,
            "--json",
        ];
        let report: serde_json::Value = serde_json::from_str(&text(&run(&server, &append, ""))).unwrap();
        assert_eq!((&report["records"], &report["api"]), (&1_000.into(), &api.into()));
    }
    let fetch = run(&server, &["bench", "fetch", "--decode", "--json"], "");
    let report: serde_json::Value = serde_json::from_str(&text(&fetch)).unwrap();
    assert_eq!(
        (&report["records"], &report["rows_decoded"]),
        (&4_000.into(), &4_000.into())
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
