//! A server in a process of its own, which can be killed: this very test binary, started once more.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use sbp_server::{ForgetWriters, Roles, Server, ServerConfig};

const DATA_DIR: &str = "SBP_TRIAL_DATA_DIR";
const LISTEN: &str = "SBP_TRIAL_LISTEN";
const ADVERTISE: &str = "SBP_TRIAL_ADVERTISE";
const ROLE: &str = "SBP_TRIAL_ROLE";
const DRIVER: &str = "SBP_TRIAL_DRIVER";
const FORGET: &str = "SBP_TRIAL_FORGET";

/// Small, so that a trial fills many and trims delete them.
const SEGMENT_BYTES: u64 = 1 << 20;

/// How a server is started, and started again.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) dir: PathBuf,
    pub(crate) listen: String,
    pub(crate) advertise: Option<String>,
    pub(crate) roles: Roles,
    pub(crate) forget: ForgetWriters,
}

/// A server process. It does not outlive its owner.
pub(crate) struct ServerProcess {
    child: Child,
    /// What it prints is not read any more, but a closed pipe would end it: the test harness in it has its own to say after
    /// a minute.
    _prints: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl ServerProcess {
    /// Starts a server, and waits until it serves.
    pub(crate) fn start(setup: &Setup) -> Self {
        let (role, driver) = match &setup.roles {
            Roles::Both => ("both", String::new()),
            Roles::PlacementDriver => ("placement-driver", String::new()),
            Roles::RangeServer { placement_driver } => ("range-server", placement_driver.join(",")),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child::serve_until_killed", "--exact", "--ignored", "--nocapture"])
            .env(DATA_DIR, &setup.dir)
            .env(LISTEN, &setup.listen)
            .env(ADVERTISE, setup.advertise.as_deref().unwrap_or_default())
            .env(ROLE, role)
            .env(DRIVER, driver)
            .env(FORGET, format!("{:?}", setup.forget))
            // Ends with this process, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut prints = BufReader::new(child.stdout.take().unwrap());
        let lines = prints.by_ref().lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()))
            .expect("the server did not start");
        Self {
            child,
            _prints: prints,
            address,
        }
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
    let roles = match std::env::var(ROLE).unwrap().as_str() {
        "placement-driver" => Roles::PlacementDriver,
        "range-server" => Roles::RangeServer {
            placement_driver: vec![std::env::var(DRIVER).unwrap()],
        },
        _ => Roles::Both,
    };
    let advertise = std::env::var(ADVERTISE).unwrap();
    let server = Server::start(ServerConfig {
        roles,
        data_dir: Some(dir.into()),
        listen: std::env::var(LISTEN).unwrap(),
        advertise: (!advertise.is_empty()).then_some(advertise),
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
