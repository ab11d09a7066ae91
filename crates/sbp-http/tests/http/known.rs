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
