//! Clients of TANK with `sbp serve --tank-listen` and `sbp gateway`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use sbp_e2e::process::Serving;
use sbp_e2e::wait::LIMIT;

use super::{run, sbp, serve, text};

/// A port that nobody listens at.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The client in Python.
fn python(arguments: &[&str]) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("python3");
    command
        .args(["-m", "tests.tank.client"])
        .args(arguments)
        .current_dir(root);
    command
}

fn serve_tank(dir: &Path, port: u16) -> Serving {
    let listen = format!("127.0.0.1:{port}");
    let arguments = [
        "serve",
        "--log",
        "warn",
        "--listen",
        "127.0.0.1:0",
        "--tank-listen",
        &listen,
        "--data-dir",
    ];
    Serving::spawn(sbp(&arguments).arg(dir))
}

/// What a process prints, line by line.
fn lines(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[test]
fn what_a_client_of_tank_was_acknowledged_survives_the_server_s_death() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut server = serve_tank(dir.path(), port);
    text(&run(&server, &["stream", "create", "t/0"], ""));
    let mut known: Vec<String> = Vec::new();
    for round in 1..=4 {
        let mut child = python(&[&port.to_string(), "0", "--produce", "t"]);
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        let acks = lines(child.stdout.take().unwrap());
        let mut acknowledged = 0;
        while acknowledged < 40 {
            assert_eq!(acks.recv_timeout(LIMIT).unwrap(), acknowledged.to_string());
            acknowledged += 1;
        }
        server.end(Signal::KILL);
        // What was acknowledged just before it died.
        acknowledged += acks.iter().count();
        child.wait().unwrap();
        server = serve_tank(dir.path(), port);
        let fetched = text(&run(&server, &["fetch", "t/0", "--format", "raw"], ""));
        let there: Vec<_> = fetched.lines().map(str::to_owned).collect();
        assert!(
            there.starts_with(&known),
            "what was there before has changed in round {round}"
        );
        let new = &there[known.len()..];
        // One more may be there, of which nobody was told.
        assert!(
            new.len() == acknowledged || new.len() == acknowledged + 1,
            "{} of {acknowledged}",
            new.len()
        );
        for (number, value) in new.iter().enumerate() {
            assert_eq!(*value, number.to_string());
        }
        known = there;
    }
    // In order, it ends its clients too.
    server.end_and_read();
}

#[test]
fn a_gateway_stands_in_front_of_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let mut gateway = sbp(&["gateway", "--log", "warn", "--tank-listen", "127.0.0.1:0"]);
    let mut gateway = gateway
        .env("SBP_SERVERS", &server.address)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let printed = lines(gateway.stdout.take().unwrap()).recv_timeout(LIMIT).unwrap();
    let port = printed.strip_prefix("TANK on 127.0.0.1:").unwrap();
    let output = python(&[port, "2"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text(&run(&server, &["stream", "list"], "")).contains("talk2/1"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&gateway), Signal::TERM).unwrap();
    assert!(gateway.wait().unwrap().success());
    // Where others could connect, it says so and does not start.
    let refused = sbp(&["gateway", "--servers", &server.address, "--tank-listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("--insecure-listen"),
        "{said}"
    );
}

/// Makes a token with these grants, in a file beside the names.
fn token_file(dir: &Path, name: &str, grants: &[&str]) -> String {
    let names = dir.join("names");
    let mut made = sbp(&["token", "create", name, "--auth", names.to_str().unwrap()]);
    for grant in grants {
        made.args(["--allow", grant]);
    }
    let file = dir.join(name);
    std::fs::write(&file, text(&made.output().unwrap())).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn clients_of_tank_may_do_what_their_token_may() {
    let dir = tempfile::tempdir().unwrap();
    let names = dir.path().join("names");
    let all = token_file(dir.path(), "all", &["read:*", "write:*", "admin:*"]);
    let reader = token_file(dir.path(), "reader", &["read:*"]);
    for (token, may_write) in [(Some(&all), true), (Some(&reader), false), (None, false)] {
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let data = tempfile::tempdir().unwrap();
        let mut command = sbp(&[
            "serve",
            "--log",
            "error",
            "--listen",
            "127.0.0.1:0",
            "--tank-listen",
            &listen,
        ]);
        command.arg("--auth").arg(&names);
        if let Some(token) = token {
            command.args(["--tank-token-file", token]);
        }
        let server = Serving::spawn(command.arg("--data-dir").arg(data.path()));
        let output = python(&[&port.to_string(), "2"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), may_write, "{token:?}: {said}");
        // Whoever may not is told so by its first request that changes something.
        assert!(may_write || said.contains("client.create"), "{said}");
        server.end_and_read();
    }
    // A token is no use without clients of TANK.
    let refused = sbp(&["serve", "--data-dir", "d", "--tank-token-file", &all])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--tank-listen"));
}
