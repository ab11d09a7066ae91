//! Real etcds: members in processes of their own, on ports of loopback and in a temporary directory.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::pause;
use crate::wait::PATIENCE;

/// How often ports are chosen: others may take them before a member listens there.
const ATTEMPTS: usize = 5;

/// An etcd with one member or several. It does not outlive its owner.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<EtcdMember>,
    directory: tempfile::TempDir,
}

#[derive(Debug)]
struct EtcdMember {
    process: Option<Child>,
    client: String,
    arguments: Vec<String>,
}

impl Drop for EtcdMember {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Etcd {
    /// Starts so many members, and waits until each answers.
    pub fn start(members: usize) -> Self {
        for _attempt in 0..ATTEMPTS {
            let directory = tempfile::tempdir().unwrap();
            let mut etcd = Self {
                members: plan(members, directory.path()),
                directory,
            };
            for index in 0..members {
                etcd.start_member(index);
            }
            if etcd.wait_until_all_listen() {
                return etcd;
            }
        }
        panic!("etcd did not start; its last words are in the output above");
    }

    /// `host:port` of each member, for its clients.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.clone()).collect()
    }

    /// Where the metadata of a cluster of this name are in it.
    pub fn location(&self, name: &str) -> String {
        format!("etcd://{}/{name}", self.addresses().join(","))
    }

    /// Starts a member, in its directory.
    pub fn start_member(&mut self, index: usize) {
        let member = &mut self.members[index];
        let output = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory.path().join(format!("{index}.log")))
            .unwrap();
        let started = Command::new("etcd")
            .args(&member.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn();
        let process = started.unwrap_or_else(|error| {
            panic!("etcd cannot be started ({error}): install it with `apt-get install etcd-server`")
        });
        member.process = Some(process);
    }

    /// Kills a member, and waits for its end.
    pub fn kill(&mut self, index: usize) {
        let mut process = self.members[index].process.take().expect("it runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Copies the directory of a member that does not run, as a snapshot does.
    pub fn copy(&self, index: usize) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_directory(&self.data(index), copy.path());
        copy
    }

    /// Puts such a copy in the place of the directory of a member that does not run, and returns what was there.
    pub fn put_back(&self, index: usize, copy: &tempfile::TempDir) -> tempfile::TempDir {
        let before = self.copy(index);
        fs::remove_dir_all(self.data(index)).unwrap();
        copy_directory(copy.path(), &self.data(index));
        before
    }

    fn data(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("m{index}"))
    }

    /// Stops a member's process in its tracks, without its end: connections to it stay, and nobody answers.
    pub fn pause(&self, index: usize) {
        pause(self.process(index));
    }

    /// Lets it go on.
    pub fn go_on(&self, index: usize) {
        kill_process(Pid::from_child(self.process(index)), Signal::CONT).unwrap();
    }

    fn process(&self, index: usize) -> &Child {
        self.members[index].process.as_ref().expect("it runs")
    }

    /// Whether all members listened in time; if not, what they said is printed.
    fn wait_until_all_listen(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            while TcpStream::connect(&member.client).is_err() {
                let ended = member.process.as_mut().expect("it runs").try_wait().unwrap();
                if ended.is_some() || Instant::now() > deadline {
                    let log = self.directory.path().join(format!("{index}.log"));
                    #[allow(clippy::print_stderr, reason = "the harness shows it where the test fails")]
                    {
                        eprintln!("etcd member {index}: {}", fs::read_to_string(log).unwrap());
                    }
                    return false;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        true
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let there = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &there);
        } else {
            fs::copy(entry.path(), there).unwrap();
        }
    }
}

/// The members with ports that were free a moment ago.
fn plan(count: usize, directory: &Path) -> Vec<EtcdMember> {
    // All are taken before any is let go, so that they differ.
    let free: Vec<_> = (0..2 * count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let addresses: Vec<_> = free
        .iter()
        .map(|listener| listener.local_addr().unwrap().to_string())
        .collect();
    let (clients, peers) = addresses.split_at(count);
    let all: Vec<_> = peers
        .iter()
        .enumerate()
        .map(|(index, peer)| format!("m{index}=http://{peer}"))
        .collect();
    let member = |index: usize| {
        let (client, peer) = (&clients[index], &peers[index]);
        let arguments = [
            format!("--name=m{index}"),
            format!("--data-dir={}", directory.join(format!("m{index}")).display()),
            format!("--listen-client-urls=http://{client}"),
            format!("--advertise-client-urls=http://{client}"),
            format!("--listen-peer-urls=http://{peer}"),
            format!("--initial-advertise-peer-urls=http://{peer}"),
            format!("--initial-cluster={}", all.join(",")),
            "--initial-cluster-state=new".to_owned(),
            "--logger=zap".to_owned(),
            "--log-outputs=stderr".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        EtcdMember {
            process: None,
            client: client.clone(),
            arguments: arguments.into(),
        }
    };
    (0..count).map(member).collect()
}
