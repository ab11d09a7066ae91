//! What a server logs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use sbp_e2e::clients::client_with;
use sbp_e2e::process::Serving;
use sbp_e2e::wait::{LIMIT, until};
use sbp_types::StreamId;
use serde_json::Value;

use super::{run, sbp, text};

/// A server whose log goes into a file, and the file.
fn serve(dir: &Path, arguments: &[&str]) -> (Serving, PathBuf) {
    let log = dir.join("log");
    let mut command = sbp(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(dir.join("data")).args(arguments);
    let serving = Serving::spawn(command.stderr(File::create(&log).unwrap()));
    (serving, log)
}

/// The lines of a log in JSON.
fn events(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn find<'a>(events: &'a [Value], message: &str) -> &'a Value {
    let found = events.iter().find(|event| event["message"] == message);
    found.unwrap_or_else(|| panic!("{message} is not in {events:#?}"))
}

#[test]
fn a_server_logs_its_life_by_itself_and_without_colours_into_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (server, log) = serve(directory.path(), &[]);
    let address = server.address.clone();
    text(&run(&server, &["stream", "create", "orders"], ""));
    server.end_and_read();
    let log = fs::read_to_string(log).unwrap();
    assert!(!log.contains('\u{1b}'), "{log}");
    let data = directory.path().join("data");
    let words = [
        "starting",
        "role=\"both\"",
        "durability=\"fsync\"",
        &format!("listen={address}"),
        data.to_str().unwrap(),
        "recovered",
        "ready",
        "signal=\"SIGTERM\"",
        "draining",
        "ended",
    ];
    let mut rest = log.as_str();
    for word in [
        "starting",
        "recovering",
        "recovered",
        "ready",
        "asked to end",
        "draining",
        "ended",
    ] {
        let at = rest
            .find(word)
            .unwrap_or_else(|| panic!("{word} is not there in order: {log}"));
        rest = &rest[at + word.len()..];
    }
    for word in words {
        assert!(log.contains(word), "{word} is not in {log}");
    }
}

#[test]
fn a_log_in_json_says_what_a_start_after_a_kill_found() {
    let directory = tempfile::tempdir().unwrap();
    let (server, log) = serve(directory.path(), &["--log-format", "json"]);
    text(&run(&server, &["stream", "create", "orders"], ""));
    text(&run(&server, &["append", "orders", "--data", "first"], ""));
    let first = events(&log);
    assert_eq!(
        find(&first, "starting")["data_dir"],
        directory.path().join("data").to_str().unwrap()
    );
    assert_eq!(find(&first, "recovered")["starts"], 1);
    assert!(
        find(&first, "recovered").get("ended_cleanly").is_none(),
        "nothing has ended yet"
    );
    assert!(!server.end(Signal::KILL).success());
    let (server, log) = serve(directory.path(), &["--log-format", "json"]);
    drop(server);
    let second = events(&log);
    let recovered = find(&second, "recovered");
    assert_eq!(recovered["starts"], 2);
    assert_eq!(recovered["ended_cleanly"], false);
    assert_eq!(recovered["ranges"], 1);
    assert_eq!(recovered["level"], "INFO");
    assert!(
        recovered["timestamp"].is_string() && recovered["seconds"].is_number(),
        "{recovered}"
    );
}

#[tokio::test]
async fn refusals_are_logged_and_do_not_fill_the_log() {
    const ASKED: usize = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let (server, log) = serve(directory.path(), &["--log-format", "json", "--durability", "none"]);
    let client = client_with(&server.address, |config| config.timeout = LIMIT);
    for _ in 0..ASKED {
        let mut found = client.describe_streams(&[StreamId(404)], &[], None).await.unwrap();
        assert!(found.remove(0).is_err());
    }
    client.close().await;
    server.end_and_read();
    let events = events(&log);
    let refused: Vec<_> = events.iter().filter(|event| event["message"] == "refused").collect();
    let (first, told) = (refused.first().expect("refusals are logged"), refused.len());
    assert_eq!(first["opcode"], "DESCRIBE_STREAMS");
    assert!(first["code"].as_str().unwrap().contains("1404"), "{first}");
    assert!(first["why"].as_str().unwrap().contains("404"), "{first}");
    assert!(told < ASKED / 10, "{told} of {ASKED}");
    let left_out: u64 = refused.iter().map(|event| event["left_out"].as_u64().unwrap()).sum();
    assert!(told == 1 || left_out > 0, "{refused:?}");
    find(
        &events,
        "durability is none: what is acknowledged can be lost with the machine's power",
    );
}

#[test]
fn a_log_can_be_turned_off_and_levels_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let (server, log) = serve(directory.path(), &["--log", "off"]);
    server.end_and_read();
    assert_eq!(fs::read_to_string(log).unwrap(), "");
    let output = sbp(&["ping", "--log", "verbose"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("error, warn, info, debug"), "{errors}");
}

#[test]
fn a_range_server_says_when_its_placement_driver_knows_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let [driver, ranges] = ["driver", "ranges"].map(|name| {
        let directory = directory.path().join(name);
        fs::create_dir(&directory).unwrap();
        directory
    });
    let json = ["--log-format", "json"];
    let (first, _) = serve(&driver, &["--role", "placement-driver"]);
    let address = first.address.clone();
    let role = ["--role", "range-server", "--placement-driver", &address];
    let arguments: Vec<_> = json.into_iter().chain(role).collect();
    let (server, log) = serve(&ranges, &arguments);
    let registered = "registered with the placement driver";
    assert_eq!(find(&events(&log), registered)["placement_driver"], address.as_str());
    text(&run(&first, &["stream", "create", "orders"], ""));
    server.end_and_read();
    first.end_and_read();

    // It is away: the range server starts all the same, and says so.
    let (server, log) = serve(&ranges, &arguments);
    let told = events(&log);
    let away = told.iter().find(|event| {
        let message = event["message"].as_str().unwrap_or_default();
        message.starts_with("the placement driver does not know of this server yet")
    });
    let away = away.unwrap_or_else(|| panic!("{told:#?}"));
    assert_eq!(away["level"], "WARN");
    assert!(away["reason"].as_str().unwrap().contains("refused"), "{away}");
    assert!(!told.iter().any(|event| event["message"] == registered), "{told:#?}");
    server.end_and_read();
}

/// SIGHUP is no reason to end: what a server was given in files it looks at again, and says which these are.
#[test]
fn a_server_goes_on_after_sighup_and_says_what_it_has_looked_at() {
    let said = |arguments: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let all: Vec<_> = ["--log-format", "json"].iter().chain(arguments).copied().collect();
        let (server, log) = serve(directory.path(), &all);
        server.signal(Signal::HUP);
        let told = until("what was read", || {
            let told = events(&log).into_iter();
            let mut told =
                told.filter(|event| event["message"].as_str().is_some_and(|text| text.starts_with("SIGHUP")));
            told.next()
        });
        server.end_and_read();
        told
    };
    assert!(
        said(&[])["message"]
            .as_str()
            .unwrap()
            .contains("there is nothing to read again")
    );
    let names = tempfile::tempdir().unwrap();
    let file = names.path().join("names").to_str().unwrap().to_owned();
    let made = sbp(&["token", "create", "job", "--allow", "read:*", "--auth", &file])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    assert_eq!(said(&["--auth", &file])["read"], "names");
}
