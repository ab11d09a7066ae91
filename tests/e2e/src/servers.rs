//! Servers in this process.

use std::path::Path;
use std::time::Duration;

use sbp_server::{Durability, Server, ServerConfig};

/// A server with its data in a directory, or without one in a temporary directory of its own.
pub fn config(directory: Option<&Path>) -> ServerConfig {
    ServerConfig {
        data_dir: directory.map(Path::to_owned),
        shutdown_grace: Duration::from_secs(2),
        ..ServerConfig::default()
    }
}

/// Starts a server with [`config`].
pub fn start(directory: Option<&Path>) -> Server {
    Server::start(config(directory)).unwrap()
}

/// A server at an address, `127.0.0.1:0` for any, which does not wait for the disk and is shut down quickly.
pub fn quick_config(directory: Option<&Path>, listen: &str) -> ServerConfig {
    ServerConfig {
        listen: listen.to_owned(),
        durability: Durability::None,
        shutdown_grace: Duration::from_millis(500),
        ..config(directory)
    }
}

/// Starts a server with [`quick_config`].
pub fn quick(directory: Option<&Path>, listen: &str) -> Server {
    Server::start(quick_config(directory, listen)).unwrap()
}

/// Starts a server with [`quick_config`] that keeps nothing longer than the test.
pub fn quick_anywhere() -> Server {
    quick(None, "127.0.0.1:0")
}

/// Copies a directory with all that is in it.
pub fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_all(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
