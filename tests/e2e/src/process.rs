//! Servers in processes of their own, which can be killed.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sbp_server::{ForgetWriters, MetadataConfig, Roles, Server, ServerConfig};

use crate::wait::{LIMIT, until};

/// A process that serves at an address. It does not outlive its owner.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    /// Where it listens.
    pub address: String,
    /// What it prints goes on being printed: a closed pipe would end it.
    output: BufReader<ChildStdout>,
}

impl Serving {
    /// Starts what prints the address it listens on, and waits for that.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let lines = output.by_ref().lines().map_while(Result::ok);
        let address = lines.filter_map(|line| announced(&line)).next();
        Self {
            child,
            address: address.expect("it ended before it served"),
            output,
        }
    }

    /// Ends it with SIGTERM, as a user does, and returns what it has printed behind its address.
    pub fn end_and_read(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.wait().success());
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        printed
    }

    /// Sends it a signal, and waits for its end.
    pub fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it with SIGSTOP, and waits until each of its threads stands still: what it is sent from then on it has not read.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.child.id());
        until("a process to stand still", || {
            let mut threads = std::fs::read_dir(&threads).unwrap();
            let stands = threads.all(|thread| {
                let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
            });
            stands.then_some(())
        });
    }

    fn wait(&mut self) -> ExitStatus {
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

/// The address in what a server prints first; `None` for what the harness of a test prints before that.
fn announced(line: &str) -> Option<String> {
    if line.is_empty() || line == "running 1 test" {
        return None;
    }
    let said = line.split_once(" ... ").map_or(line, |(_, said)| said);
    let address = said.strip_prefix("listening on ");
    Some(address.unwrap_or_else(|| panic!("{line:?}")).to_owned())
}

/// This very test binary, to be started once more for one of its ignored tests. Its input ends with this process.
pub fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.stdin(Stdio::piped());
    command
}

const DATA_DIR: &str = "SBP_CHILD_DATA_DIR";
const LISTEN: &str = "SBP_CHILD_LISTEN";
const ADVERTISE: &str = "SBP_CHILD_ADVERTISE";
const ROLE: &str = "SBP_CHILD_ROLE";
const DRIVER: &str = "SBP_CHILD_DRIVER";
const METADATA: &str = "SBP_CHILD_METADATA";
const FORGET: &str = "SBP_CHILD_FORGET";
const SEGMENT_BYTES: &str = "SBP_CHILD_SEGMENT_BYTES";

/// How a server is started, and started again, as this test binary's ignored test `child::serve_until_killed`, which calls
/// [`serve_until_killed`].
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where its data is.
    pub dir: PathBuf,
    /// Where it listens, `127.0.0.1:0` for any port.
    pub listen: String,
    /// What it says its address is, if not where it listens.
    pub advertise: Option<String>,
    /// What it is.
    pub roles: Roles,
    /// Where its metadata are, if not in its directory.
    pub metadata: Option<String>,
    /// Which promise it breaks.
    pub forget: ForgetWriters,
    /// How large a segment of its log is.
    pub segment_bytes: Option<u64>,
}

impl Setup {
    /// A server with both roles that keeps its promises, on any port.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            roles: Roles::Both,
            metadata: None,
            forget: ForgetWriters::Never,
            segment_bytes: None,
        }
    }

    /// Starts the server, and waits until it serves.
    pub fn start(&self) -> Serving {
        let (role, driver) = match &self.roles {
            Roles::Both => ("both", String::new()),
            Roles::PlacementDriver => ("placement-driver", String::new()),
            Roles::RangeServer { placement_driver } => ("range-server", placement_driver.join(",")),
        };
        let segment_bytes = self.segment_bytes.map(|bytes| bytes.to_string());
        Serving::spawn(
            again("child::serve_until_killed")
                .env(DATA_DIR, &self.dir)
                .env(LISTEN, &self.listen)
                .env(ADVERTISE, self.advertise.as_deref().unwrap_or_default())
                .env(ROLE, role)
                .env(DRIVER, driver)
                .env(METADATA, self.metadata.as_deref().unwrap_or_default())
                .env(FORGET, format!("{:?}", self.forget))
                .env(SEGMENT_BYTES, segment_bytes.unwrap_or_default()),
        )
    }
}

/// The process that [`Setup::start`] starts: serves until it is killed, or the process that started it has ended.
pub fn serve_until_killed() {
    let Some(dir) = std::env::var_os(DATA_DIR) else {
        // Somebody runs all ignored tests.
        return;
    };
    let told = |name| Some(std::env::var(name).unwrap()).filter(|value| !value.is_empty());
    let forget = match told(FORGET).as_deref() {
        Some("AtStart") => ForgetWriters::AtStart,
        Some("OnRelease") => ForgetWriters::OnRelease,
        _ => ForgetWriters::Never,
    };
    let roles = match told(ROLE).as_deref() {
        Some("placement-driver") => Roles::PlacementDriver,
        Some("range-server") => Roles::RangeServer {
            placement_driver: told(DRIVER).unwrap_or_default().split(',').map(str::to_owned).collect(),
        },
        _ => Roles::Both,
    };
    let server = Server::start(ServerConfig {
        roles,
        metadata: told(METADATA).map(|location| MetadataConfig {
            location: location.parse().unwrap(),
            tls: None,
        }),
        data_dir: Some(dir.into()),
        listen: told(LISTEN).unwrap(),
        advertise: told(ADVERTISE),
        segment_bytes: told(SEGMENT_BYTES).map(|bytes| bytes.parse().unwrap()),
        forget_writers: forget,
        ..ServerConfig::default()
    })
    .unwrap();
    #[allow(clippy::print_stdout, reason = "whoever started this process reads it")]
    {
        println!("listening on {}", server.local_addr());
    }
    // Nobody writes: this waits until the other process has gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(1);
}
