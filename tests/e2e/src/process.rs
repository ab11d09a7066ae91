//! Servers in processes of their own, which can be killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use sbp_server::{ClusterTimes, ForgetWriters, MetadataConfig, Roles, Server, ServerConfig};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::wait::LIMIT;

/// Stops a child of this process, and returns when it stands still; SIGCONT has it go on. After a signal that was only sent, its
/// threads go on until each has taken it: what they are asked meanwhile meets no pause.
pub fn pause(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).unwrap();
    let (_, state) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(state.stopped(), "{state:?}");
}

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

    /// Has a server that [`Setup::start`] has started end in order, and waits for that. A signal would kill it.
    pub fn finish(mut self) -> ExitStatus {
        self.child.stdin.take().unwrap().write_all(b".").unwrap();
        self.wait()
    }

    /// Sends it a signal, and waits for its end.
    pub fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }

    /// Stops it, and returns when it stands still.
    pub fn pause(&self) {
        pause(&self.child);
    }

    /// Sends it a signal; to stop it, [`pause`](Self::pause) it.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
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

/// A server that is killed and comes back, at the same address.
#[derive(Debug)]
pub struct Lasting {
    setup: Setup,
    process: Option<Serving>,
}

impl Lasting {
    /// Starts it. It listens at the same address each time.
    pub fn start(mut setup: Setup) -> Self {
        let process = setup.start();
        setup.listen.clone_from(&process.address);
        Self {
            setup,
            process: Some(process),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.setup.listen
    }

    /// Where its data is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.setup.dir
    }

    /// Its process, if it was not killed.
    #[must_use]
    pub fn process(&self) -> Option<&Serving> {
        self.process.as_ref()
    }

    /// Ends it as SIGKILL does.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.end(Signal::KILL);
        }
    }

    /// Starts it again.
    pub fn restart(&mut self) {
        self.process = Some(self.setup.start());
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
const RETENTION: &str = "SBP_CHILD_RETENTION_MS";
const RENEW_AFTER: &str = "SBP_CHILD_RENEW_AFTER_MS";
const REPLACE_AFTER: &str = "SBP_CHILD_REPLACE_AFTER_MS";

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
    /// How often it removes what need not be kept, if that is not as usual.
    pub retention_interval: Option<Duration>,
    /// When it does something about servers that are away; the rest of these times are the usual ones.
    pub cluster: ClusterTimes,
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
            retention_interval: None,
            cluster: ClusterTimes::default(),
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
        let retention = self.retention_interval.map(|interval| interval.as_millis().to_string());
        Serving::spawn(
            again("child::serve_until_killed")
                .env(DATA_DIR, &self.dir)
                .env(LISTEN, &self.listen)
                .env(ADVERTISE, self.advertise.as_deref().unwrap_or_default())
                .env(ROLE, role)
                .env(DRIVER, driver)
                .env(METADATA, self.metadata.as_deref().unwrap_or_default())
                .env(FORGET, format!("{:?}", self.forget))
                .env(SEGMENT_BYTES, segment_bytes.unwrap_or_default())
                .env(RETENTION, retention.unwrap_or_default())
                .env(RENEW_AFTER, self.cluster.renew_after.as_millis().to_string())
                .env(REPLACE_AFTER, self.cluster.replace_after.as_millis().to_string()),
        )
    }
}

/// Where servers in processes of their own write what they log, each into a file named after its directory; nothing is
/// written without this variable.
const LOG: &str = "SBP_TEST_LOG";

fn begin_log(dir: &Path) {
    let Some(logs) = std::env::var_os(LOG) else { return };
    let name = Path::new(dir.file_name().unwrap()).with_extension("log");
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(Path::new(&logs).join(name));
    let file = std::sync::Mutex::new(file.unwrap());
    // What the connections to an etcd are made of says nothing of the server.
    let ours = Targets::new()
        .with_default(tracing::Level::DEBUG)
        .with_target("h2", tracing::Level::INFO);
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(file);
    tracing_subscriber::registry().with(lines.with_filter(ours)).init();
}

/// The process that [`Setup::start`] starts: serves until it is killed, [told to end](Serving::finish), or the process that started it
/// has ended.
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
    begin_log(Path::new(&dir));
    let time = |name| Duration::from_millis(told(name).unwrap().parse().unwrap());
    let usual = ServerConfig::default();
    let retention_interval = told(RETENTION).map(|interval| Duration::from_millis(interval.parse().unwrap()));
    let server = Server::start(ServerConfig {
        roles,
        retention_interval: retention_interval.unwrap_or(usual.retention_interval),
        cluster: ClusterTimes {
            renew_after: time(RENEW_AFTER),
            replace_after: time(REPLACE_AFTER),
            ..ClusterTimes::default()
        },
        metadata: told(METADATA).map(|location| MetadataConfig {
            location: location.parse().unwrap(),
            tls: None,
        }),
        data_dir: Some(dir.into()),
        listen: told(LISTEN).unwrap(),
        advertise: told(ADVERTISE),
        segment_bytes: told(SEGMENT_BYTES).map(|bytes| bytes.parse().unwrap()),
        forget_writers: forget,
        ..usual
    })
    .unwrap();
    #[allow(clippy::print_stdout, reason = "whoever started this process reads it")]
    {
        println!("listening on {}", server.local_addr());
    }
    // This waits until it is told to end, or the other process has gone.
    match std::io::stdin().read(&mut [0]) {
        Ok(1) => {
            server.shutdown().unwrap();
            std::process::exit(0);
        }
        _ => std::process::exit(1),
    }
}
