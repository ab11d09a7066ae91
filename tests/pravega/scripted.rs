//! The scripted segment store as a process, for tests of crates that talk to one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sbp_peers::pravega::{Pravega, PravegaConfig};

/// A running store.
pub(crate) struct Scripted {
    process: Child,
    pub(crate) address: String,
}

impl Scripted {
    pub(crate) fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut process = Command::new("python3")
            .args(["-m", "tests.pravega.store"])
            .current_dir(root)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut port = String::new();
        BufReader::new(process.stdout.take().expect("it is piped"))
            .read_line(&mut port)
            .expect("a port");
        assert!(!port.trim().is_empty(), "the store did not start");
        let address = format!("127.0.0.1:{}", port.trim());
        Self { process, address }
    }

    pub(crate) fn client(&self) -> Pravega {
        let runtime = tokio::runtime::Handle::current();
        Pravega::direct(&self.address, PravegaConfig::default(), runtime)
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
