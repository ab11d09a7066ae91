//! Servers that ask who somebody is.

use sbp_e2e::access::Names;
use sbp_e2e::servers::quick_config;
use sbp_server::{AccessConfig, ServerConfig};

use super::{ask, ask_with, start};

#[test]
fn figures_are_for_those_who_may_see_all_streams() {
    let names = Names::default();
    let admin = names.add("admin", &["admin:*"]);
    let reader = names.add("reader", &["read:*"]);
    let tenant = names.add("tenant", &["read:mine/*", "write:mine/*", "admin:mine/*"]);
    let server = start(ServerConfig {
        access: Some(AccessConfig {
            file: names.path(),
            jwt: None,
        }),
        ..quick_config(None, "127.0.0.1:0")
    });
    for path in ["/status.json", "/metrics", "/status.json?search=a"] {
        let nobody = ask(&server, path);
        assert_eq!(nobody.code, 401, "{path}");
        assert!(nobody.head.contains("www-authenticate: bearer"), "{}", nobody.head);
        assert_eq!(ask_with(&server, "guessed", path).code, 401, "{path}");
        let refused = ask_with(&server, tenant.secret(), path);
        assert_eq!(refused.code, 403, "{path}");
        assert!(
            !refused.body.contains("sbp_") && !refused.body.contains("phase"),
            "{}",
            refused.body
        );
        for token in [&admin, &reader] {
            assert_eq!(ask_with(&server, token.secret(), path).code, 200, "{path}");
        }
    }
    for path in ["/", "/script.js", "/style.css", "/health/live", "/health/ready"] {
        assert_eq!(ask(&server, path).code, 200, "{path}: it tells nothing of streams");
    }
}

#[test]
fn who_is_refused_has_a_line_in_the_audit_file_and_who_asks_for_health_has_none() {
    let names = Names::default();
    let admin = names.add("admin", &["admin:*"]);
    let tenant = names.add("tenant", &["read:mine/*"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.jsonl");
    let server = start(ServerConfig {
        access: Some(AccessConfig {
            file: names.path(),
            jwt: None,
        }),
        audit: Some(file.clone()),
        ..quick_config(None, "127.0.0.1:0")
    });
    assert_eq!(ask(&server, "/metrics").code, 401);
    assert_eq!(ask_with(&server, "guessed", "/status.json?search=secret").code, 401);
    assert_eq!(ask_with(&server, tenant.secret(), "/metrics").code, 403);
    for (token, path) in [(admin.secret(), "/metrics"), ("guessed", "/health/ready")] {
        assert_eq!(ask_with(&server, token, path).code, 200);
    }
    drop(server);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["who"].as_str(),
                line["operation"].as_str().unwrap(),
                line["outcome"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (None, "GET /metrics", "1401"),
            (None, "GET /status.json", "1401"),
            (Some("tenant"), "GET /metrics", "1403"),
        ]
    );
    for line in &lines {
        assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    }
    assert!(!text.contains("guessed") && !text.contains(tenant.secret()), "{text}");
}
