//! Servers that do not trust each other, and what they say about it. Those that do are in the tests of the command `sbp`.

use std::time::Duration;

use sbp_e2e::certificates::Authority;
use sbp_e2e::servers::quick_config;
use sbp_server::{ClientTlsFiles, Roles, Server, ServerConfig, ServerTlsFiles};

use crate::setting::{Setting, says};

fn placement_driver(setting: &Setting, tls: bool) -> Server {
    let ca = setting.authority.file();
    let change = |config: &mut ServerConfig| {
        config.roles = Roles::PlacementDriver;
        config.data_dir = Some(setting.directory.path().join("pd"));
        config.tls.as_mut().unwrap().client_ca = Some(ca);
        if !tls {
            config.tls = None;
        }
    };
    setting.server_with(&setting.server_certificate(), change)
}

/// Why a range server does not start that uses TLS so.
fn refused(setting: &Setting, driver: &Server, peer_tls: Option<ClientTlsFiles>) -> String {
    let mut config = quick_config(Some(&setting.directory.path().join("rs")), "127.0.0.1:0");
    config.roles = Roles::RangeServer {
        placement_driver: vec![driver.address().to_owned()],
    };
    config.peer_tls = peer_tls;
    // How long it asks for its number.
    config.default_timeout = Duration::from_secs(1);
    Server::start(config).unwrap_err().to_string()
}

#[test]
fn a_range_server_is_told_why_its_placement_driver_does_not_talk_to_it() {
    let setting = Setting::new();
    let driver = placement_driver(&setting, true);
    says(&refused(&setting, &driver, None), &["speaks TLS"]);
    let nobody = setting.trusting();
    says(
        &refused(&setting, &driver, Some(nobody)),
        &["asks for a client certificate"],
    );
    let strangers = Authority::new(setting.directory.path(), "strangers");
    let strange = strangers.issue("strange", &["127.0.0.1"]);
    let stranger = setting.showing(&strange);
    says(
        &refused(&setting, &driver, Some(stranger)),
        &["does not accept", "CN=strangers", "not trusted there"],
    );
}

#[test]
fn a_range_server_with_tls_is_told_of_a_plain_placement_driver() {
    let setting = Setting::new();
    let driver = placement_driver(&setting, false);
    says(
        &refused(&setting, &driver, Some(setting.trusting())),
        &["does not speak TLS"],
    );
}

#[test]
fn files_are_looked_at_before_anything_is_started() {
    let setting = Setting::new();
    let issued = setting.server_certificate();
    let mut config = quick_config(None, "127.0.0.1:0");
    config.tls = Some(ServerTlsFiles {
        cert: issued.cert.clone(),
        key: setting.directory.path().join("absent.key"),
        client_ca: None,
    });
    says(
        &Server::start(config.clone()).unwrap_err(),
        &["TLS", "absent.key", "No such file"],
    );
    config.tls = Some(ServerTlsFiles {
        cert: issued.cert.clone(),
        key: issued.key.clone(),
        client_ca: Some(issued.key),
    });
    says(
        &Server::start(config).unwrap_err(),
        &["server.key", "BEGIN CERTIFICATE"],
    );
}
