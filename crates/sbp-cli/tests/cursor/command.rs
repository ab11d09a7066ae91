//! `sbp cursor`: what is shown, set and forgotten.

use super::support::{Serving, run, text};

#[test]
fn cursors_are_listed_shown_set_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serving::start(dir.path(), "127.0.0.1:0");
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

    text(&run(&server, &["cursor", "forget", "job"], ""));
    assert_eq!(text(&run(&server, &["cursor", "list"], "")), "");
}
