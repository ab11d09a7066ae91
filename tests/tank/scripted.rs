//! The scripted broker as a process, for tests of crates that talk to one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sbp_peers::tank::{Broker, BrokerConfig};

/// A running broker.
pub(crate) struct Scripted {
    process: Child,
    pub(crate) port: String,
}

impl Scripted {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut process = Command::new("python3")
            .args(["-m", "tests.tank.broker"])
            .args(arguments)
            .current_dir(root)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut port = String::new();
        BufReader::new(process.stdout.take().expect("it is piped"))
            .read_line(&mut port)
            .expect("a port");
        let port = port.trim().to_owned();
        assert!(!port.is_empty(), "the broker did not start");
        Self { process, port }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn client(&self) -> Broker {
        let runtime = tokio::runtime::Handle::current();
        Broker::new(&self.address(), BrokerConfig::default(), runtime)
    }

    pub(crate) fn stop(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        // It may have been stopped before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
