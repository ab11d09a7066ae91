//! What commands show of a server that answers HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::{sbp, text};

/// A server with HTTP; its address, and that of HTTP.
struct Watched {
    child: Child,
    address: String,
    http: String,
}

impl Watched {
    fn start(arguments: &[&str]) -> Self {
        let all = [
            &[
                "serve",
                "--log",
                "error",
                "--listen",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
            ],
            arguments,
        ]
        .concat();
        let mut child = sbp(&all).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let address = lines.next().unwrap().replace("listening on ", "");
        let page = lines.next().unwrap();
        let http = page
            .strip_prefix("status page on http://")
            .unwrap()
            .trim_end_matches('/')
            .to_owned();
        Self { child, address, http }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn stats_of_a_server_are_shown_for_people_and_programs() {
    let directory = tempfile::tempdir().unwrap();
    let server = Watched::start(&["--data-dir", directory.path().to_str().unwrap()]);
    let done = |arguments: &[&str]| text(&sbp(arguments).env("SBP_SERVERS", &server.address).output().unwrap());
    done(&["stream", "create", "orders"]);
    done(&["append", "orders", "--data", "first"]);
    let missing = sbp(&["fetch", "nothing"])
        .env("SBP_SERVERS", &server.address)
        .output()
        .unwrap();
    assert!(!missing.status.success());
    let shown = text(&sbp(&["server", "stats", &server.http]).output().unwrap());
    assert!(
        shown.starts_with(&format!("both {} serving, ready, up ", server.address)),
        "{shown}"
    );
    let line = |name: &str| {
        let found = shown.lines().find(|line| line.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {shown}")).to_owned()
    };
    assert_eq!(line("append records").split_whitespace().last(), Some("1"));
    assert_eq!(line("damaged ranges").split_whitespace().last(), Some("0"));
    assert_eq!(
        line("append ").split_whitespace().nth(1),
        Some("1"),
        "the count of its latencies"
    );
    assert!(shown.contains("NOT_FOUND (1404)"), "{shown}");
    let json = text(
        &sbp(&["server", "stats", "--json"])
            .env("SBP_HTTP", &server.http)
            .output()
            .unwrap(),
    );
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["server"]["counts"]["append_records"], 1);
    let shown = text(&sbp(&["cluster", "status", &server.http]).output().unwrap());
    assert!(shown.contains("STATE") && shown.contains(" up "), "{shown}");
    assert!(text(&sbp(&["cluster"]).env("SBP_SERVERS", &server.address).output().unwrap()).contains("leader"));
}

#[test]
fn without_http_it_says_what_to_do() {
    let refused = sbp(&["server", "stats", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(
        errors.contains("http://127.0.0.1:1/status.json") && errors.contains("--http"),
        "{errors}"
    );
}
