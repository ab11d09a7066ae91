//! A server in a process of its own, which can be killed: this very test binary, started once more.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sbp_server::{ForgetWriters, Server, ServerConfig};

const DATA_DIR: &str = "SBP_TRIAL_DATA_DIR";
const LISTEN: &str = "SBP_TRIAL_LISTEN";
const ADVERTISE: &str = "SBP_TRIAL_ADVERTISE";
const FORGET: &str = "SBP_TRIAL_FORGET";

/// Small, so that a trial fills many and trims delete them.
const SEGMENT_BYTES: u64 = 1 << 20;

/// A server process. It does not outlive its owner.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: String,
}

impl ServerProcess {
    /// Starts a server, and waits until it serves.
    pub(crate) fn start(dir: &Path, listen: &str, advertise: &str, forget: ForgetWriters) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child::serve_until_killed", "--exact", "--ignored", "--nocapture"])
            .env(DATA_DIR, dir)
            .env(LISTEN, listen)
            .env(ADVERTISE, advertise)
            .env(FORGET, format!("{forget:?}"))
            // Ends with this process, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()))
            .expect("the server did not start");
        Self { child, address }
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the server process that the trials start"]
fn serve_until_killed() {
    let Some(dir) = std::env::var_os(DATA_DIR) else {
        // Somebody runs all ignored tests.
        return;
    };
    let forget = match std::env::var(FORGET).unwrap().as_str() {
        "AtStart" => ForgetWriters::AtStart,
        "OnRelease" => ForgetWriters::OnRelease,
        _ => ForgetWriters::Never,
    };
    let server = Server::start(ServerConfig {
        data_dir: Some(dir.into()),
        listen: std::env::var(LISTEN).unwrap(),
        advertise: Some(std::env::var(ADVERTISE).unwrap()),
        segment_bytes: Some(SEGMENT_BYTES),
        forget_writers: forget,
        ..ServerConfig::default()
    })
    .unwrap();
    println!("listening on {}", server.local_addr());
    // Nobody writes: this waits until the other process has gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(1);
}
