//! The command `sbp`, as a program.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod backup;
mod cursor;
mod directory;
mod import;
mod import_pravega;
mod logs;
mod manage;
mod pages;
mod pravega;
mod proxy;
mod records;
mod roles;
mod seastar;
mod settings;
mod tank;
mod tls;
mod token;
mod watch;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sbp_e2e::process::Serving;

fn sbp(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sbp"));
    command
        .args(arguments)
        .env_remove("SBP_SERVERS")
        .env_remove("SBP_AUTH")
        .env_remove("SBP_TOKEN")
        .env_remove("SBP_TOKEN_FILE")
        .env_remove("SBP_LOG")
        .env_remove("SBP_LOG_FORMAT")
        .env_remove("SBP_HTTP");
    for variable in [
        "SBP_TLS_CA",
        "SBP_TLS_CERT",
        "SBP_TLS_KEY",
        "SBP_TLS_SERVER_NAME",
        "SSL_CERT_FILE",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Starts `sbp serve` with its data in a directory.
fn serve(dir: &Path, listen: &str) -> Serving {
    Serving::spawn(sbp(&["serve", "--log", "warn", "--listen", listen, "--data-dir"]).arg(dir))
}

/// Runs a command against the server, with `input` on its standard input.
fn run(server: &Serving, arguments: &[&str], input: &str) -> Output {
    let mut child = sbp(arguments)
        .args(["--timeout", "20s"])
        .env("SBP_SERVERS", &server.address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}
