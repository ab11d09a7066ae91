//! Which data directory the server has open that listens at an address of this machine, as the kernel tells it.
//!
//! The server itself is not asked: what a peer says of paths need not be true of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use procfs::{ProcError, ProcResult};

use crate::error::CliError;

/// The file that a running server keeps open and locked in its data directory.
const LOCK: &str = "lock";
/// The file by which a data directory is known.
const SUPERBLOCK: &str = "superblock";

/// The address that this names, if it is no file: a host and a port.
pub(crate) fn as_address(source: &Path) -> Option<&str> {
    let text = source.to_str()?;
    let (host, port) = text.rsplit_once(':')?;
    let is_address = !host.is_empty() && !text.contains('/') && port.parse::<u16>().is_ok();
    (is_address && !source.exists()).then_some(text)
}

/// The data directory of the server that listens there.
///
/// # Errors
///
/// When no process of this machine listens there, when it belongs to another user, or when it has no data directory open that
/// is found here, or several.
pub(crate) fn data_directory(address: &str) -> Result<PathBuf, CliError> {
    find(address).map_err(|reason| CliError::NoLocalServer {
        address: address.to_owned(),
        reason,
    })
}

fn find(address: &str) -> Result<PathBuf, String> {
    let wanted: Vec<SocketAddr> = address.to_socket_addrs().map_err(told)?.collect();
    let sockets = listening(&wanted).map_err(told)?;
    if sockets.is_empty() {
        return Err(
            "no process of this machine listens there; a backup is made on the server's machine, with its files".into(),
        );
    }
    let open = directories(&sockets).map_err(told)?;
    // Once where several processes share the socket and the directory, as after a fork.
    let mut found = open.values().flatten().collect::<BTreeSet<_>>().into_iter();
    match (found.next(), found.next()) {
        (Some(directory), None) => Ok(directory.clone()),
        (Some(first), Some(second)) => Err(format!(
            "the process that listens there has several data directories open, such as {} and {}: name the one that is meant",
            first.display(),
            second.display()
        )),
        (None, _) => Err(match open.keys().next() {
            Some(process) => format!(
                "process {process} listens there, and has no data directory open that is found here: it is no SBP server, or \
                 sees other files, as in a container; run the command where its files are, or name the directory"
            ),
            None => "the process that listens there belongs to another user, or runs in another container: run the command as \
                     its user or as root, or name the directory"
                .to_owned(),
        }),
    }
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// The sockets, by their inodes, that accept connections to one of these addresses.
fn listening(wanted: &[SocketAddr]) -> ProcResult<BTreeSet<u64>> {
    let mut sockets = procfs::net::tcp()?;
    match procfs::net::tcp6() {
        Ok(more) => sockets.extend(more),
        // A machine without IPv6.
        Err(ProcError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    let listening = sockets.into_iter().filter(|socket| {
        let accepts = |wanted: &SocketAddr| accepts(socket.local_address, *wanted);
        socket.state == TcpState::Listen && wanted.iter().any(accepts)
    });
    Ok(listening.map(|socket| socket.inode).collect())
}

/// Whether connections to an address go to the socket that listens at `local`.
fn accepts(local: SocketAddr, wanted: SocketAddr) -> bool {
    let (at, of) = (local.ip().to_canonical(), wanted.ip().to_canonical());
    local.port() == wanted.port() && (at == of || at.is_unspecified() && is_of_this_machine(of))
}

/// Only an address of this machine can be bound.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The data directories that the processes with one of these sockets have open, by process.
fn directories(sockets: &BTreeSet<u64>) -> ProcResult<BTreeMap<i32, BTreeSet<PathBuf>>> {
    let mut found = BTreeMap::new();
    for process in procfs::process::all_processes()?.flatten() {
        // A process that ends meanwhile, or whose files this user may not see, is passed over.
        if let Ok(targets) = targets(&process)
            && targets
                .iter()
                .any(|(_, target)| matches!(target, FDTarget::Socket(inode) if sockets.contains(inode)))
        {
            let open = targets
                .iter()
                .filter_map(|(descriptor, target)| data_directory_with(&process, *descriptor, target));
            found.insert(process.pid(), open.collect());
        }
    }
    Ok(found)
}

fn targets(process: &Process) -> ProcResult<Vec<(i32, FDTarget)>> {
    let descriptors = process.fd()?.flatten();
    Ok(descriptors.map(|open| (open.fd, open.target)).collect())
}

/// The data directory, if this is the lock of one, and the same file here as in that process.
fn data_directory_with(process: &Process, descriptor: i32, target: &FDTarget) -> Option<PathBuf> {
    let FDTarget::Path(path) = target else {
        return None;
    };
    let directory = path.parent()?;
    if path.file_name()? != LOCK || !directory.join(SUPERBLOCK).is_file() {
        return None;
    }
    let there = fs::metadata(format!("/proc/{}/fd/{descriptor}", process.pid())).ok()?;
    let here = fs::metadata(path).ok()?;
    let is_same = (there.dev(), there.ino()) == (here.dev(), here.ino());
    is_same.then(|| directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::accepts;

    #[test]
    fn a_socket_accepts_what_is_dialled_at_its_address_and_an_unspecified_one_at_all_of_this_machine() {
        for (local, wanted, expected) in [
            ("127.0.0.1:7", "127.0.0.1:7", true),
            ("127.0.0.1:7", "127.0.0.1:8", false),
            ("127.0.0.1:7", "127.0.0.2:7", false),
            ("0.0.0.0:7", "127.0.0.1:7", true),
            ("[::]:7", "127.0.0.1:7", true),
            ("[::ffff:127.0.0.1]:7", "127.0.0.1:7", true),
            // No interface has an address that is kept for documentation.
            ("0.0.0.0:7", "192.0.2.1:7", false),
        ] {
            let accepted = accepts(local.parse().unwrap(), wanted.parse().unwrap());
            assert_eq!(accepted, expected, "{local} {wanted}");
        }
    }
}
