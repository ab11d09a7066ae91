//! TLS as one meets it on the command line: certificates for a try-out, servers, clients, a cluster.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use sbp_e2e::process::Serving;
use sbp_e2e::wait::until;
use tempfile::TempDir;

use super::{sbp, text};

/// A directory with certificates, and one for data.
struct Setting {
    dir: TempDir,
}

impl Setting {
    fn new() -> Self {
        let setting = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        setting.issue();
        setting
    }

    /// Makes certificates, or new ones of the same authority.
    fn issue(&self) {
        let made = sbp(&["tls", "dev"]).arg(self.dir.path().join("tls")).output().unwrap();
        assert!(text(&made).contains("ca.crt"));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("tls").join(name)
    }

    /// Arguments that name files.
    fn with<'a>(&self, command: &'a mut Command, named: &[(&str, &str)]) -> &'a mut Command {
        for (flag, name) in named {
            command.arg(flag).arg(self.file(name));
        }
        command
    }

    fn serve(&self, data: &str, named: &[(&str, &str)], more: &[&str]) -> Serving {
        let mut command = sbp(&["serve", "--log", "error", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(self.dir.path().join(data)).args(more);
        Serving::spawn(self.with(&mut command, named))
    }
}

const SERVER: [(&str, &str); 2] = [("--tls-cert", "server.crt"), ("--tls-key", "server.key")];
const MUTUAL: [(&str, &str); 3] = [SERVER[0], SERVER[1], ("--tls-client-ca", "ca.crt")];
const CLIENT: [(&str, &str); 3] = [
    ("--tls-ca", "ca.crt"),
    ("--tls-cert", "client.crt"),
    ("--tls-key", "client.key"),
];

fn complaint(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_of_a_try_out_are_their_owners_alone() {
    let setting = Setting::new();
    assert_eq!(mode(&setting.dir.path().join("tls")), 0o700);
    for name in ["ca", "server", "client"] {
        assert_eq!(mode(&setting.file(&format!("{name}.key"))), 0o600, "{name}");
    }
}

#[test]
fn a_client_with_its_certificate_appends_and_reads() {
    let setting = Setting::new();
    let server = setting.serve("data", &MUTUAL, &[]);
    assert!(server.address.starts_with("sbps://127.0.0.1:"), "{}", server.address);
    let sbp = |arguments: &[&str]| {
        let mut command = sbp(arguments);
        command.args(["--timeout", "20s", "--servers", &server.address]);
        command
    };
    for arguments in [
        &["stream", "create", "orders"][..],
        &["append", "orders", "--data", "first"],
    ] {
        text(&setting.with(&mut sbp(arguments), &CLIENT).output().unwrap());
    }
    // The same by variables of the environment, and plain addresses use what they say.
    let mut fetch = super::sbp(&["fetch", "orders", "--format", "raw", "--servers"]);
    fetch.arg(server.address.trim_start_matches("sbps://"));
    for (variable, name) in [
        ("SBP_TLS_CA", "ca.crt"),
        ("SBP_TLS_CERT", "client.crt"),
        ("SBP_TLS_KEY", "client.key"),
    ] {
        fetch.env(variable, setting.file(name));
    }
    assert_eq!(text(&fetch.output().unwrap()), "first\n");
    // Who shows none is told so, at once.
    let mut nobody = sbp(&["ping"]);
    let told = complaint(&setting.with(&mut nobody, &CLIENT[..1]).output().unwrap());
    assert!(told.contains("asks for a client certificate"), "{told}");
    // A name that the certificate is not for.
    let mut other = sbp(&["ping", "--tls-server-name", "db.example.com"]);
    let told = complaint(&setting.with(&mut other, &CLIENT).output().unwrap());
    assert!(
        told.contains("db.example.com") && told.contains("localhost, 127.0.0.1, ::1"),
        "{told}"
    );
    // A certificate goes with its key.
    let mut half = sbp(&["ping"]);
    let told = complaint(&setting.with(&mut half, &CLIENT[..2]).output().unwrap());
    assert!(told.contains("--tls-key"), "{told}");
}

#[test]
fn the_authorities_of_the_machine_count_where_none_is_named() {
    let setting = Setting::new();
    let server = setting.serve("data", &SERVER, &[]);
    let ping = || sbp(&["ping", "-n", "1", "--servers", &server.address]);
    let told = complaint(&ping().output().unwrap());
    assert!(told.contains("sbp tls dev") || told.contains("trusts"), "{told}");
    // How this machine's list is replaced on Linux, for one program.
    text(&ping().env("SSL_CERT_FILE", setting.file("ca.crt")).output().unwrap());
}

#[test]
fn certificates_are_read_again_on_sighup() {
    let setting = Setting::new();
    let server = setting.serve("data", &SERVER, &[]);
    let ping = || {
        let mut command = sbp(&["ping", "-n", "1", "--servers", &server.address]);
        setting.with(&mut command, &CLIENT[..1]).output().unwrap()
    };
    text(&ping());
    // Another authority, and certificates of it: who trusts that one alone is served only after they were read.
    for name in ["ca.crt", "ca.key"] {
        std::fs::remove_file(setting.file(name)).unwrap();
    }
    setting.issue();
    server.signal(Signal::HUP);
    until("the new certificates", || ping().status.success().then_some(()));
}

#[test]
fn servers_of_a_cluster_show_each_other_their_certificates() {
    let setting = Setting::new();
    let driver = setting.serve("pd", &MUTUAL, &["--role", "placement-driver"]);
    let range_server = |data: &str, named: &[(&str, &str)]| {
        let role = ["--role", "range-server", "--placement-driver", &driver.address];
        setting.serve(data, named, &role)
    };
    let first = range_server("rs1", &MUTUAL);
    let second = range_server("rs2", &MUTUAL);
    let sbp = |arguments: &[&str]| {
        let mut command = sbp(arguments);
        command.args(["--timeout", "20s", "--servers", &driver.address]);
        setting.with(&mut command, &CLIENT).output().unwrap()
    };
    for name in ["a", "b", "c", "d"] {
        until("a range server", || {
            sbp(&["stream", "create", name]).status.success().then_some(())
        });
        text(&sbp(&["append", name, "--data", name]));
        assert_eq!(text(&sbp(&["fetch", name, "--format", "raw"])), format!("{name}\n"));
    }
    drop((first, second));
}
