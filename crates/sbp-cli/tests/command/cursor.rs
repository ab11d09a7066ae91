//! `sbp cursor`: what is shown, set and forgotten.

use super::{run, serve, text};

#[test]
fn cursors_are_listed_shown_set_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders", "payments"], ""));
    text(&run(&server, &["append", "orders"], "a\nb\nc\n"));
    assert_eq!(text(&run(&server, &["cursor", "list"], "")), "");
    let missing = run(&server, &["cursor", "show", "job"], "");
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("_sbp/cursors/job"));

    let set = text(&run(&server, &["cursor", "set", "job", "orders", "--to", "1"], ""));
    assert_eq!(set, "job goes on at 1 of orders\n");
    text(&run(
        &server,
        &["cursor", "set", "job", "payments", "--to", "latest"],
        "",
    ));
    assert_eq!(text(&run(&server, &["cursor", "list"], "")), "job\n");
    let shown = text(&run(&server, &["cursor", "show", "job", "--json"], ""));
    let shown: Vec<serde_json::Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let figures = |at: usize| [&shown[at]["name"], &shown[at]["next"], &shown[at]["behind"]].map(ToString::to_string);
    assert_eq!(figures(0), ["\"orders\"", "1", "2"]);
    assert_eq!(figures(1), ["\"payments\"", "0", "0"]);
    assert!(text(&run(&server, &["cursor", "show", "job"], "")).contains("BEHIND"));

    let beyond = run(
        &server,
        &["cursor", "set", "job", "orders", "payments", "--to", "3"],
        "",
    );
    assert!(!beyond.status.success());
    let said = String::from_utf8_lossy(&beyond.stderr);
    assert!(
        said.contains("SBP-1463") && said.contains("payments") && said.contains("ends at 0"),
        "{said}"
    );
    let shown = text(&run(&server, &["cursor", "show", "job", "--json"], ""));
    assert!(
        shown.contains(r#""next":1"#) && !shown.contains(r#""next":3"#),
        "nothing was set: {shown}"
    );

    text(&run(&server, &["cursor", "forget", "job"], ""));
    assert_eq!(text(&run(&server, &["cursor", "list"], "")), "");
}

/// A commit of a server that is gone, put back as a copy of its data would, and a stream that has the number now.
#[test]
fn the_place_of_a_replaced_stream_is_set_when_that_is_asked_for() {
    const GONE: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(
        &server,
        &["stream", "create", "orders", "payments", "_sbp/cursors/job"],
        "",
    ));
    text(&run(&server, &["append", "orders"], "a\nb\nc\n"));
    let place =
        |stream: u8, name: &str| format!(r#"{{"stream":{stream},"name":"{name}","identity":"{GONE}","next":2}}"#);
    let places = [place(1, "orders"), place(2, "payments")].join(",");
    let commit = format!(r#"{{"version":1,"holder":"gone","commit":1,"positions":[{places}]}}"#);
    text(&run(&server, &["append", "_sbp/cursors/job"], &format!("{commit}\n")));

    let refused = run(&server, &["cursor", "set", "job", "orders", "--to", "1"], "");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    for part in ["SBP-9019", GONE, "sbp cursor set job orders --to earliest --replaced"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let shown = || text(&run(&server, &["cursor", "show", "job", "--json"], ""));
    assert_eq!(shown().matches(GONE).count(), 2, "nothing was changed");

    let set = ["cursor", "set", "job", "orders", "--to", "1", "--replaced"];
    assert_eq!(text(&run(&server, &set, "")), "job goes on at 1 of orders\n");
    let after: Vec<serde_json::Value> = shown()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(after[0]["next"] == 1 && after[0]["identity"] != GONE, "{after:?}");
    assert!(
        after[1]["next"] == 2 && after[1]["identity"] == GONE,
        "the others stay: {after:?}"
    );
    // From now on it is the stream's own place.
    text(&run(&server, &["cursor", "set", "job", "orders", "--to", "2"], ""));
}
