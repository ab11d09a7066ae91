//! `sbp token` and `--auth`: who is known, and what one sees who is not.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use sbp_e2e::process::Serving;

use super::{run, sbp, text};

fn token(auth: &Path, arguments: &[&str]) -> Output {
    sbp(&["token"])
        .args(arguments)
        .arg("--auth")
        .arg(auth)
        .output()
        .unwrap()
}

/// Runs a command as somebody.
fn run_as(server: &Serving, token: &str, arguments: &[&str]) -> Output {
    sbp(arguments)
        .env("SBP_SERVERS", &server.address)
        .env("SBP_TOKEN", token)
        .output()
        .unwrap()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn tokens_are_made_used_listed_and_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let auth = dir.path().join("names.jsonl");
    let create = |arguments: &[&str]| {
        text(&token(&auth, &[&["create"], arguments].concat()))
            .trim()
            .to_owned()
    };
    let root = create(&["root", "--allow", "read:*", "--allow", "write:*", "--allow", "admin:*"]);
    let billing = create(&["billing", "--allow", "read:orders/*", "--expires", "90d"]);
    let mode = std::fs::metadata(&auth).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = std::fs::read_to_string(&auth).unwrap();
    assert!(
        !kept.contains(&root) && !kept.contains(&root["sbp_".len()..]),
        "only its digest is kept"
    );

    let server = Serving::spawn(
        sbp(&["serve", "--log", "trace", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"))
            .arg("--auth")
            .arg(&auth),
    );
    text(&run_as(&server, &root, &["stream", "create", "orders/eu", "secret"]));
    assert_eq!(
        text(&run_as(&server, &billing, &["stream", "list"]))
            .matches("orders/eu")
            .count(),
        1
    );
    assert!(!text(&run_as(&server, &billing, &["stream", "list"])).contains("secret"));
    let said = refused(&run_as(&server, &billing, &["append", "orders/eu", "--data", "x"]));
    assert!(
        said.contains("SBP-1403") && said.contains("billing may not append to"),
        "{said}"
    );
    assert!(said.contains("the grant write"), "{said}");
    let said = refused(&run_as(&server, "sbp_wrong", &["stream", "list"]));
    assert!(
        said.contains("SBP-1401") && said.contains("does not know the token"),
        "{said}"
    );
    assert!(!said.contains("sbp_wrong"), "{said}");
    let said = refused(&run(&server, &["stream", "list"], ""));
    assert!(said.contains("SBP-1401") && said.contains("--token-file"), "{said}");
    let file = dir.path().join("billing.token");
    std::fs::write(&file, format!("{billing}\n")).unwrap();
    text(&run(
        &server,
        &["stream", "list", "--token-file", file.to_str().unwrap()],
        "",
    ));

    let listed = text(&token(&auth, &["list"]));
    assert!(
        listed.contains("billing") && listed.contains("read:orders/*"),
        "{listed}"
    );
    assert!(!listed.contains(&billing["sbp_".len()..]), "{listed}");
    assert_eq!(text(&token(&auth, &["list", "--json"])).lines().count(), 2);
    text(&token(&auth, &["revoke", "billing"]));
    assert!(refused(&token(&auth, &["revoke", "billing"])).contains("no such token of billing"));
    let said = sbp_e2e::wait::until("the revocation", || {
        let listed = run_as(&server, &billing, &["stream", "list"]);
        (!listed.status.success()).then(|| refused(&listed))
    });
    assert!(said.contains("SBP-1401") && said.contains("was revoked"), "{said}");
}

#[test]
fn what_cannot_be_said_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let auth = dir.path().join("names.jsonl");
    let said = refused(&token(&auth, &["create", "x", "--allow", "everything"]));
    assert!(said.contains("read:orders/*"), "{said}");
    assert!(refused(&token(&auth, &["list"])).contains("cannot read"));
    std::fs::write(&auth, "{}\n").unwrap();
    let serve = sbp(&["serve", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg("--auth")
        .arg(&auth)
        .output()
        .unwrap();
    let said = refused(&serve);
    assert!(
        said.contains("names.jsonl, line 1") && said.contains("who may do what"),
        "{said}"
    );
    let open = sbp(&["serve", "--listen", "0.0.0.0:0", "--data-dir"])
        .arg(dir.path().join("data"))
        .output()
        .unwrap();
    let said = refused(&open);
    assert!(said.contains("--auth") && said.contains("--tls-cert"), "{said}");
}

/// What somebody reads who is over a quota: how much is his, and whom to ask.
#[test]
fn who_is_over_a_quota_is_told_which() {
    let dir = tempfile::tempdir().unwrap();
    let auth = dir.path().join("names.jsonl");
    let create = |name: &str, more: &[&str]| {
        let allow = [
            "create", name, "--allow", "read:*", "--allow", "write:*", "--allow", "admin:*",
        ];
        text(&token(&auth, &[&allow, more].concat())).trim().to_owned()
    };
    let root = create("root", &[]);
    let slow = create("slow", &["--quota", "bytes-in=10"]);
    let maker = create("maker", &["--quota", "streams=1"]);
    let server = Serving::spawn(
        sbp(&["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"))
            .arg("--auth")
            .arg(&auth),
    );
    text(&run_as(&server, &root, &["stream", "create", "s"]));
    let long = "x".repeat(1_000);
    let append = || run_as(&server, &slow, &["append", "s", "--data", &long, "--timeout", "1s"]);
    text(&append());
    let said = refused(&append());
    for part in [
        "SBP-1429",
        "slow appends at more than twice its quota of 10 bytes a second (bytes-in)",
    ] {
        assert!(said.contains(part), "{said}");
    }
    text(&run_as(&server, &maker, &["stream", "create", "one"]));
    let said = refused(&run_as(&server, &maker, &["stream", "create", "two"]));
    assert!(said.contains("SBP-1403") && said.contains("its quota is 1"), "{said}");
}

#[test]
fn limits_that_let_nothing_be_done_are_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let auth = dir.path().join("names.jsonl");
    for quota in ["bytes-in=0", "bytes-out=0", "calls=0", "connections=0"] {
        let said = refused(&token(&auth, &["create", "x", "--allow", "read:*", "--quota", quota]));
        assert!(said.contains("lets nothing be done at all"), "{said}");
    }
    assert!(!auth.exists());
    text(&token(
        &auth,
        &["create", "x", "--allow", "admin:*", "--quota", "streams=0"],
    ));
}

/// A file that was written by hand, with two lines for one subject, keeps a server from starting; revoking one mends it.
#[test]
fn revoking_mends_a_file_that_no_server_reads() {
    let dir = tempfile::tempdir().unwrap();
    let auth = dir.path().join("names.jsonl");
    let line = |name: &str| format!("{{\"name\":\"{name}\",\"allow\":[\"read:*\"],\"subject\":\"x\"}}\n");
    std::fs::write(&auth, ["one", "two", "three"].map(line).concat()).unwrap();
    std::fs::set_permissions(&auth, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = refused(&token(&auth, &["list"]));
    assert!(
        said.contains("line 2") && said.contains("the same certificate or subject"),
        "{said}"
    );
    // One too many is left, and that is told.
    let said = refused(&token(&auth, &["revoke", "three"]));
    assert!(said.contains("line 2"), "{said}");
    text(&token(&auth, &["revoke", "two"]));
    assert!(text(&token(&auth, &["list"])).contains("one"));
}
