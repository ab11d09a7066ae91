//! `sbp proxy`, between the command and a server.

use sbp_e2e::process::Serving;

use super::{run, sbp, serve, text};

/// A proxy for the server, and what it is started with beside that.
fn proxy(server: &Serving, arguments: &[&str]) -> Serving {
    Serving::spawn(sbp(&["proxy", "--listen", "127.0.0.1:0", "--target", &server.address]).args(arguments))
}

#[test]
fn commands_go_through_it_and_meet_its_rules() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let rules = [
        "--rule",
        "cut answer CREATE_STREAMS nth=1",
        "--rule",
        "delay=1ms to-client",
        "--trace",
    ];
    let proxy = proxy(&server, &rules);
    // The answer is lost with the connection, and asked for again: creating a stream twice does no harm.
    assert_eq!(text(&run(&proxy, &["stream", "create", "orders"], "")), "1 orders\n");
    assert_eq!(
        text(&run(&proxy, &["append", "orders"], "first\n")),
        "stored at 0 to 0, durability fsync\n"
    );
    assert_eq!(text(&run(&server, &["stream", "create", "orders"], "")), "1 orders\n");
    let printed = proxy.end_and_read();
    let traced = |words: &str| printed.lines().any(|line| line.contains(words));
    assert!(
        traced("request CREATE_STREAMS") && traced(": cut") && traced("answer APPEND"),
        "{printed}"
    );
    let row = |rule: &str| {
        let line = printed
            .lines()
            .find(|line| line.trim_start().starts_with(rule))
            .unwrap();
        let numbers = line
            .split_whitespace()
            .rev()
            .take(2)
            .map(|word| word.parse::<u64>().unwrap());
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(row("cut answer CREATE_STREAMS nth=1"), [1, 2]);
    assert!(row("delay=1ms to-client")[0] >= 3, "{printed}");
}

#[test]
fn it_says_what_was_done_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let proxy = proxy(&server, &["--json", "--rule", "duplicate answer PING probability=1"]);
    text(&run(&proxy, &["ping", "-n", "2"], ""));
    let printed: serde_json::Value = serde_json::from_str(proxy.end_and_read().trim()).unwrap();
    assert_eq!((&printed["connections"], &printed["faults"]), (&1.into(), &2.into()));
    let rule = &printed["rules"][0];
    assert_eq!(rule["rule"], "duplicate answer PING probability=1");
    assert_eq!((&rule["matched"], &rule["fired"]), (&2.into(), &2.into()));
}

#[test]
fn a_rule_that_makes_no_sense_is_explained() {
    for (rule, says) in [("drop append", "is no condition"), ("break", "is no fault")] {
        let refused = sbp(&["proxy", "--rule", rule]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains(says), "{words}");
    }
    let help = text(&sbp(&["proxy", "--help"]).output().unwrap());
    assert!(
        help.contains("drop answer APPEND nth=3") && help.contains("--advertise"),
        "{help}"
    );
}
