//! The simulated file system.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sbp_locks::Mutex;

use crate::delay::{Delays, Held};
use crate::disk::{Disk, Fault, NameChange, Operation, OperationOutcome, Survival, power_is_off};
use crate::node::Node;
use sbp_log::{File, FileLock, FileSystem, OpenMode, Space};

/// A file system in memory that can lose power. Clones share the disk.
#[derive(Clone, Debug, Default)]
pub struct SimFileSystem(Arc<Mutex<Disk>>, Arc<Delays>);

impl SimFileSystem {
    /// An empty disk without delays.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The power fails during the operation with this number, counted from 1. This operation and all later ones fail.
    pub fn power_off_at(&self, operation: u64) {
        self.0.lock().power_off_at = Some(operation);
    }

    /// The power fails now.
    pub fn power_off(&self) {
        self.0.lock().off = true;
    }

    /// Operations so far: creating, writing, reserving, syncing, renaming, removing.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// A description of each operation so far, to be shown by a failing test.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.0.lock().trace.clone()
    }

    /// From now on syncs succeed but do nothing, as on a disk that lies.
    pub fn ignore_syncs(&self) {
        self.0.lock().syncs_do_nothing = true;
    }

    /// After `after` more successful operations of a kind, one fails with `kind`. A failed sync makes its bytes look
    /// clean, so no later sync saves them.
    pub fn fail(&self, operation: Operation, after: u64, kind: io::ErrorKind) {
        self.push_fault(operation, "", after, kind);
    }

    /// The next operation of a kind on a file whose name contains `name` fails with `kind`. For logs with threads
    /// beside their writer's, any of which may come with the next operation of that kind on some other file.
    pub fn fail_on(&self, operation: Operation, name: &str, kind: io::ErrorKind) {
        self.push_fault(operation, name, 0, kind);
    }

    fn push_fault(&self, operation: Operation, name: &str, after: u64, kind: io::ErrorKind) {
        let name = name.to_owned();
        self.0.lock().faults.push(Fault {
            operation,
            name,
            after,
            kind,
        });
    }

    /// From now on every operation of a kind on files whose name contains `name` waits until the result is dropped.
    /// Threads that do not need those operations go on.
    #[must_use = "the operations go on when it is dropped"]
    pub fn hold(&self, operation: Operation, name: &str) -> Held {
        Delays::hold(&self.1, operation, name)
    }

    /// The bytes that fit on the disk; `None` for any number.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.0.lock().capacity = capacity;
    }

    /// The bytes that all files take.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// How many sectors, lengths and names a power cut now would decide about.
    #[must_use]
    pub fn uncertain(&self) -> usize {
        self.0.lock().uncertain()
    }

    /// The disk that the next start finds if the power fails now. This one is left as it is.
    #[must_use]
    pub fn power_cut(&self, survival: Survival) -> Self {
        match survival {
            Survival::Nothing => self.cut_by(&mut |_| 0),
            Survival::Everything => self.cut_by(&mut |n| n - 1),
            Survival::Random(seed) => {
                let mut random = fastrand::Rng::with_seed(seed);
                self.cut_by(&mut |n| random.usize(..n))
            }
        }
    }

    /// Every disk that the next start may find if the power fails now, if there are at most `limit`; else `limit` of
    /// them: one with nothing that was not synced, one with everything, and random ones from `seed`.
    #[must_use]
    pub fn power_cuts(&self, limit: usize, seed: u64) -> Vec<Self> {
        let mut sizes = Vec::new();
        let first = self.cut_by(&mut |n| {
            sizes.push(n);
            0
        });
        let all = sizes
            .iter()
            .try_fold(1usize, |product, n| product.checked_mul(*n))
            .filter(|all| *all <= limit);
        let mut cuts = vec![first];
        match all {
            Some(all) => {
                for number in 1..all {
                    let mut rest = number;
                    cuts.push(self.cut_by(&mut |n| {
                        let choice = rest % n;
                        rest /= n;
                        choice
                    }));
                }
            }
            None => {
                cuts.push(self.power_cut(Survival::Everything));
                let random = (0..limit.saturating_sub(2) as u64).map(|n| Survival::Random(seed.wrapping_add(n)));
                cuts.extend(random.map(|survival| self.power_cut(survival)));
            }
        }
        cuts
    }

    /// The disk that the next start finds if the process ends now, or ended when the power seemed to fail, and the
    /// system goes on: everything is there, but what was not synced is still not synced.
    #[must_use]
    pub fn process_death(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().outlive())), Arc::default())
    }

    fn cut_by(&self, choose: &mut dyn FnMut(usize) -> usize) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().survive(choose))), Arc::default())
    }

    /// A file's bytes as a reader sees them.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let disk = self.0.lock();
        let node = disk
            .names
            .get(path)
            .and_then(|node| disk.nodes.get(node))
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(node.bytes.clone())
    }

    /// Changes a file durably without the log knowing, to simulate damage.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut bytes = self.contents(path)?;
        change(&mut bytes);
        let mut disk = self.0.lock();
        let number = *disk.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        disk.nodes.insert(number, Node::synced(bytes));
        Ok(())
    }
}

impl FileSystem for SimFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if !matches!(mode, OpenMode::Existing | OpenMode::Reading) {
            self.1.wait(Operation::Create, path);
        }
        let mut disk = self.0.lock();
        if disk.off {
            return Err(power_is_off());
        }
        let there = disk.names.get(path).copied();
        let node = match (there, mode) {
            (Some(node), OpenMode::Reading | OpenMode::Existing | OpenMode::OrCreate) => node,
            (None, OpenMode::Reading | OpenMode::Existing) => return Err(io::ErrorKind::NotFound.into()),
            (there, OpenMode::OrCreate | OpenMode::Truncate) => {
                let verdict = disk.begin(Operation::Create, path);
                if let OperationOutcome::Fail(error) = verdict {
                    return Err(error);
                }
                let node = match there {
                    Some(node) => node,
                    None => {
                        let node = disk.new_node();
                        disk.change(NameChange::Set(path.to_owned(), node));
                        node
                    }
                };
                disk.nodes.entry(node).or_default().set_len(0);
                done(&verdict)?;
                node
            }
        };
        Ok(Arc::new(SimFile {
            disk: self.0.clone(),
            delays: self.1.clone(),
            path: path.to_owned(),
            node,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.1.wait(Operation::Rename, to);
        let mut disk = self.0.lock();
        let verdict = disk.begin(Operation::Rename, to);
        if let OperationOutcome::Fail(error) = verdict {
            return Err(error);
        }
        let node = *disk.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        disk.change(NameChange::Rename(from.to_owned(), to.to_owned(), node));
        done(&verdict)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.1.wait(Operation::Remove, path);
        let mut disk = self.0.lock();
        if disk.off {
            return Err(power_is_off());
        }
        if !disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let verdict = disk.begin(Operation::Remove, path);
        if let OperationOutcome::Fail(error) = verdict {
            return Err(error);
        }
        disk.change(NameChange::Remove(path.to_owned()));
        done(&verdict)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let disk = self.0.lock();
        if disk.off {
            return Err(power_is_off());
        }
        let inside = disk.names.keys().filter(|path| path.parent() == Some(directory));
        let names = inside
            .filter_map(|path| path.file_name())
            .filter_map(|name| name.to_str());
        Ok(names.map(str::to_owned).collect())
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        if disk.off {
            return Err(power_is_off());
        }
        disk.directories.insert(directory.to_owned());
        Ok(())
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.1.wait(Operation::SyncDir, directory);
        let mut disk = self.0.lock();
        match disk.begin(Operation::SyncDir, directory) {
            OperationOutcome::Go => {}
            // The power cut decides whether the sync took effect.
            OperationOutcome::Last => return Err(power_is_off()),
            OperationOutcome::Fail(error) => return Err(error),
        }
        if !disk.syncs_do_nothing {
            disk.sync_dir(directory);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut disk = self.0.lock();
        if disk.off {
            return Err(power_is_off());
        }
        if !disk.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Whether the empty file survives makes no difference to anybody.
        if !disk.names.contains_key(path) {
            let node = disk.new_node();
            disk.nodes.insert(node, Node::synced(Vec::new()));
            disk.names.insert(path.to_owned(), node);
            disk.synced_names.insert(path.to_owned(), node);
        }
        Ok(Box::new(SimLock {
            disk: self.0.clone(),
            path: path.to_owned(),
        }))
    }

    fn space(&self, directory: &Path) -> io::Result<Space> {
        self.1.wait(Operation::Space, directory);
        let mut disk = self.0.lock();
        match disk.begin(Operation::Space, directory) {
            OperationOutcome::Fail(error) => Err(error),
            OperationOutcome::Go | OperationOutcome::Last => Ok(disk.space()),
        }
    }
}

fn done(verdict: &OperationOutcome) -> io::Result<()> {
    if matches!(verdict, OperationOutcome::Last) {
        Err(power_is_off())
    } else {
        Ok(())
    }
}

#[derive(Debug)]
struct SimLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct SimFile {
    disk: Arc<Mutex<Disk>>,
    delays: Arc<Delays>,
    path: PathBuf,
    node: u64,
}

impl SimFile {
    fn read<R>(&self, act: impl FnOnce(&Node) -> io::Result<R>) -> io::Result<R> {
        self.delays.wait(Operation::Read, &self.path);
        let mut disk = self.disk.lock();
        if let OperationOutcome::Fail(error) = disk.begin(Operation::Read, &self.path) {
            return Err(error);
        }
        act(disk.nodes.get(&self.node).ok_or(io::ErrorKind::NotFound)?)
    }

    /// Changes the file, which needs free space if it grows to `length`.
    fn change(&self, operation: Operation, length: u64, act: impl FnOnce(&mut Node)) -> io::Result<()> {
        self.delays.wait(operation, &self.path);
        let mut disk = self.disk.lock();
        let verdict = disk.begin(operation, &self.path);
        if let OperationOutcome::Fail(error) = verdict {
            return Err(error);
        }
        let now = disk.nodes.get(&self.node).ok_or(io::ErrorKind::NotFound)?.len();
        if length > now && !disk.has_room(length - now) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        act(disk.nodes.entry(self.node).or_default());
        done(&verdict)
    }
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.read(|node| Ok(node.len()))
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read(|node| node.read(position, buffer))
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Operation::Write, position + bytes.len() as u64, |node| {
            node.write(position, bytes)
        })
    }

    fn write_vectored_at(&self, position: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes = parts.iter().map(|part| &**part).collect::<Vec<_>>().concat();
        self.write_at(position, &bytes)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(Operation::Write, length, |node| node.set_len(length))
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        self.change(Operation::Preallocate, length, |node| {
            if length > node.len() {
                node.set_len(length);
            }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.delays.wait(Operation::Sync, &self.path);
        let mut disk = self.disk.lock();
        match disk.begin(Operation::Sync, &self.path) {
            OperationOutcome::Go => {}
            OperationOutcome::Last => return Err(power_is_off()),
            OperationOutcome::Fail(error) => {
                if let Some(node) = disk.nodes.get_mut(&self.node) {
                    node.fail_sync();
                }
                return Err(error);
            }
        }
        if !disk.syncs_do_nothing {
            disk.nodes.get_mut(&self.node).ok_or(io::ErrorKind::NotFound)?.sync();
        }
        Ok(())
    }
}
