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
        let all = [&["serve", "--log", "error", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = sbp(&all).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let address = lines.next().unwrap().replace("listening on ", "");
        let page = lines.find_map(|line| line.strip_prefix("status page on ").map(str::to_owned));
        let page = page.unwrap().trim_end_matches('/').to_owned();
        let http = page.strip_prefix("http://").map(str::to_owned).unwrap_or(page);
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
    let data = directory.path().to_str().unwrap();
    let server = Watched::start(&["--data-dir", data, "--http", "127.0.0.1:0"]);
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
    assert_eq!(line("connections since the start").split_whitespace().count(), 5);
    assert_eq!(line("connections now").split_whitespace().count(), 3);
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
    let shown = text(
        &sbp(&["cluster", "status"])
            .env("SBP_SERVERS", &server.address)
            .output()
            .unwrap(),
    );
    assert!(shown.contains("STATE") && shown.contains(" up "), "{shown}");
    assert!(text(&sbp(&["cluster"]).env("SBP_SERVERS", &server.address).output().unwrap()).contains("leader"));
}

/// A variable for clients of another server has it asked over TLS, which it does not speak: what is said to do, does.
#[test]
fn an_address_without_tls_is_said_as_it_is_to_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let tls = directory.path().join("tls");
    text(&sbp(&["tls", "dev"]).arg(&tls).output().unwrap());
    let data = directory.path().join("data");
    let server = Watched::start(&["--data-dir", data.to_str().unwrap(), "--http", "127.0.0.1:0"]);
    let status = |address: &str| {
        let mut command = sbp(&["server", "stats", address]);
        command.env("SBP_TLS_CA", tls.join("ca.crt")).output().unwrap()
    };
    let refused = String::from_utf8(status(&server.http).stderr).unwrap();
    assert!(refused.contains("http://host:port"), "{refused}");
    assert!(text(&status(&format!("http://{}", server.http))).contains("append records"));
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

#[test]
fn over_tls_it_says_whom_it_trusts() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    text(&sbp(&["tls", "dev", &path("tls")]).output().unwrap());
    let server = Watched::start(&[
        "--data-dir",
        &path("data"),
        "--http",
        "https://127.0.0.1:0",
        "--tls-cert",
        &path("tls/server.crt"),
        "--tls-key",
        &path("tls/server.key"),
    ]);
    assert!(server.http.starts_with("https://127.0.0.1:"), "{}", server.http);
    let bare = server.http.strip_prefix("https://").unwrap();
    let ca = path("tls/ca.crt");
    for address in [&server.http, bare] {
        let shown = text(&sbp(&["server", "stats", address, "--tls-ca", &ca]).output().unwrap());
        assert!(shown.contains("serving, ready"), "{shown}");
    }
    let refused = sbp(&["server", "stats", &server.http]).output().unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && errors.contains(&server.http), "{errors}");
}
