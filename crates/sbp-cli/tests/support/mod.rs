//! The `sbp` binary and servers in processes of their own.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A server or proxy process that does not outlive the test.
pub(crate) struct Serving {
    child: Child,
    pub(crate) address: String,
    /// Kept, so that it can go on printing.
    output: Option<BufReader<ChildStdout>>,
}

impl Serving {
    pub(crate) fn start(dir: &Path, listen: &str) -> Self {
        Self::spawn(sbp(&["serve", "--listen", listen, "--data-dir"]).arg(dir))
    }

    /// Starts what prints the address it listens on.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line:?}"))
            .to_owned();
        Self {
            child,
            address,
            output: Some(output),
        }
    }

    /// Ends it with SIGTERM, as a user does, and returns what it has printed behind its address.
    pub(crate) fn end_and_read(mut self) -> String {
        let output = self.output.take();
        assert!(self.end(rustix::process::Signal::TERM).success());
        let mut printed = String::new();
        output.unwrap().read_to_string(&mut printed).unwrap();
        printed
    }

    /// Sends a signal to the process that this test started, and waits for its end.
    pub(crate) fn end(mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn sbp(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sbp"));
    command.args(arguments).env_remove("SBP_SERVERS").env_remove("SBP_LOG");
    command
}

/// Runs a command against the server, with `input` on its standard input.
pub(crate) fn run(server: &Serving, arguments: &[&str], input: &str) -> Output {
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

pub(crate) fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}
