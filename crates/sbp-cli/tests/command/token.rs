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
